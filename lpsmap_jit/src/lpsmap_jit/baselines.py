"""Kernels compiled in advance for baseline processors: the files of the platform wheel.

The package ``lpsmap_kernels`` has a folder for each baseline, with kernels compiled for the
features that the baseline guarantees. They are used where the processor has these features, unless
`NATIVE` is set.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
from pathlib import Path
from typing import NamedTuple

NATIVE = "LPSMAP_NATIVE"
"""The environment variable that disables the files: kernels are compiled for this processor."""

PACKAGE = "lpsmap_kernels"

Processor = tuple[str, str, str]
"""The target of a compilation as numba identifies it: triple, processor and features."""


class Baseline(NamedTuple):
    """A kind of processor, by LLVM's name, and the features that it guarantees."""

    name: str
    features: frozenset[str]


_V2 = frozenset(
    ["cmov", "cx16", "cx8", "fxsr", "mmx", "popcnt", "sahf"]
    + ["sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3"]
)
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_X86 = (Baseline("x86-64-v3", _V3), Baseline("x86-64-v2", _V2))
_ARM = (Baseline("generic", frozenset()),)
_BY_MACHINE = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}


def baselines() -> tuple[Baseline, ...]:
    """Return the baselines of this kind of machine, the fastest first."""
    return _BY_MACHINE.get(platform.machine().lower(), ())


@functools.cache
def files_of_wheel(processor: Processor) -> tuple[tuple[Path, Processor], ...]:
    """Return the folders of files that a processor can run, and what they were compiled for.

    Parameters
    ----------
    processor
        That of this process, with features such as "+avx,-sha".
    """
    if os.environ.get(NATIVE, "0") not in ("", "0"):
        return ()
    spec = importlib.util.find_spec(PACKAGE)
    folders = [] if spec is None else [Path(x) for x in spec.submodule_search_locations or ()]
    triple, _, features = processor
    has = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    return tuple(
        (folder / baseline.name, (triple, baseline.name, ""))
        for folder in folders
        for baseline in baselines()
        if baseline.features <= has and (folder / baseline.name).is_dir()
    )
