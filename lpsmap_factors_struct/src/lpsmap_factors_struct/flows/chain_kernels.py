"""Kernels for the chains of a bucket: forests, active sets while these are small, and flows."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import (
    OPTIMAL,
    RUNNING,
    UNTIL_SOLVED,
    FloatArray,
    IntArray,
    LocalProblem,
    by_address,
    call_oracle,
    iteration_limit,
    multiply_by,
    problem_of,
    set_of,
    solve_by,
    status_of,
    stopped,
)
from lpsmap_factors_struct.flows.chain import (
    BARRED,
    FLOW_SOLVED,
    Chain,
    ChainWorkspace,
    Flow,
    chain_workspace,
    sizes,
    unpack_flow,
)
from lpsmap_factors_struct.flows.flow_face import solve_on_face
from lpsmap_factors_struct.flows.flow_records import (
    FLOW,
    FLOW_KERNELS,
    FOREST,
    FOREST_KERNELS,
    NO_CHAIN,
    SET_KERNELS,
    SMALL,
    block_of,
    chains_at,
    largest_chain,
)
from lpsmap_factors_struct.flows.flow_solver import solve_chain
from lpsmap_factors_struct.flows.problem_reader import forbid_nodes, read_node_scores, read_weights
from lpsmap_factors_struct.methods import has_forced, rows_with

__all__ = ["max_structures", "multiply_chains", "multiply_flows", "solve_chains", "solve_flows"]

STRUCTURES_PER_LAYER, BASE_STRUCTURES = 2, 32
"""Limit of the structures of an active set: so many per layer, plus a constant. Larger ones are
replaced by flows."""

MAX_SET_POSITIONS = 2**22
"""Limit of the layers of all structures of an active set. The time and the memory of a set grow
with both the number of its structures and their length."""

SMALL_CHAIN = 300
"""Number of nodes up to which lone chains, too, start with an active set. With 20 positions and 10
states this takes four fifths of a forest's time for a score scale of 1."""

JVP_STEPS = 2
"""Steps of the multipliers for a derivative. The second finds the digits after the sixth."""

ZERO, ONE = np.uint64(0), np.uint64(1)


@leaf
def max_structures(length: int) -> int:
    """Return the maximum number of structures of a chain's active set."""
    return min(BASE_STRUCTURES + STRUCTURES_PER_LAYER * length, MAX_SET_POSITIONS // length + 1)


# -------------------------------------------------------------------- whole solves


@kernel
def solve_chains(
    chains: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    """Solve the local problems of `rows`; the limit of iterations only applies to active sets."""
    problem = problem_of(chains, a, eta_v)
    alone = max_iterations == UNTIL_SOLVED
    flows = rows_with(chains_at(chains).methods, rows, FLOW)
    forests = rows_with(chains_at(chains).methods, rows, FOREST)
    if alone:
        forests = np.concatenate((forests, _forest_candidates(chains, rows, problem)))
    if len(forests) > 0:
        solve_by(chains, FOREST_KERNELS, forests, a, eta_v, z, v, UNTIL_SOLVED)
    if len(flows) > 0:
        solve_by(chains, FLOW_KERNELS, flows, a, eta_v, z, v, UNTIL_SOLVED)
    small = rows_with(chains_at(chains).methods, rows, SMALL)
    if len(small) > 0 and not stopped():
        longest, n_states = largest_chain(chains, small, problem)
        limit = max_structures(longest)
        allowed = iteration_limit(max_iterations, chains, small, problem)
        solve_by(chains, SET_KERNELS, small, a, eta_v, z, v, min(allowed, limit))
        grown = _beyond_limit(chains, small, problem, allowed >= limit)
        untried = _small_rows(grown, problem)
        if alone and len(untried) > 0 and not stopped():
            solve_by(chains, FOREST_KERNELS, untried, a, eta_v, z, v, UNTIL_SOLVED)
            grown = rows_with(chains_at(chains).methods, grown, SMALL)
        if len(grown) > 0:
            if stopped() or not call_oracle(chains, grown):
                return
            grown = rows_with(chains_at(chains).methods, grown, SMALL)
            solve_by(chains, FLOW_KERNELS, grown, a, eta_v, z, v, UNTIL_SOLVED)
    others = rows_with(chains_at(chains).methods, rows, NO_CHAIN)
    if len(others) > 0:
        solve_by(chains, SET_KERNELS, others, a, eta_v, z, v, max_iterations)


@kernel
def multiply_chains(
    chains: Any,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply the Jacobians of `rows`."""
    for method in (SMALL, NO_CHAIN, FLOW, FOREST):
        chosen = rows_with(chains_at(chains).methods, rows, method)
        if len(chosen) > 0:
            kernels = SET_KERNELS
            if method == FLOW:
                kernels = FLOW_KERNELS
            elif method == FOREST:
                kernels = FOREST_KERNELS
            multiply_by(chains, kernels, chosen, d_u, d_v, out_u, out_v)


@kernel
def solve_flows(
    chains: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
) -> None:
    """Solve the local problems of chains by flows, without a limit of iterations.

    An interrupted flow leaves the last solution: that of the active set before the first flow.
    """
    problem = problem_of(chains, a, eta_v)
    status, methods = status_of(chains), chains_at(chains).methods
    longest, n_states = largest_chain(chains, rows, problem)
    work = chain_workspace(longest, n_states)
    for f in rows:
        status[f] = RUNNING
        if stopped():
            return
        if has_forced(f, problem):
            set_of(chains, f).active[0] = 0  # paths without the node have to go
        block = block_of(chains, f)
        before = block.copy()
        if _solve(f, _chain_of(chains, f, problem, work), problem, z, v):
            status[f], methods[f] = OPTIMAL, FLOW
        elif stopped():
            block[:] = before
            return
        else:
            methods[f] = NO_CHAIN


@kernel
def multiply_flows(
    chains: Any,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply the Jacobians of chains that have flows."""
    problem = problem_of(chains, d_u, d_v)
    longest, n_states = largest_chain(chains, rows, problem)
    work = chain_workspace(longest, n_states)
    for f in rows:
        chain = _chain_of(chains, f, problem, work)
        change = Chain(chain.length, chain.n_states, _change_of(chain.flow, work), work)
        _multiply(f, change, problem, out_u, out_v)


@kernel
def _forest_candidates(chains: Any, rows: IntArray, problem: LocalProblem) -> IntArray:
    """Return the rows to solve by forests first: large ones, without structures so far."""
    methods, kept, n = chains_at(chains).methods, np.empty(len(rows), dtype=np.int64), 0
    for f in rows:
        large = problem.offsets[f + 1] - problem.offsets[f] > SMALL_CHAIN
        if large and methods[f] == SMALL and set_of(chains, f).active[0] == 0:
            kept[n] = f
            n += 1
    return kept[:n]


@kernel
def _small_rows(rows: IntArray, problem: LocalProblem) -> IntArray:
    """Return the rows with small chains, for which forests were not tried."""
    kept, n = np.empty(len(rows), dtype=np.int64), 0
    for f in rows:
        if problem.offsets[f + 1] - problem.offsets[f] <= SMALL_CHAIN:
            kept[n] = f
            n += 1
    return kept[:n]


@kernel
def _beyond_limit(chains: Any, rows: IntArray, problem: LocalProblem, had_all: bool) -> IntArray:
    """Return the rows that are not solved and have reached the limit of their active set."""
    status, states = status_of(chains), chains_at(chains).states
    kept, n = np.empty(len(rows), dtype=np.int64), 0
    for f in rows:
        length = (problem.offsets[f + 1] - problem.offsets[f]) // states[f]
        full = set_of(chains, f).active[0] >= max_structures(length)
        if status[f] == RUNNING and (had_all or full):
            kept[n] = f
            n += 1
    return kept[:n]


@kernel
def _chain_of(chains: Any, f: int, problem: LocalProblem, work: ChainWorkspace) -> Chain:
    """Return a chain with its flow, in a workspace that chains share."""
    n_states = chains_at(chains).states[f]
    length = (problem.offsets[f + 1] - problem.offsets[f]) // n_states
    return Chain(length, n_states, unpack_flow(block_of(chains, f), length, n_states, work), work)


@kernel
def _change_of(flow: Flow, work: ChainWorkspace) -> Flow:
    """Return a flow that holds the change of a flow on its face."""
    return Flow(
        flow.header,
        work.level_out,
        work.level_into,
        work.slack,
        flow.on,
        flow.used,
        flow.weight,
        flow.net,
    )


# -------------------------------------------------------------------- one chain


@leaf
def _solve(f: int, held: Chain, problem: LocalProblem, z: FloatArray, v: FloatArray) -> bool:
    """Solve a chain's problem by its flow; return whether it is solved."""
    chain = by_address(held)
    read_weights(f, sizes(chain)[1], problem, chain.work.weight)
    _read_scores(f, chain, problem)
    if problem.forbids:
        _forbid_nodes_and_edges(f, chain, problem)
    if not solve_chain(chain):
        return False
    _write_solution(f, chain, problem, z, v)
    return True


@leaf
def _multiply(
    f: int, held: Chain, problem: LocalProblem, out_u: FloatArray, out_v: FloatArray
) -> None:
    """Multiply a chain's Jacobian: solve the problem on the face without constant terms."""
    chain = by_address(held)
    flow, (_, n_nodes, n_edges) = chain.flow, sizes(chain)
    for k in range(n_nodes):
        flow.out[k], flow.into[k] = 0.0, 0.0
    for k in range(n_edges):
        flow.e[k] = 0.0
    if flow.header[FLOW_SOLVED] == 1.0:
        _read_scores(f, chain, problem)
        solve_on_face(chain, 0.0, JVP_STEPS)
    _write_solution(f, chain, problem, out_u, out_v)


@leaf
def _read_scores(f: int, chain: Chain, problem: LocalProblem) -> None:
    """Read the scores of nodes and edges; those of edges are zero without additionals."""
    work, eta_v, (n, n_nodes, n_edges) = chain.work, problem.eta_v, sizes(chain)
    read_node_scores(f, n, n_nodes, problem, work.score)
    if len(eta_v) == 0:
        for k in range(n_edges):
            work.step[k] = 0.0
        return
    first = np.uint64(problem.additional_offsets[f]) + n
    for begin in range(ZERO, n_edges, n * n):
        for j in range(n):
            row, at = begin + j * n, first + begin + j
            for i in range(n):
                work.step[row + i] = eta_v[at + i * n]


@leaf
def _forbid_nodes_and_edges(f: int, chain: Chain, problem: LocalProblem) -> None:
    """Mark forbidden nodes and edges by their scores."""
    work, (n, n_nodes, n_edges) = chain.work, sizes(chain)
    forbid_nodes(f, n, n_nodes, problem, work.score)
    first = np.uint64(problem.additional_offsets[f]) + n
    for begin in range(ZERO, n_edges, n * n):
        for j in range(n):
            row, at = begin + j * n, first + begin + j
            for i in range(n):
                if problem.barred[at + i * n] != 0:
                    work.step[row + i] = -BARRED


@leaf
def _write_solution(
    f: int, chain: Chain, problem: LocalProblem, z: FloatArray, v: FloatArray
) -> None:
    """Write the marginals of slots, and of additionals unless `v` is empty, from the flows."""
    flow, m, (n, n_nodes, n_edges) = chain.flow, chain.work.m, sizes(chain)
    for k in range(n_nodes):
        m[k] = 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                m[first + i] += flow.e[row + i]
                if end >= n_nodes - n:
                    m[end] += flow.e[row + i]
    lo = np.uint64(problem.offsets[f])
    for k in range(n_nodes):
        z[lo + k] = m[k] * problem.inverse_delta[lo + k]
    if len(v) == 0:
        return
    begin = np.uint64(problem.additional_offsets[f])
    stop = np.uint64(problem.additional_offsets[f + 1])
    for k in range(begin, stop):
        v[k] = 0.0
    for k in range(n):
        v[begin + k], v[stop - n + k] = m[k], m[n_nodes - n + k]
    for block in range(ZERO, n_edges, n * n):
        for j in range(n):
            row, at = block + j * n, begin + n + block + j
            for i in range(n):
                v[at + i * n] = flow.e[row + i]
