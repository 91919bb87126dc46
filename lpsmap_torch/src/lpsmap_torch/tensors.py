"""Validation and conversion of tensors whose values a solve reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from lpsmap_core.api import check_readable, kind_of, real_numbers


def as_tensor(name: str, scores: Any) -> Tensor:
    """Return scores as a floating-point tensor; a floating-point tensor is returned unchanged."""
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
is_batched = torch._C._functorch.is_legacy_batchedtensor
"""Whether a tensor is a batch of gradients, of `torch.autograd.grad` with `is_grads_batched`."""


def on_host(name: str, tensor: Tensor) -> NDArray[np.float64]:
    """Return the values of a tensor as an array on the host."""
    _check_eager(name, tensor)
    return numbers(tensor)


def numbers(tensor: Tensor) -> NDArray[np.float64]:
    """Return the values of a tensor that was validated before.

    From a GPU it is a copy to pinned memory, which runs at full speed and waits for its stream
    alone.
    """
    plain = tensor.detach()
    if plain.is_cuda:
        pinned = torch.empty(plain.shape, dtype=torch.float64, device=_HOST, pin_memory=True)
        pinned.copy_(plain.to(torch.float64), non_blocking=True)
        torch.cuda.current_stream(plain.device).synchronize()
        plain = pinned
    # the imaginary part of a conjugate is a view that negates
    array: NDArray[np.float64] = plain.to(_HOST, torch.float64).resolve_neg().numpy()
    return array


def tensor_of(
    array: NDArray[np.float64], dtype: torch.dtype, device: torch.device, copy: bool = False
) -> Tensor:
    """Return an array as a tensor, sharing memory if possible, unless `copy` is set.

    To a GPU it is a copy from pinned memory, for which the caller does not wait.
    """
    host = torch.from_numpy(array)
    if device.type == "cuda":
        return host.to(dtype).pin_memory().to(device, non_blocking=True)
    return host.to(dtype=dtype, device=device, copy=copy)


def common_dtype(tensors: Sequence[Tensor]) -> torch.dtype:
    """Return the dtype that scores promote to; tensors without numbers do not count."""
    dtype = tensors[0].dtype
    for tensor in tensors:
        if tensor.dtype is not dtype and tensor.numel():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to another."""
    return len(shape) <= len(to) and all(
        a == 1 or a == b for a, b in zip(shape[::-1], to[::-1], strict=False)
    )


def over_batch(
    function: Callable[[list[Tensor]], Sequence[Tensor]], tensors: Sequence[Tensor]
) -> list[Tensor]:
    """Return the results of a function for every gradient of a batch; see `is_batched`."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    mapped = [is_batched(x) for x in tensors]
    rows = [
        torch._remove_batch_dim(x, level, 0, 0) if batch else x
        for x, batch in zip(tensors, mapped, strict=True)
    ]
    size = len(rows[mapped.index(True)])
    results = [
        function([x[k] if batch else x for x, batch in zip(rows, mapped, strict=True)])
        for k in range(size)
    ]
    return [torch._add_batch_dim(torch.stack(x), 0, level) for x in zip(*results, strict=True)]


def check_not_compiled(verb: str) -> None:
    """Raise an error inside a function that torch.compile compiles."""
    if is_compiled():
        raise RuntimeError(
            f"{verb}: torch.compile cannot compile a solve. Build and solve the graph in a "
            "separate function decorated with @torch.compiler.disable."
        )


def is_compiled() -> bool:
    """Return whether torch.compile is tracing, or has compiled a calling function."""
    if torch.compiler.is_compiling():
        return True
    if "torch._dynamo" not in sys.modules:  # importing the compiler takes seconds
        return False
    eval_frame: Any = torch._C._dynamo.eval_frame
    return callable(eval_frame.get_eval_frame_callback())


def is_eager(tensor: Tensor) -> bool:
    """Return whether no compiler, transform or mode has to see the operations on a tensor."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and not tensor.is_meta
        and not torch.compiler.is_compiling()
        and not is_batched(tensor)
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
    )


def _of_anything(name: str, scores: Any) -> Tensor:
    """Convert array-likes to a tensor; a list of tensors is stacked with its gradients."""
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
    # torch does not support negative strides
    tensor = torch.from_numpy(np.require(native, requirements=["C", "W"]).reshape(array.shape))
    given_as_array = hasattr(scores, "dtype")
    return tensor if given_as_array else tensor.to(torch.get_default_dtype())


def _check_eager(name: str, tensor: Tensor) -> None:
    """Raise an error for tensors that wrap their values."""
    check_not_compiled(name)
    if is_transformed(tensor) or is_batched(tensor):
        raise RuntimeError(
            f"{name}: got a tensor inside a transform of torch.func or a batched gradient, which a "
            "solve does not support. A batch is one graph: use batch axes of the scores instead of "
            "vmap, and differentiate with backward() or torch.autograd.grad; or use a layer of a "
            "factor type, such as SparseMAP(Xor), which transforms support, not one of a function."
        )
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise RuntimeError(
            f"{name}: torch.jit.trace would record the solution of these scores as a constant. "
            "Trace the code before and after the solve separately."
        )
    if (
        type(tensor) is not Tensor
        and type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
    ):
        raise RuntimeError(
            f"{name}: got {kind_of(tensor)}, which does not hold plain values; a solve cannot be "
            "traced or exported. Pass a plain tensor, and exclude solves from tracing with "
            "torch.compiler.disable."
        )
    if forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
        raise RuntimeError(
            f"{name}: got a dual tensor of forward-mode differentiation; its tangent would be "
            "lost. Use solution.jvp, or reverse mode."
        )
