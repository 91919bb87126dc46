"""Compilation of kernels: caching on disk, calls by address, and interrupts."""

from lpsmap_jit.cache import CompilationNotice
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.ctrl_c import ended_by_ctrl_c
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.interrupts import interrupted

__version__ = "0.1.0"

__all__ = [
    "CompilationNotice",
    "Deadline",
    "ended_by_ctrl_c",
    "interrupted",
    "kernel",
    "leaf",
]
