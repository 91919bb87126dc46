"""Losses that compare maxima: SparseMAP, perceptron, and both with a margin."""

from __future__ import annotations

import abc
from typing import Any

import torch
from torch import Tensor

from lpsmap_core import Assignment, Solution, Variables
from lpsmap_core.api import FloatArray, check_search_options, checked_flag
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.losses.comparison import maxima_compared
from lpsmap_torch.losses.labels import Labels, labels_of, read_target
from lpsmap_torch.losses.structured import (
    Factors,
    StructuredLoss,
    checked_cost,
    checked_reduction,
    differentiable,
    reduced,
)
from lpsmap_torch.readable import is_compiled

__all__ = [
    "MarginSparseMAPLoss",
    "PerceptronLoss",
    "SparseMAPLoss",
    "StructuredHingeLoss",
    "sparsemap_loss",
]


SEARCH = "gap", "max_time", "max_nodes", "threads", "solver"
"""Options of an exact search for the best structures."""


class MaximumLoss(StructuredLoss):
    """A loss that compares two maxima over structures.

    Parameters
    ----------
    factors, reduction
        As for `StructuredLoss`.
    options
        Of the solver, such as ``max_iter``.
    """

    def __init__(self, factors: Factors, *, reduction: str = "mean", **options: Any) -> None:
        super().__init__(factors, reduction=reduction)
        self.options = options
        if not is_compiled():
            self._check_options()
        else:
            torch.compiler.disable(self._check_options)()  # type: ignore[no-untyped-call]

    def _check_options(self) -> None:
        """Refuse bad options now, not in the first step: a solve of an empty graph reads them."""
        self._solve(TorchFactorGraph())

    @abc.abstractmethod
    def _solve(self, graph: TorchFactorGraph) -> Solution | Assignment:
        """Find the maximum."""

    def _items_losses(self, u: Variables, labels: Labels) -> Tensor:
        graph: Any = u.graph
        return differentiable(
            graph, maxima_compared(graph, self._solve(graph), labels, self._solve)
        )


class MarginLoss(MaximumLoss):
    """A loss that adds what wrong variables cost to the scores that it compares.

    Parameters
    ----------
    factors, reduction, options
        As for `MaximumLoss`.
    cost
        Of a wrong variable.
    """

    def __init__(
        self, factors: Factors, *, cost: float = 1.0, reduction: str = "mean", **options: Any
    ) -> None:
        super().__init__(factors, reduction=reduction, **options)
        self.cost = checked_cost(type(self).__name__, cost)

    def _augmented(self, scores: Tensor, known: FloatArray) -> Tensor:
        """Return scores that pay for what is wrong and take from what is right.

        Their difference from those of y is that of the scores, and the Hamming cost.
        """
        costs = torch.from_numpy(known).to(dtype=scores.dtype, device=scores.device)
        return scores + (self.cost * (1.0 - 2.0 * costs)).nan_to_num(nan=0.0)

    def extra_repr(self) -> str:
        """Return what `repr` shows."""
        return f"{super().extra_repr()}, cost={self.cost:g}"


class SparseMAPLoss(MaximumLoss):
    r"""The SparseMAP loss (Niculae et al. 2018, section 4; Niculae & Martins 2020, Eq. 16).

    A Fenchel-Young loss (Blondel et al. 2020). With scores eta, structure y, and the maximum over
    all marginals mu and additionals nu that the factors allow::

        max  <eta, [mu, nu]> - 1/2 ||mu||^2   -   (<eta, [y, n_y]> - 1/2 ||y||^2)

    It is convex in the scores and never negative. It is zero exactly if y is the solution. Of one
    factor, or of factors that share no variables, y is that as soon as it scores better than every
    other structure by half the squared distance to it; where factors interact, it has to score so
    much better than all marginals that the relaxation allows. Its gradient is ``mu - y``,
    ``nu - n_y``.

    Where only a part of y is known, the second term is the maximum over what agrees with that part:
    what is not known does not count. This difference of two convex functions is never negative,
    either; its gradient is ``mu - mu_given``. It is the smallest loss that any completion has
    (Yu & Joachims 2009 for hinges; Stewart et al. 2023 for Fenchel-Young losses).

    Parameters
    ----------
    factors
        Called with the variables, and with the keyword arguments of the call; returns a factor or
        several. Every factor type is such a function: ``DepTree``.
    reduction
        What becomes of the items' losses: ``"mean"``, ``"sum"``, or ``"none"``.
    options
        As `TorchFactorGraph.solve` takes them, such as ``max_iter``.

    Examples
    --------
    >>> import torch
    >>> from lpsmap import DepTree
    >>> from lpsmap_torch.losses import SparseMAPLoss
    >>> loss = SparseMAPLoss(DepTree)
    >>> scores = torch.zeros(2, 3, 3, requires_grad=True)  # the diagonal is the root's
    >>> heads = torch.tensor([[-1, 0, 1], [1, -1, -100]])  # the second sentence has two words
    >>> loss(scores, heads, lengths=torch.tensor([3, 2])).backward()
    >>> scores.grad[1]
    tensor([[ 0.2500, -0.2500,  0.0000],
            [ 0.2500, -0.2500,  0.0000],
            [ 0.0000,  0.0000,  0.0000]])
    """

    def _solve(self, graph: TorchFactorGraph) -> Solution:
        return graph.solve(**self.options)


class MarginSparseMAPLoss(MarginLoss, SparseMAPLoss):
    """The SparseMAP loss with a margin (Niculae et al. 2018, section 4).

    As `SparseMAPLoss`, with the Hamming distance to y, `cost` for every known variable that is
    wrong, added to what is maximised. It is no less than half that of the solution's structures.

    Parameters
    ----------
    factors, reduction, options
        As for `SparseMAPLoss`.
    cost
        Of a wrong variable. A wrong head of a word is two wrong arcs.
    """


class PerceptronLoss(MaximumLoss):
    """The loss of the structured perceptron (Collins 2002).

    What the best structure scores more than y; the maximum is that of the relaxation LP-MAP, which
    is over structures where factors do not interact, and no less elsewhere. It is convex, never
    negative, and zero if and only if nothing that it is over scores better than y: where factors
    interact, it can be positive for the best structure, too. Its (sub)gradient is ``mu - y``. Where
    a part of y is known, y is the best that agrees with it (Fernandes & Brefeld 2011).

    Parameters
    ----------
    factors, reduction
        As for `SparseMAPLoss`.
    options
        As `TorchFactorGraph.solve_map` takes them; ``exact=True`` compares by the best structures
        themselves.
    """

    def _check_options(self) -> None:
        options = dict(self.options)
        if checked_flag("exact", options.pop("exact", False)):
            check_search_options(**{name: options[name] for name in SEARCH if name in options})
        TorchFactorGraph().solve_map(**options)  # a search would compile its kernels

    def _solve(self, graph: TorchFactorGraph) -> Solution | Assignment:
        found = graph.solve_map(**self.options)
        if isinstance(found, Assignment) and found.interrupted:  # nor is that a loss
            raise KeyboardInterrupt
        return found


class StructuredHingeLoss(MarginLoss, PerceptronLoss):
    """The hinge loss of structured support vector machines (Taskar et al. 2003).

    As `PerceptronLoss`, with the Hamming distance to y, `cost` for every known variable that is
    wrong, added to what is maximised (Tsochantaridis et al. 2004: margin rescaling). It is zero if
    and only if y scores better than all that the maximum is over by no less than its cost: every
    other structure, and where factors interact, mixtures that the relaxation allows besides.

    Parameters
    ----------
    factors, reduction, options
        As for `PerceptronLoss`.
    cost
        Of a wrong variable. A wrong head of a word is two wrong arcs.
    """


def sparsemap_loss(u: Variables, target: Any, *, reduction: str = "mean") -> Tensor:
    """Return the `SparseMAPLoss` of a graph that is solved already, such as a hidden layer's.

    Parameters
    ----------
    u
        Variables of a `TorchFactorGraph`, the batch first. Others are latent.
    target, reduction
        As for `SparseMAPLoss`.

    Raises
    ------
    TypeError
        If `u` are no variables of a `TorchFactorGraph`.
    RuntimeError
        If that was not solved since it last changed, or without the quadratic term.
    """
    checked_reduction("sparsemap_loss", reduction)
    if not isinstance(u, Variables) or not isinstance(u.graph, TorchFactorGraph):
        raise TypeError(
            f"sparsemap_loss: u is {u!r}; expected variables of a TorchFactorGraph that is solved."
        )
    graph = u.graph
    if not isinstance(graph.solution, Solution) or not graph.solution.solved.quadratic:
        raise RuntimeError(
            "sparsemap_loss: the graph has no solution of its latest scores; call graph.solve() "
            "first."
        )
    labels = labels_of(u, read_target(u, u.value, target))
    losses = maxima_compared(graph, graph.solution, labels, TorchFactorGraph.solve)
    return reduced(differentiable(graph, losses), reduction)
