"""Write ``lpsmap/__init__.pyi``, the names of this project's packs for editors and type checkers.

Run ``python lpsmap_face/write_stub.py`` with all packs installed after a pack has a new factor
type. Names of third-party plugins are known only at run time, hence the stub's ``__getattr__``.
"""

from __future__ import annotations

from pathlib import Path

from lpsmap.names import OWN
from lpsmap_core import installed

STUB = Path(__file__).parent / "src" / "lpsmap" / "__init__.pyi"

HEAD = '''"""The names of lpsmap with all packs of this project, by lpsmap_face/write_stub.py."""

from typing import Any

'''

TAIL = """
__version__: str

def __getattr__(name: str) -> Any: ...  # of third-party plugins
"""


def stub() -> str:
    """Return the text of the stub."""
    modules = dict.fromkeys((name for name in OWN if name != "__version__"), "lpsmap_core")
    modules |= {"PFactorGraph": "lpsmap.earlier", "plot": "lpsmap"}
    modules |= {"TorchFactorGraph": "lpsmap_torch", "solve_many": "lpsmap_decode"}
    for name, registration in installed().factors.items():
        module = registration.plugin.distribution.replace("-", "_")
        if (STUB.parents[3] / module).is_dir():  # no third party's
            modules[name] = module
    imports = sorted({(module, name) for name, module in modules.items()})
    return HEAD + "".join(f"from {m} import {n} as {n}\n" for m, n in imports) + TAIL


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
