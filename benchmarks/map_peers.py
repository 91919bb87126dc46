"""Other solvers on the graphs of `map_models`: the time of the solve call alone.

CP-SAT runs in a separate process, since its wheel and that of highspy have conflicting symbols.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from lpsmap_core.api import slot_values
from lpsmap_decode import Program, SolverLimits
from lpsmap_decode.networks.network import expand, networks_of
from lpsmap_decode.solvers.highs import arrays_of
from lpsmap_decode.solvers.highs_process import model_of
from lpsmap_decode.solvers.program import programs, without_constraints

__all__ = ["ENOUGH", "PEERS"]

ENOUGH = 0.2
"""Minimum seconds of repeated solves, to allow for the resolution of process clocks."""

MAX_SOLVES = 200

RESOLUTION = 1e-6
"""Scores are rounded to multiples of this for toulbar2."""


def programs_of(graph: Any) -> list[Program]:
    """Return the linear programs of a graph's components; empty if a type has no constraints."""
    if without_constraints(graph.factors):
        return []
    layout, (scores, additionals) = graph._laid_out(), graph._flat()
    components = np.arange(layout.n_components)
    return programs(layout, graph.factors, scores, additionals, components)


def highs_time(graph: Any, max_time: float, whole: bool) -> str:
    """Return the milliseconds of HiGHS for all components; ``>`` if it did not finish in time."""
    import highspy

    begun, total, ended, n = time.process_time(), 0.0, True, 0
    some = programs_of(graph)
    if not some:
        return "-"
    while n == 0 or time.process_time() - begun < ENOUGH:
        n += 1
        for program in some:
            highs, model = highspy.Highs(), model_of(arrays_of(program))
            highs.silent()
            if not whole:
                model.integrality_ = []
            highs.setOptionValue("threads", 1)
            highs.setOptionValue("time_limit", max_time)
            highs.setOptionValue("mip_rel_gap", 1e-8)
            highs.passModel(model)
            begin = time.process_time()
            highs.run()
            total += 1e3 * (time.process_time() - begin)
            ended &= highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return f"{'' if ended else '>'}{total / n:.1f}"


def toulbar2_time(graph: Any, max_time: float) -> str:
    """Return the milliseconds of toulbar2 for all components that are networks."""
    import pytoulbar2

    part, (scores, additionals) = graph._laid_out().part, graph._flat()
    eta, eta_v = part.of_graph(scores), part.by_bucket(additionals, graph.factors)
    networks = networks_of(part)
    if not networks.covered.all():
        return "-"
    network, scores = networks.network, networks.scores(eta, eta_v)
    states, entries = scores.states, expand(network, scores)
    top = 2.0 * (np.abs(states[np.isfinite(states)]).sum() + 1.0)
    top += 2.0 * np.abs(entries[np.isfinite(entries)]).sum()
    problem = pytoulbar2.CFN(ubinit=top, resolution=round(-np.log10(RESOLUTION)))
    problem.Option.verbose = -1
    for i, k in enumerate(network.n_states.tolist()):
        problem.AddVariable(f"x{i}", range(k))
        own = states[network.first_state[i] : network.first_state[i + 1]]
        problem.AddFunction([f"x{i}"], np.minimum(-own, top).tolist())
    ends = zip(network.scope_offsets[:-1], network.scope_offsets[1:], strict=True)
    for f, (lo, hi) in enumerate(ends):
        table = entries[network.table_offsets[f] : network.table_offsets[f + 1]]
        scope = [f"x{i}" for i in network.scope[lo:hi].tolist()]
        problem.AddFunction(scope, np.minimum(-table, top).tolist())
    problem.CFN.timer(int(max_time))
    begin = time.process_time()
    found = problem.Solve()
    milliseconds = 1e3 * (time.process_time() - begin)
    proved = found is not None and found[1] <= problem.GetDDualBound() + RESOLUTION
    return f"{'' if proved else '>'}{milliseconds:.1f}"


def ad3_time(graph: Any, max_time: float) -> str:
    """Return the milliseconds of AD3's LP-MAP; ``>`` where 1,000 iterations did not suffice.

    AD3 warm-starts a graph, so every solve uses a new graph.
    """
    total, ended, n = 0.0, True, 0
    while n == 0 or (total < 1e3 * ENOUGH and n < MAX_SOLVES):
        n, made = n + 1, ad3_graph(graph)
        if made is None:
            return "-"
        begin = time.process_time()
        *_, status = made.solve_lp_map_ad3()
        total += 1e3 * (time.process_time() - begin)
        ended &= status in (INTEGRAL, FRACTIONAL)
    return f"{'' if ended else '>'}{total / n:.2f}"


def ad3_graph(graph: Any) -> Any:
    """Return a graph as AD3's: pairs of binary nodes, tables, or logic; None for other factors."""
    from ad3.factor_graph import PFactorGraph

    made, part = PFactorGraph(), graph._laid_out().part
    made.set_verbosity(0)
    scores, additionals = graph._flat()
    networks = networks_of(part)
    if networks.covered.all():
        eta, eta_v = part.of_graph(scores), part.by_bucket(additionals, graph.factors)
        add = _add_pairs if networks.of_binaries.all() else _add_tables
        network, given = networks.network, networks.scores(eta, eta_v)
        add(made, network, given.states, expand(network, given))
        return made
    if not {type(f).__name__ for f in graph.factors} <= {*AD3_NAMES, "Pair"}:
        return None
    variables = [made.create_binary_variable() for _ in scores]
    for variable, score in zip(variables, scores.tolist(), strict=True):
        variable.set_log_potential(score)
    for factor, extra in zip(graph.factors, additionals, strict=True):
        index, negated = (
            slot_values(factor, factor.variables.index),
            slot_values(factor, factor.variables.negated),
        )
        for i, (lo, hi) in enumerate(zip(factor.offsets[:-1], factor.offsets[1:], strict=True)):
            mine = [variables[j] for j in index[lo:hi].tolist()]
            if type(factor).__name__ == "Pair":
                made.create_factor_pair(mine, float(extra[i, 0]))
            else:
                name = AD3_NAMES[type(factor).__name__]
                made.create_factor_logic(name, mine, negated[lo:hi].tolist())
    return made


AD3_NAMES = {"Xor": "XOR", "Or": "OR", "AtMostOne": "ATMOSTONE", "OrOut": "OROUT"}

INTEGRAL, FRACTIONAL = 0, 1
"""Statuses of converged solves in AD3."""

FORBIDDEN = -1e3
"""The score of forbidden entries, since AD3 does not support infinite scores."""


def _add_tables(made: Any, network: Any, states: Any, entries: Any) -> None:
    """Add a network's nodes and tables, dense."""
    nodes = [made.create_multi_variable(k) for k in network.n_states.tolist()]
    states, entries = np.maximum(states, FORBIDDEN), np.maximum(entries, FORBIDDEN)
    for i, node in enumerate(nodes):
        for x in range(int(network.n_states[i])):
            node.set_log_potential(x, float(states[network.first_state[i] + x]))
    ends = zip(network.scope_offsets[:-1], network.scope_offsets[1:], strict=True)
    for f, (lo, hi) in enumerate(ends):
        table = entries[network.table_offsets[f] : network.table_offsets[f + 1]]
        made.create_factor_dense([nodes[i] for i in network.scope[lo:hi].tolist()], table.tolist())
    made.fix_multi_variables_without_factors()


def _add_pairs(made: Any, network: Any, states: Any, entries: Any) -> None:
    """Add a network of pairs of binary nodes, for which AD3 has a closed form."""
    table, (first, second) = entries.reshape(-1, 4), network.scope.reshape(-1, 2).T
    n = len(network.n_states)
    own = states[1::2] - states[::2]
    own = own + np.bincount(first, table[:, 2] - table[:, 0], n)
    own += np.bincount(second, table[:, 1] - table[:, 0], n)
    both = table[:, 3] - table[:, 2] - table[:, 1] + table[:, 0]
    variables = [made.create_binary_variable() for _ in range(n)]
    for variable, score in zip(variables, own.tolist(), strict=True):
        variable.set_log_potential(score)
    for i, j, score in zip(first.tolist(), second.tolist(), both.tolist(), strict=True):
        made.create_factor_pair([variables[i], variables[j]], score)


@cache
def _apart() -> ProcessPoolExecutor:
    """Return a separate process for libraries that conflict with others."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def cpsat_time(graph: Any, max_time: float) -> str:
    """Return the milliseconds of CP-SAT; ``>`` if it did not finish in time."""
    some = programs_of(graph)
    if not some or any(program.n_auxiliary for program in some):
        return "-"
    return _apart().submit(_cpsat_time, some, max_time).result()


def _cpsat_time(some: list[Program], max_time: float) -> str:
    from lpsmap_cpsat.solver import model_of as cpsat_model_of
    from lpsmap_cpsat.solver import solver_for

    total, ended, n = 0.0, True, 0
    while n == 0 or total < 1e3 * ENOUGH:
        n += 1
        for program in some:
            model, solver = cpsat_model_of(program)[0], solver_for(SolverLimits(1e-8, max_time, 1))
            begin = time.process_time()
            status = solver.solve(model)
            total += 1e3 * (time.process_time() - begin)
            ended &= solver.status_name(status) == "OPTIMAL"
    return f"{'' if ended else '>'}{total / n:.1f}"


PEERS: dict[str, Callable[[Any, float], str]] = {}
"""For each installed solver, a function that returns a cell of the table."""
if importlib.util.find_spec("highspy"):
    PEERS["HiGHS LP"] = lambda graph, max_time: highs_time(graph, max_time, whole=False)
    PEERS["HiGHS exact"] = lambda graph, max_time: highs_time(graph, max_time, whole=True)
if importlib.util.find_spec("pytoulbar2"):
    PEERS["toulbar2"] = toulbar2_time
if importlib.util.find_spec("ad3"):
    PEERS["AD3 LP"] = ad3_time
if importlib.util.find_spec("ortools"):
    PEERS["CP-SAT"] = cpsat_time
