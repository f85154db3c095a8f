"""How the documentation is built: `make docs` writes it to build/docs/html, without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedprior

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "docs"
sys.path.insert(0, str(HERE / "_ext"))

from notebooks import digest

os.environ["PYTHONPATH"] = str(HERE.parent / "src")  # for the kernels that run the examples
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # they compile for longer than they run

project = "fedprior"
author = "the fedprior authors"
copyright = author
release = version = fedprior.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx-mathjax-offline",
    "cards",
    "changelog",
    "commands",
    "gallery",
    "notebooks",
    "promises",
]
exclude_patterns = ["_ext", "conf.py", "**/.ipynb_checkpoints", "reproduction/*/**"]

# -- pages and notebooks ---------------------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_custom_formats = {".py": "notebooks.read"}
nb_execution_mode = "cache"  # an example runs when it is new, or when it or the package has changed
nb_execution_cache_path = str(BUILD / "executed" / digest(HERE.parent / "src", HERE / "results"))
nb_execution_timeout = 600  # of a cell; seconds unless the machine is busy
nb_execution_raise_on_error = True
nb_merge_streams = True

# -- the interface of the package --------------------------------------------------------------------------------------------
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # as they are written: a lambda says more than its address
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False

# -- how it looks ------------------------------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = f"fedprior {release}"
html_static_path = ["_static"]
html_css_files = ["fedprior.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars: dict[str, list[str]] = {"index": [], "start": [], "which-method": []}


def skip_field(app: Sphinx, what: str, name: str, found: Any, skip: bool, options: object) -> bool | None:
    """Leave out a NamedTuple's field that says no more than its place: the signature above it lists them all."""
    return True if str(getattr(found, "__doc__", "")).startswith("Alias for field number") else None


def setup(app: Sphinx) -> None:
    """What this site alone needs."""
    app.connect("autodoc-skip-member", skip_field)
