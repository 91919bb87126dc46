"""Other solvers on the graphs of `map_models`: the time of the solve call alone."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lpsmap_core.decoding.highs import model_of
from lpsmap_core.decoding.program import Program, programs, without_description

__all__ = ["PEERS"]

ENOUGH = 0.2
"""Seconds that repeated solves take at least: clocks of processes can tick seldom."""


def programs_of(graph: Any) -> list[Program]:
    """Return the linear programs of a graph's components; none where a type has no description."""
    if without_description(graph.factors):
        return []
    layout, (scores, additionals) = graph._laid_out(), graph._flat()
    components = np.arange(layout.n_components)
    return programs(layout, graph.factors, scores, additionals, components)


def highs_time(graph: Any, max_time: float, whole: bool) -> str:
    """Return the milliseconds of HiGHS for all components; ``>`` where it did not end in time."""
    import highspy

    begun, total, ended, n = time.process_time(), 0.0, True, 0
    some = programs_of(graph)
    while n == 0 or time.process_time() - begun < ENOUGH:
        n += 1
        for program in some:
            highs, model = highspy.Highs(), model_of(program)
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
    networks = part.networks
    if not networks.covered.all():
        return "-"
    states, entries = networks.scores(eta, eta_v)
    network = networks.network
    top = 2.0 * (np.abs(states[np.isfinite(states)]).sum() + 1.0)
    top += 2.0 * np.abs(entries[np.isfinite(entries)]).sum()
    problem = pytoulbar2.CFN(ubinit=top, resolution=6)
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
    ended = found is not None and milliseconds < 1e3 * max_time
    return f"{'' if ended else '>'}{milliseconds:.1f}"


PEERS: dict[str, Callable[[Any, float], str]] = {}
"""For each solver that is installed, what returns a cell of the table."""
if importlib.util.find_spec("highspy"):
    PEERS["HiGHS LP"] = lambda graph, max_time: highs_time(graph, max_time, whole=False)
    PEERS["HiGHS exact"] = lambda graph, max_time: highs_time(graph, max_time, whole=True)
if importlib.util.find_spec("pytoulbar2"):
    PEERS["toulbar2"] = toulbar2_time
