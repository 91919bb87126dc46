"""Kernels for the chains of a bucket that are solved on forests."""

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
from lpsmap_factors_struct.chains.chain_records import (
    FOREST,
    NO_FOREST,
    chains_at,
    largest_chain,
    most_step_scores,
)
from lpsmap_factors_struct.chains.forest import (
    FOREST_SOLVED,
    ForestChain,
    ForestWorkspace,
    forest_workspace,
    unpack_forest,
)
from lpsmap_factors_struct.chains.forest_solver import multiply_on_forest, solve_on_forest
from lpsmap_factors_struct.chains.initial_forest import initialise_forest
from lpsmap_factors_struct.chains.problem_reader import (
    FORBIDDEN,
    forbid_nodes,
    read_node_scores,
    read_weights,
)
from lpsmap_factors_struct.viterbi import n_step_scores, step_stride


@kernel
def solve_forests(
    chains: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
) -> None:
    """Solve the local problems of chains on forests, exactly and without a limit of iterations.

    Chains for which this fails fall back on active sets. An interrupted chain keeps its last
    solution; without one, it gets the best path.
    """
    problem, own = problem_of(chains, a, eta_v), chains_at(chains)
    status = status_of(chains)
    longest, n_states = largest_chain(chains, rows, problem)
    n_steps = most_step_scores(chains, rows, problem) if problem.forbids else 0
    work = forest_workspace(longest, n_states, n_steps)
    for f in rows:
        status[f] = RUNNING
        if stopped():
            return
        block, active = _block_of(chains, f), set_of(chains, f).active
        before, chain = block.copy(), _chain_of(chains, f, problem, work)
        if _solve(f, chain, problem, z):
            status[f], own.methods[f] = OPTIMAL, FOREST
        elif not stopped():
            own.methods[f], active[0] = NO_FOREST, 0
        elif before[FOREST_SOLVED] == 1.0:
            block[:] = before
            _write_flows(f, chain, chain.forest.flow, problem, z, z[:0])
        elif active[0] == 0:
            own.methods[f] = FOREST
            _write_best_path(f, chain, problem, z)


@kernel
def write_forest_additionals(chains: Any, rows: IntArray, v: FloatArray) -> None:
    """Write the marginals of the additionals of chains that have forests."""
    problem = problem_of(chains, v, v)
    longest, n_states = largest_chain(chains, rows, problem)
    work = forest_workspace(longest, n_states, 0)
    for f in rows:
        chain = _chain_of(chains, f, problem, work)
        _write_flows(f, chain, chain.forest.flow, problem, v[:0], v)


@kernel
def multiply_forests(
    chains: Any,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply the Jacobians of chains that have forests."""
    problem = problem_of(chains, d_u, d_v)
    longest, n_states = largest_chain(chains, rows, problem)
    work = forest_workspace(longest, n_states, 0)
    for f in rows:
        _multiply(f, _chain_of(chains, f, problem, work), problem, out_u, out_v)


@kernel
def _chain_of(chains: Any, f: int, problem: LocalProblem, work: ForestWorkspace) -> ForestChain:
    """Return a chain with its forest, in a workspace that chains share.

    Its `steps` are the scores of all additionals.
    """
    n = chains_at(chains).states[f]
    length = (problem.offsets[f + 1] - problem.offsets[f]) // n
    begin = problem.additional_offsets[f]
    stride = step_stride(problem.additional_offsets[f + 1] - begin, n)
    forest = unpack_forest(_block_of(chains, f), length, n)
    return ForestChain(length, n, forest, work, problem.eta_v, begin + n, stride)


@kernel
def _block_of(chains: Any, f: int) -> FloatArray:
    """Return the block of a chain's forest."""
    own = chains_at(chains)
    return own.forests[own.first_words[f] : own.first_words[f + 1]]  # type: ignore[no-any-return]


# -------------------------------------------------------------------- one chain


@leaf
def _solve(f: int, held: ForestChain, problem: LocalProblem, z: FloatArray) -> bool:
    """Solve a chain's problem, and write the solution; return whether it is solved."""
    chain = _read_problem(f, held, problem)
    if not solve_on_forest(by_address(chain)):
        return False
    _write_flows(f, held, held.forest.flow, problem, z, z[:0])
    return True


@leaf
def _write_best_path(f: int, held: ForestChain, problem: LocalProblem, z: FloatArray) -> None:
    """Write the best path as the solution."""
    chain = _read_problem(f, held, problem)
    initialise_forest(by_address(chain))
    _write_flows(f, held, held.forest.flow, problem, z, z[:0])


@leaf
def _read_problem(f: int, chain: ForestChain, problem: LocalProblem) -> ForestChain:
    """Read weights and scores into a chain's workspace; return the chain with its own steps."""
    work, n = chain.work, np.uint64(chain.n_states)
    n_nodes = np.uint64(chain.length) * n
    read_weights(f, n_nodes, problem, work.weight)
    read_node_scores(f, n, n_nodes, problem, work.score)
    if not problem.forbids:
        return chain
    forbid_nodes(f, n, n_nodes, problem, work.score)
    _copy_steps(f, chain, problem)
    return ForestChain(chain.length, chain.n_states, chain.forest, work, work.step, 0, chain.stride)


@leaf
def _multiply(
    f: int, held: ForestChain, problem: LocalProblem, out_u: FloatArray, out_v: FloatArray
) -> None:
    """Multiply a chain's Jacobian."""
    work, n = held.work, np.uint64(held.n_states)
    n_nodes = np.uint64(held.length) * n
    read_weights(f, n_nodes, problem, work.weight)
    read_node_scores(f, n, n_nodes, problem, work.score)
    if not multiply_on_forest(by_address(held)):
        for t in range(held.length - 1):
            for x in range(t * 2 * held.n_states, (t + 1) * 2 * held.n_states):
                work.target[x] = 0.0
    _write_flows(f, held, work.target, problem, out_u, out_v)


@leaf
def _copy_steps(f: int, chain: ForestChain, problem: LocalProblem) -> None:
    """Copy the scores of edges, with those of forbidden edges replaced."""
    begin = problem.additional_offsets[f]
    first, n_additionals = begin + chain.n_states, problem.additional_offsets[f + 1] - begin
    for k in range(n_step_scores(n_additionals, chain.length, chain.n_states)):
        allowed = problem.forbidden[first + k] == 0
        chain.work.step[k] = problem.eta_v[first + k] if allowed else -FORBIDDEN


@leaf
def _write_flows(
    f: int,
    chain: ForestChain,
    flow: FloatArray,
    problem: LocalProblem,
    z: FloatArray,
    v: FloatArray,
) -> None:
    """Write the sums of flows on the slots and on the additionals, unless `z` or `v` is empty."""
    forest, m, n, length = chain.forest, chain.work.m, np.uint64(chain.n_states), chain.length
    begin, stop = problem.additional_offsets[f], problem.additional_offsets[f + 1]
    n_nodes = np.uint64(length) * n
    m[:n_nodes] = 0.0
    if len(v) > 0:
        v[begin:stop] = 0.0
    for t in range(length - 1):
        here = np.uint64(t) * n
        # the offset n of `end` cancels that of the transitions
        row, step = here + here, np.uint64(begin + t * chain.stride)
        for x in range(row, row + np.uint64(forest.n_edges[t])):
            i, j = np.uint64(forest.begin[x]), np.uint64(forest.end[x])
            m[here + i] += flow[x]
            if t == length - 2:
                m[here + j] += flow[x]
            if len(v) > 0:
                v[step + i * n + j] += flow[x]
    if len(z) > 0:
        lo = np.uint64(problem.offsets[f])
        for k in range(n_nodes):
            z[lo + k] = m[k] * problem.inverse_delta[lo + k]
    if len(v) > 0:
        first, final, last = np.uint64(begin), np.uint64(stop) - n, n_nodes - n
        for k in range(n):
            v[first + k], v[final + k] = m[k], m[last + k]
