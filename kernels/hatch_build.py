"""Metadata of the wheel: it is for the Python, numba and platform that compiled its kernels."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class PinnedNumba(MetadataHookInterface):
    """Sets the dependencies: files of another numba are never loaded."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Pin the release of numba."""
        numba = importlib.metadata.version("numba")
        metadata["dependencies"] = ["lpsmap-jit>=0.1,<0.2", f"numba=={numba}"]


class PlatformWheel(BuildHookInterface):  # type: ignore[type-arg]
    """Sets the tag of the wheel: machine code calls the interpreter and numba's own library.

    Kernels need nothing else of the system, so they run wherever the wheel of numba does.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Take the platform from the wheel of numba, and the Python that runs."""
        wheel = importlib.metadata.distribution("numba").read_text("WHEEL") or ""
        tags = [line.removeprefix("Tag: ") for line in wheel.splitlines() if "Tag: " in line]
        platforms = ".".join(sorted(tag.split("-")[2] for tag in tags))
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}{getattr(sys, 'abiflags', '')}-{platforms}"
