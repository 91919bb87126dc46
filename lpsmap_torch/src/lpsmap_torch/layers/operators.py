"""Solves as custom operators of PyTorch, for autograd, torch.func and torch.compile.

There are three operators: the marginals as a function of scores and parameters, and the products of
their Jacobian with vectors from either side. The Jacobian depends only on faces, so the derivatives
of these products are again such products, which gives second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lpsmap_torch.layers.solved_layers import SolvedLayer, solved_on_device, solved_on_host
from lpsmap_torch.layers.solvers import solver_named
from lpsmap_torch.layers.tickets import solution_of, ticket_for
from lpsmap_torch.tensors import is_eager

__all__ = ["marginals"]


def marginals(
    scores: Tensor,
    parameters: Tensor | None,
    lengths: Tensor | None,
    mask: Tensor | None,
    name: str,
) -> Tensor:
    """Return the marginals of a layer, in the shape, dtype and device of the scores.

    The solver is looked up by `name`: the specification of the layer, if it has one.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        _check_not_onnx()
    given = scores, parameters, lengths, mask, name
    if is_eager(scores):
        eager: Tensor = _EagerSolve.apply(*given)  # type: ignore[no-untyped-call]
        return eager
    found: Tensor = _call(_solve, _Solve, *given)[0]
    return found


# -------------------------------------------------------------------- the operators

GIVEN = "Tensor scores, Tensor? parameters, Tensor? lengths, Tensor? mask, str layer"


@torch.library.custom_op("lpsmap::solve", mutates_args=(), schema=f"({GIVEN}) -> (Tensor, Tensor)")
def _solve(
    scores: Tensor,
    parameters: Tensor | None,
    lengths: Tensor | None,
    mask: Tensor | None,
    layer: str,
) -> tuple[Tensor, Tensor]:
    solved = _solved((scores, parameters, lengths, mask, layer))
    return solved.marginals(), ticket_for(solved)


@torch.library.custom_op(
    "lpsmap::pull_back",
    mutates_args=(),
    schema=f"(Tensor gradient, Tensor ticket, {GIVEN}) -> (Tensor, Tensor)",
)
def _pull_back(gradient: Tensor, ticket: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    return _solution(ticket, given).pull_back(gradient)


@torch.library.custom_op(
    "lpsmap::push_forward",
    mutates_args=(),
    schema=f"(Tensor d_scores, Tensor? d_parameters, Tensor ticket, {GIVEN}) -> Tensor",
)
def _push_forward(
    d_scores: Tensor, d_parameters: Tensor | None, ticket: Tensor, *given: Any
) -> Tensor:
    return _solution(ticket, given).push_forward(d_scores, d_parameters)


def _solved(given: Any) -> SolvedLayer:
    """Return the solution, on the device of the scores if an engine on tensors serves the layer."""
    *tensors, name = given
    solver = solver_named(name)
    return solved_on_device(solver, *tensors) or solved_on_host(solver, *tensors)


def _solution(ticket: Tensor, given: Any) -> SolvedLayer:
    """Return the solution that a ticket owns; for a copy of a ticket, solve again."""
    owned: SolvedLayer | None = solution_of(ticket)
    return _solved(given) if owned is None else owned


def _check_not_onnx() -> None:
    """Raise an error in an export to ONNX."""
    if torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            "lpsmap::solve: torch.onnx.export cannot save a layer of lpsmap_torch, since ONNX has "
            "no operator for its solve. Export the parts of the model before and after the layer "
            "separately, or save the whole model with torch.export."
        )


@_solve.register_fake
def _(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    _check_not_onnx()
    return scores.new_empty(scores.shape), torch.empty(1, dtype=torch.int64, device="cpu")


@_pull_back.register_fake
def _(gradient: Tensor, ticket: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    scores, parameters = given[:2]
    like = scores.new_empty(0) if parameters is None else parameters.new_empty(parameters.shape)
    return scores.new_empty(scores.shape), like


@_push_forward.register_fake
def _(d_scores: Tensor, d_parameters: Tensor | None, ticket: Tensor, *given: Any) -> Tensor:
    scores: Tensor = given[0]
    return scores.new_empty(scores.shape)


# -------------------------------------------------------------------- derivatives


class _EagerSolve(torch.autograd.Function):
    """The marginals of plain tensors, in half the time that a small solve takes as an operator."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, name = given
        solved = solved_on_host(solver_named(name), *tensors)
        # copies of the numbers, which may change in place, as after a softmax
        scores, parameters = (None if x is None else x.clone() for x in tensors[:2])
        _save(ctx, (ticket_for(solved), scores, parameters, *tensors[2:], name))
        return solved.marginals()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # the gradient may have a gradient
            return *_pulled_back(ctx, gradient), None, None, None
        ticket, *given = _saved(ctx)
        d_scores, d_parameters = _solution(ticket, given).pull_back(gradient)
        return d_scores, None if given[1] is None else d_parameters, None, None, None


class _Solve(torch.autograd.Function):
    """The marginals and the ticket of their solution."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*given: Any) -> Any:
        return _solve(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _save(ctx, (output[1], *inputs))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        return *_pulled_back(ctx, gradient), None, None, None

    @staticmethod
    def jvp(ctx: Any, d_scores: Tensor | None, d_parameters: Tensor | None, *_: Any) -> Any:
        return _pushed_forward(ctx, d_scores, d_parameters), None


class _PullBack(torch.autograd.Function):
    """The vector-Jacobian product: gradients with respect to scores and parameters."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*given: Any) -> Any:
        return _pull_back(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, inputs[1:])

    @staticmethod
    def backward(ctx: Any, d_scores: Tensor, d_parameters: Tensor) -> tuple[Tensor | None, ...]:
        return _pushed_forward(ctx, d_scores, d_parameters), *(None,) * 6

    @staticmethod
    def jvp(ctx: Any, gradient: Tensor | None, *_: Any) -> Any:
        ticket, *given = _saved(ctx)
        gradient = torch.zeros_like(given[0]) if gradient is None else gradient
        return _call(_pull_back, _PullBack, gradient, ticket, *given)


class _PushForward(torch.autograd.Function):
    """The Jacobian-vector product: the tangent of the marginals."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*given: Any) -> Any:
        return _push_forward(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, inputs[2:])
        ctx.along_parameters = inputs[1] is not None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        d_scores, d_parameters = _pulled_back(ctx, gradient)
        return d_scores, d_parameters if ctx.along_parameters else None, *(None,) * 6

    @staticmethod
    def jvp(ctx: Any, d_scores: Tensor | None, d_parameters: Tensor | None, *_: Any) -> Any:
        return _pushed_forward(ctx, d_scores, d_parameters)


def _pulled_back(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return gradients with respect to the scores, and to the parameters if any."""
    ticket, *given = _saved(ctx)
    d_scores, d_parameters = _call(_pull_back, _PullBack, gradient, ticket, *given)
    return d_scores, None if given[1] is None else d_parameters


def _pushed_forward(ctx: Any, d_scores: Tensor | None, d_parameters: Tensor | None) -> Tensor:
    """Return the tangent of the marginals, given tangents of scores and any parameters."""
    ticket, *given = _saved(ctx)
    d_scores = torch.zeros_like(given[0]) if d_scores is None else d_scores
    along = None if given[1] is None else d_parameters
    found: Tensor = _call(_push_forward, _PushForward, d_scores, along, ticket, *given)
    return found


def _call(operator: Any, function: Any, *given: Any) -> Any:
    """Call an operator directly when compiling, otherwise through its autograd function.

    Only autograd functions support forward mode, and the compiler cannot trace that.
    """
    if torch.compiler.is_compiling():
        return operator(*given)
    return function.apply(*given)


def _save(ctx: Any, given: Any) -> None:
    """Save tensors, and the name of the layer that follows them."""
    *tensors, ctx.layer = given
    ctx.save_for_backward(*tensors)
    if hasattr(ctx, "save_for_forward"):
        ctx.save_for_forward(*tensors)


def _saved(ctx: Any) -> tuple[Any, ...]:
    return *ctx.saved_tensors, ctx.layer


for _operator, _function in (
    (_solve, _Solve),
    (_pull_back, _PullBack),
    (_push_forward, _PushForward),
):
    _operator.register_autograd(_function.backward, setup_context=_function.setup_context)


# -------------------------------------------------------------------- vmap


def _batched(operator: Any, n_vectors: int) -> Callable[..., Any]:
    """Return the vmap rule of an operator.

    If the scores or the other inputs of the solve have the mapped axis, it is an additional batch
    axis of one graph. If only the vectors have it, the operator is called for each of them.
    """
    ticket = n_vectors - 1

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> Any:
        moved = [x if d is None else x.movedim(d, 0) for x, d in zip(given, in_dims, strict=True)]
        if any(d is not None for d in in_dims[n_vectors:]):
            for i, (x, d) in enumerate(zip(given, in_dims, strict=True)):
                if isinstance(x, Tensor) and d is None and i != ticket:
                    moved[i] = x.expand(info.batch_size, *x.shape)
            found = operator(*moved)
            if n_vectors:
                return found, (0, 0) if isinstance(found, tuple) else 0
            return found, (0, None)  # one ticket for the whole batch
        each = [
            operator(*(x if d is None else x[k] for x, d in zip(moved, in_dims, strict=True)))
            for k in range(info.batch_size)
        ]
        if isinstance(each[0], tuple):
            return tuple(map(torch.stack, zip(*each, strict=True))), (0, 0)
        return torch.stack(each), 0

    return rule


for _operator, _n_vectors in ((_solve, 0), (_pull_back, 2), (_push_forward, 3)):
    torch.library.register_vmap(_operator, _batched(_operator, _n_vectors))
