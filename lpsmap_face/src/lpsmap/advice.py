"""Advice on names that ``lpsmap`` does not have: where they are, or which one is meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from importlib.util import find_spec

from lpsmap.known_names import MODULES, PACKS
from lpsmap_core.api import install_advice, missing_type_advice

__all__ = ["SYNONYMS", "advice_on"]

SYNONYMS = {
    "AndOut": "And Conjunction",
    "AtMostOne": "AtMost1",
    "BinaryTree": "Constituency ConstituencyTree",
    "Budget": "AtMostK Cardinality",
    "Dense": "Table",
    "DepTree": "Arborescence DependencyTree SpanningTree Tree",
    "Imply": "Implies Implication",
    "Matching": "Assignment BipartiteMatching",
    "Pair": "Ising",
    "SemiMarkov": "Segmentation SemiCRF",
    "Sequence": "Chain CRF HMM LinearChain LinearChainCRF Tagging",
    "TopK": "KSubset Subset",
    "Xor": "ExactlyOne OneHot OneOf",
}
"""Factor types, with other words for them."""

SIMILARITY = 0.85
"""Similarity above which a name of another module is meant; 1 is equality."""

MOVED = dict.fromkeys(
    ("ConditionalGradient", "conditional_gradient"),
    "it is an example now, in examples/conditional_gradient.py of the repository",
)
"""Advice on names that no module has any more."""


def advice_on(name: str, factors: Collection[str]) -> str:
    """Return advice on a name that ``lpsmap`` does not have.

    Parameters
    ----------
    name
        The name as the user wrote it.
    factors
        The installed factor types.
    """
    if name in MOVED:
        return MOVED[name]
    words = {word.lower(): kind for kind, others in SYNONYMS.items() for word in others.split()}
    modules = {other: module for module, names in MODULES.items() for other in names.split()}
    if name.lower() in words and name not in modules:
        meant = words[name.lower()]
        install = "" if meant in factors else f" {_missing_name_advice(meant, factors)}"
        return f"did you mean {meant}?{install}"
    if name in modules and modules[name] != "lpsmap":
        return _import_of(name, modules[name])
    plain = {other.lower(): other for other in modules if other != name}
    for near in difflib.get_close_matches(name.lower(), plain, 1, SIMILARITY):
        meant = plain[near]
        return f"did you mean {meant}? {_import_of(meant, modules[meant])}"
    return _missing_name_advice(name, factors)


def _missing_name_advice(name: str, installed: Collection[str]) -> str:
    for distribution, names in PACKS.items():
        if name in names.split():
            return install_advice(distribution)
    return missing_type_advice(name, installed)


def _import_of(name: str, module: str) -> str:
    """Return the import of a name, and how to install its module if it is missing."""
    package = module.partition(".")[0]
    install = "" if find_spec(package) else install_advice(package.replace("_", "-"))
    return f"use: from {module} import {name}" + (f"; {install}" if install else "")
