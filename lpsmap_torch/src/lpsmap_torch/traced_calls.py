"""Layers and losses inside torch.compile, torch.export and the transforms of torch.func.

There a call is an operator of PyTorch: it evaluates a layer or a loss, found by name, for a list of
tensors. The products of a call's Jacobian with vectors from either side are again calls, of which
the vectors are the last tensors, so that one operator has derivatives of all orders. A ticket owns
the evaluation, of which derivatives are products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lpsmap_torch.by_name import callee_named
from lpsmap_torch.evaluations import Evaluation, evaluated
from lpsmap_torch.packed_arguments import packed
from lpsmap_torch.tensors import over_batch
from lpsmap_torch.tickets import solution_of, ticket_for

__all__ = ["is_traced", "traced_call"]


def is_traced() -> bool:
    """Return whether torch.compile traces the caller, or a transform of torch.func calls it."""
    if torch.compiler.is_compiling():
        return True
    return torch._C._functorch.maybe_current_level() is not None


@dataclass(frozen=True)
class Call:
    """A call of a layer or a loss, or a product with the Jacobian of another call."""

    name: str
    """The name of the layer or the loss."""
    ndim: int
    """The number of the scores' first axes that the output has."""
    arguments: str
    """The structure of the arguments, as `packed` returns it."""
    products: tuple[int, ...] = ()
    """The products, first to last: n for that of the transposed Jacobian with n vectors, and -n for
    that of the Jacobian with n vectors."""

    def times(self, n: int) -> Call:
        """Return the call of a product with the Jacobian of this one."""
        return replace(self, products=(*self.products, n))

    def of(self, ticket: Tensor | None, inputs: list[Tensor]) -> list[Tensor]:
        """Call the operator."""
        products = list(self.products) or [NO_PRODUCT]
        outputs: list[Tensor] = _operator(
            self.name, self.ndim, self.arguments, products, ticket, inputs
        )
        return outputs


def traced_call(name: str, ndim: int, scores: Tensor, arguments: dict[str, Any]) -> Tensor:
    """Return the output of a layer or a loss as that of an operator.

    Parameters
    ----------
    name
        The name of the layer or the loss.
    ndim
        The number of the scores' first axes that the output has.
    scores
        The scores.
    arguments
        The other arguments, by name. Tensors among them have gradients, too.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        _check_not_onnx()
    tensors = [scores]
    text = packed("", arguments, tensors)
    output: Tensor = _call(Call(name, ndim, text), None, tensors)[0]
    return output


def _check_not_onnx() -> None:
    """Raise an error in an export to ONNX."""
    if torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            "lpsmap::solve: torch.onnx.export cannot save a layer of lpsmap_torch, since ONNX has "
            "no operator for its solve. Export the parts of the model before and after the layer "
            "separately, or save the whole model with torch.export."
        )


# -------------------------------------------------------------------- the operator

NO_PRODUCT = 0
"""The only entry of `products` in a call that is no product: compiled archives lose empty lists."""

SCHEMA = "str name, int ndim, str arguments, int[] products, Tensor? ticket, Tensor[] inputs"


@torch.library.custom_op("lpsmap::solve", mutates_args=(), schema=f"({SCHEMA}) -> Tensor[]")
def _operator(
    name: str,
    ndim: int,
    arguments: str,
    products: list[int],
    ticket: Tensor | None,
    inputs: list[Tensor],
) -> list[Tensor]:
    n = len(inputs) - sum(map(abs, products))
    evaluation: Evaluation | None = None if ticket is None else solution_of(ticket)
    if evaluation is None:  # also of a copy of a ticket
        evaluation = evaluated(callee_named(name), arguments, inputs[:n])
    outputs = evaluation.multiplied(tuple(filter(None, products)), inputs[n:])
    return [*outputs, ticket_for(evaluation)]


@_operator.register_fake
def _(
    name: str,
    ndim: int,
    arguments: str,
    products: list[int],
    ticket: Tensor | None,
    inputs: list[Tensor],
) -> list[Tensor]:
    _check_not_onnx()
    outputs = _empty_outputs(ndim, products, inputs)
    return [*outputs, torch.empty(1, dtype=torch.int64, device="cpu")]


def _empty_outputs(ndim: int, products: list[int], inputs: list[Tensor]) -> list[Tensor]:
    """Return tensors like the outputs of a call."""
    if products in ([], [NO_PRODUCT]):
        return [inputs[0].new_empty(inputs[0].shape[:ndim])]
    *before, n = products
    if n < 0:
        return _empty_outputs(ndim, before, inputs[:n])
    return [x.new_empty(x.shape) for x in inputs[:-n] if x.is_floating_point()]


def _call(call: Call, ticket: Tensor | None, inputs: list[Tensor]) -> Any:
    """Call the operator directly when compiling, otherwise through its autograd function.

    Only autograd functions support forward mode, and the compiler cannot trace that.
    """
    if torch.compiler.is_compiling():
        return call.of(ticket, inputs)
    return _Call.apply(call, ticket, *inputs)  # type: ignore[no-untyped-call]


class _Call(torch.autograd.Function):
    """A call, whose derivatives are calls."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: Call, ticket: Tensor | None, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(call.of(ticket, list(inputs)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        call, _, *tensors = inputs
        _save(ctx, call, tensors, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_gradients(ctx, gradients)

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        ticket, *inputs = ctx.saved_tensors
        vectors = [
            torch.zeros_like(x) if d is None else d
            for x, d in zip(inputs, tangents, strict=True)
            if x.is_floating_point()
        ]
        call = ctx.call.times(-len(vectors))
        return *_call(call, ticket, [*inputs, *vectors])[:-1], None


def _save(ctx: Any, call: Call, inputs: list[Tensor], outputs: Any) -> None:
    ctx.call, ctx.n_outputs = call, len(outputs) - 1
    ctx.like = [(x.shape, x.dtype, x.device) for x in outputs[:-1]]
    ctx.save_for_backward(outputs[-1], *inputs)
    if hasattr(ctx, "save_for_forward"):
        ctx.save_for_forward(outputs[-1], *inputs)


def _gradients(ctx: Any, gradients: Any) -> list[Tensor | None]:
    """Return gradients of all inputs, None for those that are not floating-point."""
    ticket, *inputs = ctx.saved_tensors
    n = ctx.n_outputs
    vectors = [
        torch.zeros(shape, dtype=dtype, device=device) if g is None else g
        for g, (shape, dtype, device) in zip(gradients[:n], ctx.like, strict=True)
    ]
    call = ctx.call.times(n)
    products = iter(_call(call, ticket, [*inputs, *vectors]))
    return [next(products) if x.is_floating_point() else None for x in inputs]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    name, ndim, arguments, products, _, tensors = inputs
    ctx.products_are_empty = not products
    own = Call(name, ndim, arguments, tuple(filter(None, products)))
    _save(ctx, own, list(tensors), output)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    # torch counts an empty list as one of tensors
    of_products: Any = [] if ctx.products_are_empty else None
    return None, None, None, of_products, None, _gradients(ctx, gradients)


_operator.register_autograd(_backward, setup_context=_setup)


# -------------------------------------------------------------------- vmap


def _batched(info: Any, in_dims: Any, *call: Any) -> Any:
    """Call the operator for every entry of the mapped axis.

    If the inputs have that axis, and it can be a further batch axis, a single call does.
    """
    name, ndim, arguments, products, ticket, inputs = call
    *_, ticket_axis, axes = in_dims
    n_vectors = sum(map(abs, products))
    of_inputs = axes[: len(axes) - n_vectors]
    if callee_named(name)._maps_batches and any(d is not None for d in of_inputs):
        whole = [
            x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
            for x, d in zip(inputs, axes, strict=True)
        ]
        outputs = _operator(name, ndim + 1, arguments, products, ticket, whole)
        return outputs, [*(0 for _ in outputs[1:]), None]  # one ticket for the whole batch
    each = [
        _operator(
            name,
            ndim,
            arguments,
            products,
            ticket if ticket is None or ticket_axis is None else ticket.select(ticket_axis, k),
            [x if d is None else x.select(d, k) for x, d in zip(inputs, axes, strict=True)],
        )
        for k in range(info.batch_size)
    ]
    return list(map(torch.stack, zip(*each, strict=True))), [0] * len(each[0])


torch.library.register_vmap(_operator, _batched)


def _batch_of_gradients(*call: Any) -> list[Tensor]:
    """Call the operator for every gradient of a batch; see `tensors.is_batched`."""
    *static, ticket, inputs = call

    def operator(tensors: list[Tensor]) -> list[Tensor]:
        outputs: list[Tensor] = _operator(*static, ticket, tensors)
        return outputs

    return over_batch(operator, inputs)


torch.library.impl("lpsmap::solve", "Batched", _batch_of_gradients)
