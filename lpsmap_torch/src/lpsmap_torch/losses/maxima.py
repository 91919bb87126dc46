"""Losses that compare maxima: SparseMAP, perceptron, and both with a margin."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import FactorGraph, Solution, Variables
from lpsmap_core.api import (
    BoolArray,
    checked_flag,
    installed_decoder,
)
from lpsmap_dynamic import (
    Items,
    Labels,
    Point,
    all_variables,
    check_solve_options,
    compare_maxima,
    objective_difference,
)
from lpsmap_torch.built_graph import Factors
from lpsmap_torch.envelope import difference_with_slopes, values_with_slopes
from lpsmap_torch.estimators.estimator import SolvedEstimate
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.layers.layer import Layer
from lpsmap_torch.layers.layer_solution import LayerSolution
from lpsmap_torch.losses.margin import MarginLoss
from lpsmap_torch.losses.structured import (
    StructuredLoss,
    checked_reduction,
    labels_given,
    n_labelled_rows,
    read_target,
    reduced,
)
from lpsmap_torch.ranking import ranks_of
from lpsmap_torch.temperature import Temperature, TemperatureMixin
from lpsmap_torch.tensors import is_compiled

SEARCH = "gap", "max_time", "max_nodes", "threads", "solver"
"""Options of an exact search."""

SEARCH_OF_TWO = "gap", "max_time", "max_nodes", "threads"
"""Options of a search for the two best structures."""


class MaximumLoss(StructuredLoss):
    """A loss that compares two maxima over structures, found with the options of a solver."""

    verb: ClassVar[str]
    """The method of graphs that finds the maximum."""

    def __init__(
        self, factors: Factors | Layer, *, reduction: str = "mean", **options: Any
    ) -> None:
        super().__init__(factors, reduction=reduction)
        self.options = options
        check: Any = self._check_options
        if is_compiled():
            check = torch.compiler.disable(check)  # type: ignore[no-untyped-call]
        check()

    def _check_options(self) -> None:
        """Validate names and values, as a solve would, except for starts."""
        known = inspect.signature(getattr(FactorGraph, self.verb)).parameters
        unknown = {name: value for name, value in self.options.items() if name not in known}
        self._refuse(unknown, f"options of TorchFactorGraph.{self.verb}, such as max_iter")
        check_solve_options(self.options)

    @abc.abstractmethod
    def _solve(self, graph: TorchFactorGraph) -> Solution | Any:
        """Find the maximum."""

    def _items_losses(self, u: Variables, labels: Labels) -> Tensor:
        graph: Any = u.graph
        return _losses(graph, self._solve(graph), labels, self._solve)

    def _estimate(self, graph: TorchFactorGraph) -> SolvedEstimate:
        result = self._solve(graph)
        return SolvedEstimate(graph._values, graph._nu, result)


class SparseMAPLoss(TemperatureMixin, MaximumLoss):
    r"""The SparseMAP loss (Niculae et al. 2018, section 4; Niculae & Martins 2020, Eq. 16).

    This is a Fenchel-Young loss (Blondel et al. 2020). With scores eta, structure y, and the
    maximum over all marginals mu and additionals nu that the factors allow, it is::

        max  <eta, [mu, nu]> - 1/2 ||mu||^2   -   (<eta, [y, n_y]> - 1/2 ||y||^2)

    It is convex in the scores and nonnegative. It is zero if and only if y is the solution. For one
    factor, or factors without shared variables, this holds as soon as y scores better than every
    other structure by half the squared distance to it; if factors interact, y must score better by
    this margin than all marginals that the relaxation allows. Its gradient is ``mu - y``, ``nu -
    n_y``.

    If only a part of y is labelled, the second term is the maximum over all marginals that agree
    with it. This difference of two convex functions is nonnegative, too; its gradient is ``mu -
    mu_given``. It is the minimum of the loss over all completions of y (Yu & Joachims 2009 for
    hinges; Stewart et al. 2023 for Fenchel-Young losses).

    Parameters
    ----------
    factors
        Called with the variables, and with the keyword arguments of the call; returns a factor or
        several. Every factor type is such a function: ``DepTree``. Or a layer, such as
        ``LatentTree(budget=2)``, whose factors, parameters, lengths and masks then apply.
    temperature
        The strength of the regularisation: the weight T of ``T/2 ||mu||^2`` instead of ``1/2
        ||mu||^2``. The loss is T times that of scores divided by T, and tends to `PerceptronLoss`
        as T tends to 0. A positive number, or a tensor or parameter of one element, with a
        gradient; also an attribute.
    reduction
        Reduction of the items' losses: ``"mean"``, ``"sum"``, ``"none"``, or ``"token_mean"``,
        their sum divided by the number of rows of the last axis with a label.
    options
        Options of `TorchFactorGraph.solve`, such as ``max_iter``.

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

    verb = "solve"

    def __init__(
        self,
        factors: Factors | Layer,
        *,
        temperature: Temperature = 1.0,
        reduction: str = "mean",
        **options: Any,
    ) -> None:
        super().__init__(factors, reduction=reduction, **options)
        self.temperature = temperature

    def _solve(self, graph: TorchFactorGraph) -> Solution:
        return graph.solve(temperature=self.temperature, **self.options)


class MarginSparseMAPLoss(MarginLoss, SparseMAPLoss):
    """The SparseMAP loss with a margin (Niculae et al. 2018, section 4).

    Like `SparseMAPLoss`, with the cost of mistakes, a sum over the wrong labelled variables, added
    to the objective. With the cost 1, it is the Hamming distance to y, and the loss is at least
    half that of the structures of the solution.

    Parameters
    ----------
    factors, temperature, reduction, options
        As in `SparseMAPLoss`.
    cost
        The cost of a wrong variable: a number; a tensor that broadcasts to the scores; a function
        of the labels, a tensor like the scores with NaN for unlabelled variables, that returns the
        cost of each variable if it is wrong; ``"hamming"`` for 1; or ``"positions"`` for 1 if the
        variable is on and 0 if it is off, so that a wrong head of a word costs 1 instead of 2.
    """

    def _check_zero_one(self) -> None:
        raise ValueError(
            "MarginSparseMAPLoss: cost is 'zero-one', which marginals do not have; expected a cost "
            "of wrong variables. Use StructuredHingeLoss(..., exact=True) or MarginCRFLoss."
        )


class PerceptronLoss(MaximumLoss):
    """The loss of the structured perceptron (Collins 2002).

    The loss is the maximum score minus the score of y. The maximum is that of the relaxation
    LP-MAP: it equals the maximum over structures if factors do not interact, and is an upper bound
    otherwise. The loss is convex, nonnegative, and zero if and only if no point of the relaxation
    scores better than y: if factors interact, it can be positive even if y is the best structure.
    Its (sub)gradient is ``mu - y``. If only a part of y is labelled, y is replaced by the best
    completion (Fernandes & Brefeld 2011).

    Parameters
    ----------
    factors, reduction
        As in `SparseMAPLoss`.
    options
        Options of `TorchFactorGraph.solve_map`; with ``exact=True`` the maximum is over structures.
    """

    verb = "solve_map"

    def _check_options(self) -> None:
        if "temperature" in self.options:
            raise TypeError(
                f"{type(self).__name__}: temperature: the loss has no quadratic term whose weight "
                "it could be. Multiply the scores by a constant, or use SparseMAPLoss or "
                "MarginSparseMAPLoss."
            )
        super()._check_options()
        if checked_flag("exact", self.options.get("exact", False)):
            searches = {name: x for name, x in self.options.items() if name in SEARCH}
            installed_decoder("exact search").check_options(**searches)

    def _solve(self, graph: TorchFactorGraph) -> Solution | Any:
        result = graph.solve_map(**self.options)
        if not isinstance(result, Solution) and result.interrupted:
            raise KeyboardInterrupt  # an interrupted search has no loss
        return result


class StructuredHingeLoss(MarginLoss, PerceptronLoss):
    """The hinge loss of structured support vector machines (Taskar et al. 2003).

    Like `PerceptronLoss`, with the cost of mistakes added to the objective (margin rescaling,
    Tsochantaridis et al. 2004). It is zero if and only if y scores better than every other point of
    the relaxation by at least its cost; if factors interact, the relaxation contains more than
    structures.

    Parameters
    ----------
    factors, reduction, options
        As in `PerceptronLoss`.
    cost
        The cost of a wrong variable, as in `MarginSparseMAPLoss`; with the cost 1, the Hamming
        distance to y is added. Or ``"zero-one"``: every structure other than y costs 1. This is no
        sum over variables, and takes the two best structures: it needs ``exact=True`` and a
        complete target.
    """

    def _check_zero_one(self) -> None:
        if not self.options.get("exact"):
            raise ValueError(
                "StructuredHingeLoss: cost is 'zero-one', which compares whole structures; "
                "expected exact=True, or a cost of wrong variables."
            )
        unknown = sorted(set(self.options) - {"exact", *SEARCH_OF_TWO})
        if unknown:
            raise TypeError(
                f"StructuredHingeLoss: cost is 'zero-one', and the search for the two best "
                f"structures takes no {unknown[0]}; expected exact=True and options among "
                f"{', '.join(SEARCH_OF_TWO)}."
            )

    def _items_losses(self, u: Variables, labels: Labels) -> Tensor:
        if not self._is_zero_one:
            return super()._items_losses(u, labels)
        graph: Any = u.graph
        search = {name: x for name, x in self.options.items() if name != "exact"}
        return zero_one_losses(graph, labels, search)


def sparsemap_loss(
    u: Variables | LayerSolution,
    target: Any,
    *,
    target_additionals: Any = None,
    root: int | str = -1,
    reduction: str = "mean",
) -> Tensor:
    """Return the `SparseMAPLoss` of a graph that is already solved, such as that of a hidden layer.

    Its temperature is that of the solve.

    Parameters
    ----------
    u
        Variables of a `TorchFactorGraph`, the batch first. Others are latent. Or the solution of a
        layer that was called with ``return_solution=True``, whose instances are the items.
    target, target_additionals, root, reduction
        As in `SparseMAPLoss`.

    Raises
    ------
    TypeError
        If `u` is neither.
    RuntimeError
        If the graph was not solved since its last change, or solved without the quadratic term.
    """
    checked_reduction("sparsemap_loss", reduction)
    if isinstance(u, LayerSolution):
        variables, batch = u.built.variables, u.built.batch
        solution = getattr(u.estimate, "result", None)  # other estimators solve as well
        given = target, target_additionals, root, len(batch)
        losses, n_rows = _solved_losses(variables, solution, *given)
        losses = (losses.reshape(batch) * u.built.temperature).to(u.objective.dtype)
        return reduced(losses, reduction, n_rows)
    if not isinstance(u, Variables) or not isinstance(u.graph, TorchFactorGraph):
        raise TypeError(
            f"sparsemap_loss: u is {u!r}; expected variables of a solved TorchFactorGraph, or the "
            "solution of a layer."
        )
    losses, n_rows = _solved_losses(u, u.graph.solution, target, target_additionals, root, 1)
    return reduced(losses, reduction, n_rows)


def _solved_losses(
    u: Variables, solution: Any, target: Any, target_additionals: Any, root: int | str, axes: int
) -> tuple[Tensor, int]:
    """Return the losses of the items of a solved graph, and the number of labelled rows."""
    graph: Any = u.graph
    if not isinstance(solution, Solution) or not solution.solved.quadratic:
        raise RuntimeError(
            "sparsemap_loss: the graph has no solution for its current scores; call graph.solve() "
            'first, or a layer with the estimator "sparsemap".'
        )
    known = read_target(u, u.value, target, root)
    labels = labels_given(u, known, target_additionals, axes)

    def solve(inner: TorchFactorGraph) -> Solution:
        return inner.solve(temperature=graph._temperature)

    return _losses(graph, solution, labels, solve), n_labelled_rows(u, known)


def _losses(
    graph: TorchFactorGraph,
    best: Solution | Any,
    labels: Labels,
    solve: Callable[[TorchFactorGraph], Solution | Any],
) -> Tensor:
    """Return the losses of the items of a solved graph; see `compare_maxima`."""
    compared = compare_maxima(graph, best, labels, solve)
    given, items, conditioned = compared.given, compared.items, compared.conditioned
    everything = all_variables(graph)
    mu, nu = graph.value_of(everything), [graph.additionals_of(x) for x in graph.factors]
    if conditioned is None:
        mu_given = torch.from_numpy(given.mu).to(mu)
        nu_given = [
            torch.from_numpy(x).to(y).reshape(y.shape) for x, y in zip(given.nu, nu, strict=True)
        ]
    else:
        inner = conditioned.graph
        mu_given = inner.value_of(conditioned.of(everything))
        nu_given = [inner.additionals_of(conditioned.of(factor)) for factor in graph.factors]
    return difference_with_slopes(graph, compared.values, (mu, nu), (mu_given, nu_given), items)


def zero_one_losses(graph: TorchFactorGraph, labels: Labels, search: dict[str, Any]) -> Tensor:
    """Return ``max(0, 1 + max score(s) - score(y))`` over structures s other than the labels y.

    If y is not the best structure, the maximum is the best one. Otherwise it is the second best,
    which differs from y in the component of the item where this costs least. The labels must be
    complete; `search` has options of `FactorGraph.k_best`.
    """
    ranked = graph.k_best(2, by_component=True, **search)
    best, second = ranked[0], ranked[-1]
    if best.interrupted:  # an interrupted search has no loss
        raise KeyboardInterrupt
    layout, items = best.layout, Items(best.layout, labels)
    inside = items.of_variable >= 0
    if np.isnan(labels.known[inside]).any():
        raise ValueError(
            "target: the cost 'zero-one' compares whole structures; expected 0 or 1 for every "
            "variable of a labelled item. Use a cost of wrong variables for partial labels."
        )
    items.check_not_forbidden(best.scores)
    of_labels = Point(*items.point(best.factors, best.additional_scores))
    known, nu = of_labels.mu, of_labels.nu
    wrong = np.zeros(layout.n_components, dtype=bool)
    wrong[layout.component[inside & (best.values != known)]] = True
    scores = np.array([np.where(x.found, x.score, -np.inf) for x in (best, second)[: len(ranked)]])
    is_best = items.sums(items.of_component, wrong.astype(np.float64)) == 0.0  # of the labels
    changed = (ranks_of(scores, items)[-1] == 1) & np.append(is_best, False)[items.of_component]
    hardest = _select(best, second, changed)
    others = items.sums(items.of_component, (wrong | changed).astype(np.float64)) > 0.0
    margin = objective_difference(best, hardest, of_labels, items) + 1.0
    losses = np.where(others, np.maximum(margin, 0.0), 0.0)
    counted = np.append(losses != 0.0, False)  # item -1
    like = graph._scores[0]
    slopes = np.where(counted[items.of_variable], hardest.mu - known, 0.0)
    differences = [
        np.where(counted[items.of_factors(factor)][:, None], a - b, 0.0)
        for factor, a, b in zip(best.factors, hardest.nu, nu, strict=True)
    ]
    of_variables, *of_additionals = (torch.from_numpy(x).to(like) for x in (slopes, *differences))
    return values_with_slopes(graph, losses, of_variables, of_additionals, items)


def _select(best: Any, second: Any, changed: BoolArray) -> Point:
    """Return the best structures, and the second best ones of changed components."""
    of_variable = np.append(changed, False)[best.layout.component]
    nu = [
        np.where(Items.first_of_factors(factor, of_variable.astype(np.int64))[:, None] == 1, b, a)
        for factor, a, b in zip(best.factors, best.additionals, second.additionals, strict=True)
    ]
    return Point(np.where(of_variable, second.values, best.values), nu)
