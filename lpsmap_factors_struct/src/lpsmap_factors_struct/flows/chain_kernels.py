"""Kernels for the chains of a bucket that are solved by flows."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import (
    OPTIMAL,
    RUNNING,
    FloatArray,
    IntArray,
    LocalProblem,
    by_address,
    problem_of,
    set_of,
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
    NO_CHAIN,
    block_of,
    chains_at,
    largest_chain,
)
from lpsmap_factors_struct.flows.flow_solver import solve_chain
from lpsmap_factors_struct.flows.problem_reader import forbid_nodes, read_node_scores, read_weights
from lpsmap_factors_struct.methods import has_forced
from lpsmap_factors_struct.viterbi import step_stride

__all__ = ["multiply_flows", "solve_flows"]

JVP_STEPS = 2
"""Steps of the multipliers for a derivative. The second finds the digits after the sixth."""

ZERO, ONE = np.uint64(0), np.uint64(1)


# -------------------------------------------------------------------- whole solves


@kernel
def solve_flows(
    chains: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
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
def _transitions_of(f: int, n: np.uint64, problem: LocalProblem) -> tuple[np.uint64, np.uint64]:
    """Return the first transition among the additionals, and the distance to the next step's."""
    begin, stop = problem.additional_offsets[f], problem.additional_offsets[f + 1]
    stride = step_stride(stop - begin, np.int64(n))  # type: ignore[arg-type]
    return np.uint64(begin) + n, np.uint64(stride)


@leaf
def _read_scores(f: int, chain: Chain, problem: LocalProblem) -> None:
    """Read the scores of nodes and edges; those of edges are zero without additionals."""
    work, eta_v, (n, n_nodes, n_edges) = chain.work, problem.eta_v, sizes(chain)
    read_node_scores(f, n, n_nodes, problem, work.score)
    if len(eta_v) == 0:
        for k in range(n_edges):
            work.step[k] = 0.0
        return
    first, stride = _transitions_of(f, n, problem)
    for begin in range(ZERO, n_edges, n * n):
        for j in range(n):
            row, at = begin + j * n, first + j
            for i in range(n):
                work.step[row + i] = eta_v[at + i * n]
        first += stride


@leaf
def _forbid_nodes_and_edges(f: int, chain: Chain, problem: LocalProblem) -> None:
    """Mark forbidden nodes and edges by their scores."""
    work, (n, n_nodes, n_edges) = chain.work, sizes(chain)
    forbid_nodes(f, n, n_nodes, problem, work.score)
    first, stride = _transitions_of(f, n, problem)
    for begin in range(ZERO, n_edges, n * n):
        for j in range(n):
            row, at = begin + j * n, first + j
            for i in range(n):
                if problem.barred[at + i * n] != 0:
                    work.step[row + i] = -BARRED
        first += stride


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
    here, stride = _transitions_of(f, n, problem)
    for block in range(ZERO, n_edges, n * n):
        for j in range(n):
            row, at = block + j * n, here + j
            for i in range(n):
                v[at + i * n] += flow.e[row + i]
        here += stride
