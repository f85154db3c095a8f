"""The same methods on a real federation: Flower carries the messages, fedprior brings the methods and keeps the state.

client = client_app("task.toml", load)    # in a ClientApp's module; load(node_config) gives this site's samples
server = server_app("task.toml")          # in a ServerApp's module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedprior.flower.client import client_app
    from fedprior.flower.server import server_app
    from fedprior.flower.site import samples_from_file

_HOME = {"client_app": "client", "server_app": "server", "samples_from_file": "site"}
__all__ = ["client_app", "samples_from_file", "server_app"]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOME:
        return getattr(importlib.import_module(f"fedprior.flower.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fedprior.flower' has no attribute '{name}'")
