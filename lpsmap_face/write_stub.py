"""Write the names of this project's packages, for editors and for advice on missing names.

``lpsmap/__init__.pyi`` has the names of ``lpsmap`` with all packs, for editors and type checkers;
those of third-party plugins are known only at run time, hence its ``__getattr__``.
``lpsmap/known_names.py`` says where names are, installed or not. Run ``python
lpsmap_face/write_stub.py`` with all packs installed after a public name has changed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from lpsmap.names import OWN
from lpsmap_core import installed

FOLDER = Path(__file__).parent / "src" / "lpsmap"
STUB, KNOWN_NAMES = FOLDER / "__init__.pyi", FOLDER / "known_names.py"

MODULES = (
    *("lpsmap_torch.layers", "lpsmap_torch.losses", "lpsmap_torch.estimators", "lpsmap_jax"),
    *("lpsmap_dynamic", "lpsmap_decode", "lpsmap_search", "lpsmap_core"),
)
"""Modules with names that users look for, or misspell, in ``lpsmap``."""

_PACKAGES = {folder.name for folder in FOLDER.parents[2].iterdir() if (folder / "src").is_dir()}

HEAD = '''"""The names of lpsmap with all packs of this project, by lpsmap_face/write_stub.py."""

from typing import Any

'''

TAIL = """
__version__: str

def __getattr__(name: str) -> Any: ...  # of third-party plugins
"""


def stub() -> str:
    """Return the text of the stub."""
    imports = sorted({(module, name) for name, module in modules_of_names().items()})
    lines = (f"from {m} import {n} as {n}\n" for m, n in imports)
    return HEAD + "".join(lines) + TAIL


def known_names() -> str:
    """Return the text of the module of known names."""
    of_face = modules_of_names()
    packs = {n: m.replace("_", "-") for n, m in of_face.items() if m in _PACKAGES - {"lpsmap_core"}}
    modules = {
        name: module
        for module in reversed(MODULES)
        for name in import_module(module).__all__
        if name not in of_face
    }
    modules |= dict.fromkeys(set(of_face) - set(installed().factors), "lpsmap")
    return (
        '"""Where public names of this project are, by lpsmap_face/write_stub.py."""\n\n'
        + _assignment("PACKS", packs)
        + '"""Distributions, with the names that they add to ``lpsmap``."""\n\n'
        + _assignment("MODULES", modules)
        + '"""Modules, with their public names other than factor types."""\n'
    )


def modules_of_names() -> dict[str, str]:
    """Return the modules that the names of ``lpsmap`` come from."""
    modules = dict.fromkeys((name for name in OWN if name != "__version__"), "lpsmap_core")
    modules |= {"PFactorGraph": "lpsmap.earlier", "plot": "lpsmap"}
    modules |= {"TorchFactorGraph": "lpsmap_torch", "solve_many": "lpsmap_decode"}
    for name, registration in installed().factors.items():
        module = registration.plugin.distribution.replace("-", "_")
        if module in _PACKAGES:  # no third party's
            modules[name] = module
    return modules


def _assignment(variable: str, places: Mapping[str, str]) -> str:
    """Return the assignment of a dictionary from places to their names."""
    text = f"{variable} = {{\n"
    for place in sorted(set(places.values())):
        names = sorted(name for name in places if places[name] == place)
        lines = textwrap.wrap(" ".join(names), 84, drop_whitespace=False)
        if len(lines) == 1 and len(place) + len(lines[0]) < 85:
            text += f'    "{place}": "{lines[0]}",\n'
        else:
            text += f'    "{place}": (\n'
            text += "".join(f'        "{line}"\n' for line in lines) + "    ),\n"
    return text + "}\n"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    KNOWN_NAMES.write_text(known_names(), encoding="utf-8")
