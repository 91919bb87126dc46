"""Losses as a custom operator of PyTorch, for torch.compile and torch.func.

The operator evaluates a call, whose text names the loss and describes the arguments, with a list of
tensors. The products of a call's Jacobian with vectors from either side are again calls, of which
the vectors are the last tensors, so that one operator has derivatives of all orders. Inside, a loss
runs as it does outside, with autograd. A ticket owns the evaluation, which the derivatives need.
"""

from __future__ import annotations

import itertools
import uuid
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lpsmap_torch.layers.tickets import solution_of, ticket_for
from lpsmap_torch.losses.packed_arguments import packed, unpacked
from lpsmap_torch.operator_autograd import autograd_inside, leaf_like

__all__ = ["call_loss", "is_traced", "registered"]


def is_traced() -> bool:
    """Return whether torch.compile traces the caller, or a transform of torch.func calls it."""
    if torch.compiler.is_compiling():
        return True
    return torch._C._functorch.maybe_current_level() is not None


def call_loss(loss: Any, handle: str, scores: Tensor, given: dict[str, Any]) -> Tensor:
    """Return a loss as an operator.

    Parameters
    ----------
    loss, handle
        The loss, and the name under which it is registered.
    scores
        The scores.
    given
        The other arguments, by name. Tensors among them, and the parameters and buffers of the
        loss, have gradients, too.
    """
    tensors = [scores]
    own = {**dict(loss.named_parameters()), **dict(loss.named_buffers())}
    graded = torch.is_grad_enabled()
    text = packed("", {"own": own, "given": given, "graded": graded}, tensors)
    kind = "items" if loss.reduction == "none" else "scalar"
    found: Tensor = _call(f"{kind} {handle} {text}", None, tensors)[0]
    return found


# -------------------------------------------------------------------- the registry of losses

_LOSSES: weakref.WeakValueDictionary[str, nn.Module] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()
_PROCESS = uuid.uuid4().hex


def registered(loss: nn.Module) -> str:
    """Return the name under which calls find a loss in this process and in forked ones."""
    handle = f"{type(loss).__name__}-{next(_NUMBERS)}-{_PROCESS}"
    _LOSSES[handle] = loss
    return handle


# -------------------------------------------------------------------- evaluation

PULL_BACK, PUSH_FORWARD = "pull_back", "push_forward"
"""The first words of calls that multiply the Jacobian of another call by vectors."""


class Evaluation(NamedTuple):
    """Tensors, and a differentiable function of them."""

    inputs: list[Tensor]
    outputs: list[Tensor]


def _evaluated(call: str, inputs: list[Tensor], base: Evaluation | None) -> Evaluation:
    """Evaluate a call with autograd.

    Parameters
    ----------
    call
        The text of the call.
    inputs
        Its tensors.
    base
        The evaluation of the call whose Jacobian is multiplied, if it still exists.
    """
    mode, n, inner = _parsed(call)
    if not mode:
        leaves = [leaf_like(x) for x in inputs]
        return Evaluation(leaves, [_loss(call, leaves)])
    if base is None:
        base = _evaluated(inner, inputs[:-n], None)
    vectors = [leaf_like(x) for x in inputs[-n:]]
    wanted = [x for x in base.inputs if x.is_floating_point()]
    if mode == PULL_BACK:
        outputs = _pulled(base.outputs, wanted, vectors)
    else:  # the transpose of the transposed product, which is linear
        zeros = [leaf_like(torch.zeros_like(y)) for y in base.outputs]
        outputs = _pulled(_pulled(base.outputs, wanted, zeros), zeros, vectors)
    return Evaluation([*base.inputs, *vectors], outputs)


def _pulled(outputs: list[Tensor], inputs: list[Tensor], vectors: list[Tensor]) -> list[Tensor]:
    """Return the vector-Jacobian product, with its own derivatives."""
    pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    ends, starts = zip(*pairs, strict=True)
    return list(
        torch.autograd.grad(ends, inputs, starts, create_graph=True, materialize_grads=True)
    )


def _parsed(call: str) -> tuple[str, int, str]:
    """Return the product that a call is, the number of vectors, and the call multiplied."""
    mode, n, *inner = call.split(" ", 2)
    if mode not in (PULL_BACK, PUSH_FORWARD):
        return "", 0, ""
    return mode, int(n), inner[0]


def _loss(call: str, leaves: list[Tensor]) -> Tensor:
    _, handle, text = call.split(" ", 2)
    loss: Any = _LOSSES.get(handle)
    if loss is None:
        raise RuntimeError(
            f"{handle}: the loss no longer exists, or belongs to another process; keep a reference "
            "to it, or to its model, and compile in this process."
        )
    arguments = unpacked(text, leaves)
    own, given = arguments["own"], arguments["given"]
    with torch.set_grad_enabled(arguments["graded"]):
        if own:
            value: Tensor = torch.func.functional_call(loss, own, (leaves[0],), given)
        else:
            value = loss(leaves[0], **given)
    _check_closure(type(loss).__name__, value, leaves)
    return value


def _check_closure(name: str, value: Tensor, leaves: list[Tensor]) -> None:
    """Validate that a value has gradients to no other tensors than its arguments.

    Raises
    ------
    RuntimeError
        If it has.
    """
    own, seen, nodes = {id(x) for x in leaves}, set(), [value.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if id(getattr(node, "variable", value)) not in own and hasattr(node, "variable"):
            raise RuntimeError(
                f"{name}: the factors use a tensor with a gradient that is no argument of the "
                "call, so that its gradient would be lost inside torch.compile and transforms of "
                "torch.func. Pass it as a keyword argument, or as a parameter of a layer."
            )
        nodes.extend(before for before, _ in node.next_functions)


# -------------------------------------------------------------------- the operator


@torch.library.custom_op(
    "lpsmap::loss",
    mutates_args=(),
    schema="(str call, Tensor? ticket, Tensor[] inputs) -> Tensor[]",
)
def _operator(call: str, ticket: Tensor | None, inputs: list[Tensor]) -> list[Tensor]:
    base = None if ticket is None else solution_of(ticket)
    with autograd_inside():
        found = _evaluated(call, inputs, base)
    outputs = [x.detach().clone(memory_format=torch.contiguous_format) for x in found.outputs]
    return [*outputs, ticket_for(found)]


@_operator.register_fake
def _(call: str, ticket: Tensor | None, inputs: list[Tensor]) -> list[Tensor]:
    return [*_empty_outputs(call, inputs), torch.empty(1, dtype=torch.int64, device="cpu")]


def _empty_outputs(call: str, inputs: list[Tensor]) -> list[Tensor]:
    """Return tensors like the outputs of a call."""
    mode, n, inner = _parsed(call)
    if mode == PULL_BACK:
        return [x.new_empty(x.shape) for x in inputs[:-n] if x.is_floating_point()]
    if mode == PUSH_FORWARD:
        return _empty_outputs(inner, inputs[:-n])
    scores = inputs[0]
    dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
    shape = scores.shape[:1] if call.startswith("items") else ()
    return [scores.new_empty(shape, dtype=dtype)]


class _Call(torch.autograd.Function):
    """A call, whose derivatives are calls."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: str, ticket: Tensor | None, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(_operator(call, ticket, list(inputs)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        call, _, *tensors = inputs
        _save(ctx, call, tensors, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_pulled_back(ctx, gradients)

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        ticket, *inputs = ctx.saved_tensors
        vectors = [
            torch.zeros_like(x) if d is None else d
            for x, d in zip(inputs, tangents, strict=True)
            if x.is_floating_point()
        ]
        call = f"{PUSH_FORWARD} {len(vectors)} {ctx.call}"
        return *_call(call, ticket, [*inputs, *vectors])[:-1], None


def _save(ctx: Any, call: str, inputs: list[Tensor], outputs: Any) -> None:
    ctx.call, ctx.n_outputs = call, len(outputs) - 1
    ctx.like = [(x.shape, x.dtype, x.device) for x in outputs[:-1]]
    ctx.save_for_backward(outputs[-1], *inputs)
    if hasattr(ctx, "save_for_forward"):
        ctx.save_for_forward(outputs[-1], *inputs)


def _pulled_back(ctx: Any, gradients: Any) -> list[Tensor | None]:
    """Return gradients of all inputs, None for those that are not floating-point."""
    ticket, *inputs = ctx.saved_tensors
    n = ctx.n_outputs
    vectors = [
        torch.zeros(shape, dtype=dtype, device=device) if g is None else g
        for g, (shape, dtype, device) in zip(gradients[:n], ctx.like, strict=True)
    ]
    found = iter(_call(f"{PULL_BACK} {n} {ctx.call}", ticket, [*inputs, *vectors]))
    return [next(found) if x.is_floating_point() else None for x in inputs]


def _call(call: str, ticket: Tensor | None, inputs: list[Tensor]) -> Any:
    """Call the operator directly when compiling, otherwise through its autograd function."""
    if torch.compiler.is_compiling():
        return _operator(call, ticket, inputs)
    return _Call.apply(call, ticket, *inputs)  # type: ignore[no-untyped-call]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    call, _, tensors = inputs
    _save(ctx, call, list(tensors), output)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    return None, None, _pulled_back(ctx, gradients)


_operator.register_autograd(_backward, setup_context=_setup)


def _batched(info: Any, in_dims: Any, call: str, ticket: Any, inputs: list[Tensor]) -> Any:
    """Call the operator for every entry of the mapped axis."""
    axes = in_dims[2]
    each = [
        _operator(
            call,
            ticket if ticket is None or in_dims[1] is None else ticket.select(in_dims[1], k),
            [x if d is None else x.select(d, k) for x, d in zip(inputs, axes, strict=True)],
        )
        for k in range(info.batch_size)
    ]
    return list(map(torch.stack, zip(*each, strict=True))), [0] * len(each[0])


torch.library.register_vmap(_operator, _batched)
