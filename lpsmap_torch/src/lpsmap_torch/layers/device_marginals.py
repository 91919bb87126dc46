"""Marginals of layers that are solved on the device of their scores."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lpsmap_core.api import checked_options, report_unsolved
from lpsmap_torch.layers.graph_tensors import arrays_of, placed, shown_marginals, tied_scores
from lpsmap_torch.layers.layer_graph import LayerGraph
from lpsmap_torch.layers.solvers import Solver
from lpsmap_torch.tensor.choice import tensor_engine
from lpsmap_torch.tensor.graphs import solve_on_device

__all__ = ["marginals_on_device"]


def marginals_on_device(
    solver: Solver,
    scores: Tensor,
    weights: Tensor | None,
    lengths: Tensor | None,
    mask: Tensor | None,
) -> Tensor | None:
    """Return the marginals as a function of scores and parameters, or None.

    Parameters
    ----------
    solver
        The solver of the layer.
    scores, weights, lengths, mask
        Scores, parameters of every instance, lengths and mask, validated.

    Returns
    -------
    Tensor or None
        None if core's engine solves the layer.
    """
    ends, kept = arrays_of(lengths, mask)
    table = (1, 0) if weights is None else (weights.shape[:-1].numel(), weights.shape[-1])
    with solver.layout(tuple(scores.shape), ends, kept, table) as (layout, solve_options):
        name = solve_options["engine"]
        options = checked_options(**{k: v for k, v in solve_options.items() if k != "engine"})
        given = [scores] if weights is None else [scores, weights]
        engine = tensor_engine(name, given, layout.laid_out.part, options)
        additionals = _additionals(layout, weights)
        factors = layout.declared.factors
        known = [
            f.n_additionals == 0 or x is not None for f, x in zip(factors, additionals, strict=True)
        ]
        if engine is None or not all(known):
            return None
        flat = placed(layout, scores).reshape(-1)
        solution = solve_on_device(layout.laid_out, factors, flat, additionals, options, engine)
    if solution.has_failed():
        report_unsolved(solution, lambda: [layout.variables.shape], False)
    return shown_marginals(layout, solution)


def _additionals(layout: LayerGraph, weights: Tensor | None) -> Sequence[Tensor | None]:
    """Return the scores of the additionals of every declaration."""
    tied = {id(x.factor): x for x in layout.declared.tied}
    return [
        None if weights is None or id(f) not in tied else tied_scores(layout, tied[id(f)], weights)
        for f in layout.declared.factors
    ]
