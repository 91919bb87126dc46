"""Compatibility with the earlier library: its graph of single variables, by its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

import lpsmap
from lpsmap_core import FactorGraph, Solution, Status, Variables
from lpsmap_core.api import kind_of, slot_values

__all__ = ["PBinaryVariable", "PFactorGraph", "PMultiVariable"]

LOGIC = {
    "XOR": "Xor",
    "OR": "Or",
    "ATMOSTONE": "AtMostOne",
    "IMPLY": "Imply",
    "XOROUT": "XorOut",
    "OROUT": "OrOut",
    "ANDOUT": "AndOut",
}
"""Factor types by the names in `create_factor_logic`."""

INTEGRAL, FRACTIONAL, INFEASIBLE, UNSOLVED = range(4)
"""Statuses of the earlier library."""

Answer = tuple[float, list[float], list[float], int]
"""The value, the marginals of variables and of additionals, and the status."""


class PBinaryVariable:
    """A binary variable of a `PFactorGraph`.

    Parameters
    ----------
    graph, view
        The graph, and the variable in it.
    """

    def __init__(self, graph: FactorGraph, view: Variables) -> None:
        self.graph, self.view = graph, view

    def set_log_potential(self, score: float) -> None:
        """Set the variable's score."""
        self.graph.rescore(self.view, score)

    def get_log_potential(self) -> float:
        """Return the variable's score."""
        return float(self.graph.flat_scores()[self.view.index].item())

    def get_degree(self) -> int:
        """Return the number of factors of the variable."""
        links = (slot_values(factor, factor.variables.index) for factor in self.graph.factors)
        return int(sum((index == self.view.index).sum() for index in links))


class PMultiVariable:
    """A multi-state variable: binary variables, one of which a factor switches on.

    Parameters
    ----------
    graph, view
        The graph, and the binary variables in it.
    """

    def __init__(self, graph: FactorGraph, view: Variables) -> None:
        self.graph, self.view = graph, view
        self.in_table = False

    def __len__(self) -> int:
        return len(self.view)

    def get_state(self, state: int) -> PBinaryVariable:
        """Return the binary variable of a state."""
        return PState(self, state)

    def set_log_potential(self, state: int, score: float) -> None:
        """Set the score of a state."""
        scores = self.graph.flat_scores()[self.view.index]
        scores[state] = score
        self.set_log_potentials(scores)

    def set_log_potentials(self, scores: npt.ArrayLike) -> None:
        """Set the scores of all states."""
        self.graph.rescore(self.view, np.asarray(scores, dtype=float))

    def get_log_potential(self, state: int) -> float:
        """Return the score of a state."""
        return self.get_state(state).get_log_potential()

    def __getitem__(self, state: int) -> float:
        return self.get_log_potential(state)

    def __setitem__(self, state: int, score: float) -> None:
        self.set_log_potential(state, score)


class PState(PBinaryVariable):
    """The binary variable of a state; a graph takes scores for all states at once."""

    def __init__(self, variable: PMultiVariable, state: int) -> None:
        super().__init__(variable.graph, variable.view[state])
        self.variable, self.state = variable, state

    def set_log_potential(self, score: float) -> None:
        """Set the state's score."""
        self.variable.set_log_potential(self.state, score)


class PFactorGraph(FactorGraph):
    """A factor graph with the calls of the earlier library and of AD3, one variable at a time.

    For gradual migration: it is a `FactorGraph` with all its methods. New code should declare many
    factors at once, such as `Xor(u)` of a matrix, which is much faster.

    Examples
    --------
    >>> from lpsmap import PFactorGraph
    >>> graph = PFactorGraph()
    >>> variables = [graph.create_binary_variable() for _ in range(3)]
    >>> for variable, score in zip(variables, [0.2, 0.9, 0.5]):
    ...     variable.set_log_potential(score)
    >>> graph.create_factor_logic("XOR", variables)
    Xor(over variables of shape (3,))
    >>> value, posteriors, additionals, status = graph.solve_lp_map_ad3()
    >>> posteriors
    [0.0, 1.0, 0.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self._options: dict[str, Any] = {}
        self._multi: list[PMultiVariable] = []

    def declare_factor(self, factor: Any, *_: Any, **__: Any) -> NoReturn:
        """Refuse a factor object, which the earlier library binds to variables here.

        Raises
        ------
        TypeError
            Always; the message has the replacement.
        """
        raise TypeError(
            f"PFactorGraph.declare_factor: got {kind_of(factor)}; expected a factor that has its "
            "variables. Use graph.add(DepTree(u)), with u = graph.variable_from(scores)."
        )

    def create_binary_variable(self) -> PBinaryVariable:
        """Create a binary variable with score 0."""
        return PBinaryVariable(self, self.variable())

    def create_multi_variable(self, num_states: int) -> PMultiVariable:
        """Create a multi-state variable with scores 0.

        Parameters
        ----------
        num_states
            The number of states.
        """
        self._multi.append(PMultiVariable(self, self.variable(num_states)))
        return self._multi[-1]

    def create_factor_logic(
        self,
        factor_type: str,
        p_variables: Sequence[PBinaryVariable],
        negated: Sequence[bool] | None = None,
    ) -> Any:
        """Add a logic factor; its output, if any, is the last variable.

        Parameters
        ----------
        factor_type
            One of XOR, OR, ATMOSTONE, IMPLY, XOROUT, OROUT and ANDOUT.
        p_variables
            The variables.
        negated
            Which of them are negated; None for none.

        Raises
        ------
        ValueError
            If the type is unknown.
        """
        if factor_type not in LOGIC:
            raise ValueError(
                f"create_factor_logic: factor_type is {factor_type!r}; expected one of "
                f"{', '.join(LOGIC)}."
            )
        return self.add(getattr(lpsmap, LOGIC[factor_type])(_views(p_variables, negated)))

    def create_factor_budget(
        self,
        p_variables: Sequence[PBinaryVariable],
        budget: int,
        force_budget: bool = False,
        *,
        negated: Sequence[bool] | None = None,
    ) -> Any:
        """Add a `Budget`. `negated` is keyword-only, since its position has changed.

        Parameters
        ----------
        p_variables
            The variables.
        budget, force_budget
            As in `Budget`.
        negated
            Which variables are negated; keyword-only, since its position has changed.
        """
        return self.add(lpsmap.Budget(_views(p_variables, negated), budget, force_budget))

    def create_factor_knapsack(
        self,
        p_variables: Sequence[PBinaryVariable],
        costs: Sequence[float],
        budget: float,
        negated: Sequence[bool] | None = None,
    ) -> Any:
        """Add a `Knapsack`.

        Parameters
        ----------
        p_variables
            The variables.
        costs, budget
            As in `Knapsack`.
        negated
            Which of them are negated; None for none.
        """
        return self.add(lpsmap.Knapsack(_views(p_variables, negated), costs, budget))

    def create_factor_pair(
        self, p_variables: Sequence[PBinaryVariable], edge_log_potential: float
    ) -> Any:
        """Add a `Pair`.

        Parameters
        ----------
        p_variables
            Two variables.
        edge_log_potential
            The score of both variables being on.
        """
        first, second = _views(p_variables, None)
        return self.add(lpsmap.Pair(first, second, edge_log_potential))

    def create_factor_dense(
        self,
        p_multi_variables: Sequence[PMultiVariable],
        additional_log_potentials: Sequence[float],
    ) -> Any:
        """Add a `Dense` table, its entries in lexicographic order.

        Parameters
        ----------
        p_multi_variables
            The variables.
        additional_log_potentials
            The entries in lexicographic order.
        """
        shape = [len(variable) for variable in p_multi_variables]
        table = np.reshape(np.asarray(additional_log_potentials, dtype=float), shape)
        for variable in p_multi_variables:
            variable.in_table = True
        return self.add(lpsmap.Dense([variable.view for variable in p_multi_variables], table))

    def fix_multi_variables_without_factors(self) -> None:
        """Require one state of each variable that is in no table."""
        for variable in self._multi:
            if not variable.in_table:
                self.add(lpsmap.Xor(variable.view))
                variable.in_table = True

    def set_eta_ad3(self, eta: float) -> None:
        """Set an option of subsequent solves.

        Parameters
        ----------
        eta
            `step_size` of `FactorGraph.solve`.
        """
        self._options["step_size"] = eta

    def adapt_eta_ad3(self, adapt: bool) -> None:
        """Set an option of subsequent solves.

        Parameters
        ----------
        adapt
            `adapt` of `FactorGraph.solve`.
        """
        self._options["adapt"] = adapt

    def set_max_iterations_ad3(self, max_iterations: int) -> None:
        """Set an option of subsequent solves.

        Parameters
        ----------
        max_iterations
            `max_iter` of `FactorGraph.solve`.
        """
        self._options["max_iter"] = max_iterations

    def set_residual_threshold_ad3(self, threshold: float) -> None:
        """Set an option of subsequent solves.

        Parameters
        ----------
        threshold
            `tol` of `FactorGraph.solve`.
        """
        self._options["tol"] = threshold

    def set_verbosity(self, verbosity: int) -> None:
        """Set an option of subsequent solves.

        Parameters
        ----------
        verbosity
            `verbose` of `FactorGraph.solve`.
        """
        self._options["verbose"] = verbosity

    def solve_lp_map_ad3(self) -> Answer:
        """Solve the relaxation; see `FactorGraph.solve_map`."""
        return self._answer(self.solve_map(**self._options))

    def solve_exact_map_ad3(self) -> Answer:
        """Find the best assignment; see `FactorGraph.solve_map`."""
        return self._answer(self.solve_map(exact=True, **self._options))

    def solve_qp_ad3(self) -> Answer:
        """Solve LP-SparseMAP; see `FactorGraph.solve`."""
        solution = self.solve(**self._options)
        value, *others = self._answer(solution)
        return value - 0.5 * float(solution.values @ solution.values), *others  # type: ignore[return-value]

    def _answer(self, found: Solution | Any) -> Answer:
        scores, additionals = self._flat()
        pairs = [(scores, found.values)]
        pairs += [
            (a.reshape(-1), x.reshape(-1))
            for a, x in zip(additionals, found.additionals, strict=True)
        ]
        value = sum(float(a[x != 0.0] @ x[x != 0.0]) for a, x in pairs)
        used = [x.tolist() for _, x in pairs[1:]]
        return value, found.values.tolist(), [p for each in used for p in each], _status(found)


def _views(variables: Sequence[PBinaryVariable], negated: Sequence[bool] | None) -> list[Variables]:
    """Return the views of variables, negated where requested.

    Raises
    ------
    ValueError
        If the number of flags differs from that of variables.
    """
    flags = [False] * len(variables) if negated is None else list(negated)
    if len(flags) != len(variables):
        raise ValueError(
            f"negated: got {len(flags)} flags for {len(variables)} variables; expected one for "
            "each."
        )
    return [~each.view if flag else each.view for each, flag in zip(variables, flags, strict=True)]


def _status(found: Solution | Any) -> int:
    """Return the status of a solve as a number of the earlier library."""
    if isinstance(found, Solution):
        impossible = any(status is Status.INFEASIBLE for status in found.status)
    else:
        impossible = bool((~found.found & found.proved).any())
    if impossible:
        return INFEASIBLE
    if not found.ok:
        return UNSOLVED
    return INTEGRAL if np.isin(found.values, (0.0, 1.0)).all() else FRACTIONAL
