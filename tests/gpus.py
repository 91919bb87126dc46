"""What tests that need a GPU are marked with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

__all__ = ["on_gpu"]

Test = TypeVar("Test", bound=Callable[..., None])


def on_gpu(test: Test) -> Test:
    """Mark a test `gpu`, and skip it where there is no GPU."""
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    marked: Test = pytest.mark.gpu(skip(test))
    return marked
