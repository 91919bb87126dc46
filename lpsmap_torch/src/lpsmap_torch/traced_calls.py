"""Layers and losses inside torch.compile, torch.export and the transforms of torch.func.

There a call is an operator of PyTorch: it evaluates a layer or a loss, found by name, for a list of
tensors. The products of a call's Jacobian with vectors from either side are again calls, of which
the vectors are the last tensors, so that one operator has derivatives of all orders. A ticket owns
the evaluation, of which derivatives are products.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import kind_of
from lpsmap_torch.by_name import Callee, callee_named
from lpsmap_torch.tensors import over_batch


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
    products: list[int]
    """The products, first to last: n for that of the transposed Jacobian with n vectors, and -n for
    that of the Jacobian. Zeros have no meaning; the first makes a list of none, which compiled
    archives lose."""

    def times(self, n: int) -> Call:
        """Return the call of a product with the Jacobian of this one."""
        return replace(self, products=[*self.products, n])

    def of(self, ticket: Tensor | None, inputs: list[Tensor]) -> list[Tensor]:
        """Call the operator."""
        own = self.name, self.ndim, self.arguments, self.products
        outputs: list[Tensor] = _operator(*own, ticket, inputs)
        return outputs


def traced_call(name: str, ndim: int, scores: Tensor, arguments: dict[str, Any]) -> Tensor:
    """Return the output of a layer or a loss, by its name, as that of an operator.

    The output has the first `ndim` axes of the scores. Tensors among the arguments have gradients,
    too.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        _check_not_onnx()
    tensors = [scores]
    text = packed("", arguments, tensors)
    output: Tensor = _call(Call(name, ndim, text, [0]), None, tensors)[0]
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
    evaluation: Evaluation | None = None if ticket is None else evaluation_of(ticket)
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
    *before, n = products
    if n == 0:
        return [inputs[0].new_empty(inputs[0].shape[:ndim])]
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
    *call, _, tensors = inputs
    _save(ctx, Call(*call), list(tensors), output)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    return *(None,) * 5, _gradients(ctx, gradients)


_operator.register_autograd(_backward, setup_context=_setup)


# -------------------------------------------------------------------- vmap


def _batched(info: Any, in_dims: Any, *arguments: Any) -> Any:
    """Call the operator for every entry of the mapped axis.

    If the inputs have that axis, and it can be a further batch axis, a single call does.
    """
    *own, ticket, inputs = arguments
    *_, ticket_axis, axes = in_dims
    call = Call(*own)
    of_inputs = axes[: len(axes) - sum(map(abs, call.products))]
    if callee_named(call.name)._maps_batches and any(d is not None for d in of_inputs):
        whole = [
            x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
            for x, d in zip(inputs, axes, strict=True)
        ]
        outputs = replace(call, ndim=call.ndim + 1).of(ticket, whole)
        return outputs, [*(0 for _ in outputs[1:]), None]  # one ticket for the whole batch
    each = [
        call.of(
            ticket if ticket is None or ticket_axis is None else ticket.select(ticket_axis, k),
            [x if d is None else x.select(d, k) for x, d in zip(inputs, axes, strict=True)],
        )
        for k in range(info.batch_size)
    ]
    return list(map(torch.stack, zip(*each, strict=True))), [0] * len(each[0])


torch.library.register_vmap(_operator, _batched)


def _batch_of_gradients(*call: Any) -> list[Tensor]:
    """Call the operator for every gradient of a batch; see `tensors.is_batched`."""
    *others, inputs = call
    return over_batch(functools.partial(_operator, *others), inputs)


torch.library.impl("lpsmap::solve", "Batched", _batch_of_gradients)


def packed(name: str, value: Any, tensors: list[Tensor]) -> str:
    """Return a value as a literal of Python, and append its tensors to a list.

    The compiler traces this function. Numbers are tensors, so that it does not compile again when
    they change.
    """
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, dict):
        items = [f"{key!r}: {packed(str(key), x, tensors)}" for key, x in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return f"('{kind}', [{', '.join([packed(name, x, tensors) for x in value])}])"
    if isinstance(value, Tensor):
        kind, tensor = "tensor", value
    elif isinstance(value, (int, float)):
        dtype = torch.int64 if isinstance(value, int) else torch.float64
        kind, tensor = "number", torch.full((), value, dtype=dtype, device="cpu")
    elif isinstance(value, np.ndarray):
        kind, tensor = "array", torch.as_tensor(value, device="cpu")
    else:
        raise TypeError(
            f"{name}: got {kind_of(value)}; expected tensors, arrays, numbers, strings, booleans "
            "or None as arguments of a loss inside torch.compile and transforms of torch.func. "
            "Give other arguments to the factors by functools.partial."
        )
    tensors.append(tensor)
    return f"('{kind}', {len(tensors) - 1})"


_literal = functools.lru_cache(maxsize=64)(ast.literal_eval)
"""Cached, because a small solve takes no longer than to read a text."""


def unpacked(value: Any, tensors: list[Tensor]) -> Any:
    """Return the value of a literal of `packed` and a list of tensors."""
    if isinstance(value, dict):
        return {key: unpacked(x, tensors) for key, x in value.items()}
    if not isinstance(value, tuple):
        return value
    kind, inside = value
    if kind in ("list", "tuple"):
        entries = [unpacked(x, tensors) for x in inside]
        return entries if kind == "list" else tuple(entries)
    tensor = tensors[inside]
    if kind == "number":
        return tensor.item()
    return tensor.detach().cpu().numpy() if kind == "array" else tensor


class Evaluation(NamedTuple):
    """The output of a layer or a loss, and what autograd recorded of it."""

    inputs: list[Tensor]
    output: Tensor

    def multiplied(self, products: Sequence[int], vectors: list[Tensor]) -> list[Tensor]:
        """Return the last of some products with the Jacobian, and with those of the products.

        The vectors are those of all products. Without any, the output is returned.
        """
        inputs, outputs = self.inputs, [self.output]
        with _autograd_inside():
            leaves = iter([_leaf_like(x) for x in vectors])
            for i, n in enumerate(products, 1):
                more = i < len(products)  # the last product has no derivatives
                given = list(itertools.islice(leaves, abs(n)))
                floating = [x for x in inputs if x.is_floating_point()]
                if n > 0:
                    outputs = _pulled_back(outputs, floating, given, more)
                else:  # the transpose of the transposed product, which is linear
                    zeros = [_leaf_like(torch.zeros_like(y)) for y in outputs]
                    pulled = _pulled_back(outputs, floating, zeros, True)
                    outputs = _pulled_back(pulled, zeros, given, more)
                inputs = [*inputs, *given]
        # those of operators share no memory with others
        return [x.detach().clone(memory_format=torch.contiguous_format) for x in outputs]


def evaluated(callee: Callee, arguments: str, inputs: list[Tensor]) -> Evaluation:
    """Return the evaluation of a layer or a loss for `packed` arguments and tensors."""
    with _autograd_inside():
        leaves = [_leaf_like(x) for x in inputs]
        output = callee._evaluate(leaves[0], **unpacked(_literal(arguments), leaves))
    _check_closure(type(callee).__name__, output, leaves)
    return Evaluation(leaves, output)


def _pulled_back(
    outputs: list[Tensor], inputs: list[Tensor], vectors: list[Tensor], create_graph: bool
) -> list[Tensor]:
    pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    ends, starts = zip(*pairs, strict=True)
    return list(
        torch.autograd.grad(
            ends,
            inputs,
            starts,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
    )


def _leaf_like(tensor: Tensor) -> Tensor:
    """Return a tensor with the same values as a leaf of autograd, if it is floating-point."""
    leaf = tensor.clone() if tensor.is_inference() else tensor.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf


@contextlib.contextmanager
def _autograd_inside() -> Iterator[None]:
    """Run with autograd, also of views that change in place, inside an operator."""
    with torch.inference_mode(False):  # restores the excluded keys, and enables gradients
        torch._C._dispatch_tls_set_dispatch_key_excluded(
            torch._C.DispatchKey.ADInplaceOrView, False
        )
        yield


def _check_closure(name: str, value: Tensor, leaves: list[Tensor]) -> None:
    """Validate that a value has gradients to no other tensors than its arguments."""
    arguments, seen, nodes = {id(x) for x in leaves}, set(), [value.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable") and id(node.variable) not in arguments:
            raise RuntimeError(
                f"{name}: the factors use a tensor with a gradient that is no argument of the "
                "call, so that its gradient would be lost inside torch.compile and transforms of "
                "torch.func. Pass it as a keyword argument, or as a parameter of a layer."
            )
        nodes.extend(before for before, _ in node.next_functions)


# -------------------------------------------------------------------- tickets

# The operator returns tensors, but its derivatives need the evaluation. A ticket is a tensor of one
# number whose memory owns an evaluation, which lives as long as the tensor or a view of it. The
# number is always zero, so that operators are functions of their inputs; tickets are identified by
# address.


class _Owner(np.ndarray[Any, np.dtype[np.int64]]):
    """The memory of a ticket."""

    evaluation: Any


_OWNERS: dict[int, weakref.ref[_Owner]] = {}
"""The live owners, by address."""


def ticket_for(evaluation: object) -> Tensor:
    """Return a tensor that owns an evaluation."""
    owner = np.zeros(1, dtype=np.int64).view(_Owner)
    owner.evaluation = evaluation
    ticket = torch.from_numpy(owner)
    address = ticket.data_ptr()
    # not Python code, in which the error of a signal handler would be lost
    forget: Any = functools.partial(_OWNERS.pop, address)
    _OWNERS[address] = weakref.ref(owner, forget)
    return ticket


def evaluation_of(ticket: Tensor) -> Any:
    """Return the evaluation that a tensor owns; None if it is a copy of a ticket."""
    owner = _OWNERS.get(ticket.untyped_storage().data_ptr())
    return None if owner is None else getattr(owner(), "evaluation", None)
