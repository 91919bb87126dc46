"""Tensors whose numbers a solve can read; the others refused in words."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from lpsmap_core.api import check_readable, kind_of, real_numbers

__all__ = [
    "as_tensor",
    "check_not_compiled",
    "converted",
    "is_compiled",
    "is_transformed",
    "numbers",
    "on_host",
    "tensor_of",
]


def as_tensor(name: str, scores: Any) -> Tensor:
    """Return scores as a floating-point tensor; what is one stays the same.

    Raises
    ------
    TypeError
        If they are not real numbers, or a tensor without numbers of its own.
    RuntimeError
        If a transform or a tracer of torch stands in for the numbers.
    """
    if not isinstance(scores, Tensor):
        scores = _of_anything(name, scores)
    usual = scores.dtype in _USUAL and scores.layout is torch.strided
    if not usual or scores.is_meta or scores.is_nested:
        check_readable(name, scores)
    _check_eager(name, scores)
    tensor: Tensor = scores
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


_USUAL = {torch.float64, torch.float32, torch.bfloat16, torch.float16}
_HOST = torch.device("cpu")
is_transformed = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched = torch._C._functorch.is_legacy_batchedtensor


def on_host(name: str, tensor: Tensor) -> NDArray[np.float64]:
    """Return a tensor's numbers.

    Raises
    ------
    RuntimeError
        If a transform of torch stands in for the numbers.
    """
    _check_eager(name, tensor)
    return numbers(tensor)


def numbers(tensor: Tensor) -> NDArray[np.float64]:
    """Return the numbers of a tensor that was checked before."""
    found: NDArray[np.float64] = converted(tensor.detach(), torch.float64, _HOST).numpy()
    return found


def tensor_of(array: NDArray[np.float64], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor, which shares memory with them if it can."""
    return converted(torch.from_numpy(array), dtype, device)


def converted(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return ``tensor.to(dtype=dtype, device=device)``, which takes a while to do nothing."""
    if tensor.dtype is dtype and tensor.device == device:
        return tensor
    return tensor.to(dtype=dtype, device=device)


def check_not_compiled(verb: str) -> None:
    """Refuse to be a part of what torch.compile compiles, or runs in pieces.

    Raises
    ------
    RuntimeError
        If so.
    """
    if is_compiled():
        raise RuntimeError(
            f"{verb}: torch.compile cannot compile a solve. Put what makes and solves the graph "
            "into a function of its own, and decorate that with @torch.compiler.disable."
        )


def is_compiled() -> bool:
    """Return whether torch.compile traces us, or would: a function that it compiled calls us."""
    if torch.compiler.is_compiling():
        return True
    if "torch._dynamo" not in sys.modules:  # importing the compiler to ask it takes seconds
        return False
    eval_frame: Any = torch._C._dynamo.eval_frame
    return callable(eval_frame.get_eval_frame_callback())


def _of_anything(name: str, scores: Any) -> Tensor:
    """Return a tensor of numbers that are none yet; of tensors in a list, with their gradients."""
    if isinstance(scores, (list, tuple)) and any(isinstance(x, Tensor) for x in scores):
        try:
            return torch.stack([as_tensor(name, x) for x in scores])
        except RuntimeError as error:
            raise TypeError(
                f"{name}: got a list of tensors that do not stack ({error})."
            ) from error
    array = real_numbers(name, scores)
    if array.dtype.kind == "f" and (array.dtype.itemsize > 8 or not array.dtype.isnative):
        array = array.astype(np.float64)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    # torch has no negative strides
    tensor = torch.from_numpy(np.require(native, requirements=["C", "W"]).reshape(array.shape))
    given_as_array = hasattr(scores, "dtype")
    return tensor if given_as_array else tensor.to(torch.get_default_dtype())


def _check_eager(name: str, tensor: Tensor) -> None:
    """Refuse tensors that torch has put in the place of numbers."""
    check_not_compiled(name)
    if is_transformed(tensor) or _is_batched(tensor):
        raise RuntimeError(
            f"{name}: got a tensor inside a transform of torch.func or a batched gradient, which a "
            "solve cannot be part of. A batch is one graph: give the scores their batch axes "
            "instead of vmap, and differentiate with backward() or torch.autograd.grad."
        )
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise RuntimeError(
            f"{name}: torch.jit.trace would keep the solution of these very scores as a constant. "
            "Trace what is before and after the solve."
        )
    if (
        type(tensor) is not Tensor
        and type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
    ):
        raise RuntimeError(
            f"{name}: got {kind_of(tensor)}, which has no plain numbers of its own; a "
            "solve cannot be traced or exported. Pass a plain tensor, and keep solves out of "
            "tracing with torch.compiler.disable."
        )
    if forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
        raise RuntimeError(
            f"{name}: got a dual tensor of forward-mode differentiation, whose tangent would be "
            "lost. Use solution.jvp, or reverse mode."
        )
