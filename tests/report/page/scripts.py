"""The page's script run without a browser, by node: its arithmetic and its sentences need no document."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from fedprior.report.page.page import CORE, joined


def evaluated(expression: str, *more: str, **given: Any) -> Any:
    """The value of an expression in which the script's functions and what is given are known; skipped without node.

    ``more``: parts of the script besides those that need no document, of which the expression calls what needs none.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the tests in a browser compare the same")
    script = joined((*CORE, *more)).removesuffix("})();\n")
    names = ", ".join(given)
    script += f"const {{ {names} }} = JSON.parse(require('fs').readFileSync(0, 'utf8'));\n"
    script += f"console.log(JSON.stringify({expression}));\n}})();\n"
    done = subprocess.run([node, "-e", script], input=json.dumps(given), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
