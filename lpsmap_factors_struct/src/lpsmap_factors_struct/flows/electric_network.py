"""Electric networks of layers: elimination without subtraction.

The equations of Newton's method on the flows of a chain are those of a network of conductances.
Every node of the chain has two vertices, *in* and *out*, connected by the node's weight. An edge
connects the *out* of one node with the *in* of the next. All *in* of the first layer are one
vertex, the source, and all *out* of the last layer are the ground::

    source --w-- out  --conductance-- in --w-- out ... in --w-- ground

The diagonal of the equations' matrix has sums of conductances. Elimination of a vertex connects its
neighbours by new conductances, which are added. If the diagonal is then summed anew, nothing is
ever subtracted, and the result is accurate whatever the ratios of the conductances, as for
stationary distributions of Markov chains (Grassmann, Taksar & Heyman 1985). This matters because
conductances differ by 10^16 near a solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, leaf
from lpsmap_core.api import FloatArray
from lpsmap_factors_struct.flows.vector_sums import add_multiple, inner_product, range_sum

__all__ = ["ElectricNetwork", "eliminate_network", "solve_network"]

ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


class ElectricNetwork(NamedTuple):
    """An eliminated network of L layers of S nodes.

    Attributes
    ----------
    in_shares
        (L - 1, S, 2 S) for the *in* of every layer but the first, the shares of their conductance
        that lead to the remaining *in* of the layer and to the *out* before.
    out_shares
        (L - 1, S, S) for the *out* of every layer but the last, the shares that lead to the next S
        vertices: the remaining *out* of the layer, then its *in*, or the source.
    in_resistance, out_resistance
        (L - 1, S) reciprocals of the conductances of these vertices when they are eliminated; zero
        for isolated vertices.
    source
        The same for the source.
    square
        (2 S, 2 S) workspace for the conductances of two layers; only j > i is used.
    ground
        (2 S + 1,) workspace for the conductances to the ground.
    lane
        (3 S + 1,) workspace for two layers of a right-hand side, or for sums by column.
    """

    in_shares: FloatArray
    out_shares: FloatArray
    in_resistance: FloatArray
    out_resistance: FloatArray
    source: FloatArray
    square: FloatArray
    ground: FloatArray
    lane: FloatArray


@leaf
def _eliminate(
    net: ElectricNetwork, n: np.uint64, width: np.uint64, n_out: np.uint64, span: np.uint64
) -> None:
    """Eliminate the first `n_out` of `n` vertices, each connected with at most `span` later ones.

    Four vertices are eliminated at a time, to read and write the conductances between the others
    less often. Rows of `square` become shares, and entries of `ground` become resistances.
    """
    square, ground = net.square, net.ground
    k = np.uint64(0)
    while k < n_out:
        stop = min(k + FOUR, n_out)
        last = min(stop + span, n)
        _eliminate_few(square, ground, width, k, stop, last)
        if stop == k + FOUR:
            _join_neighbours(square, ground, width, k, last)
        else:
            for p in range(k, stop):
                row, resistance = p * width, ground[p]
                for i in range(stop, last):
                    share = square[row + i] * resistance
                    if share != 0.0:
                        ground[i] += share * square[row + p]
                        rest = last - i - ONE
                        add_multiple(
                            share, square, row + i + ONE, square, i * width + i + ONE, rest
                        )
        for p in range(k, stop):
            row, resistance = p * width, ground[p]
            for j in range(p + ONE, last):
                square[row + j] *= resistance
        k = stop


@leaf
def _eliminate_few(
    square: FloatArray,
    ground: FloatArray,
    width: np.uint64,
    first: np.uint64,
    stop: np.uint64,
    last: np.uint64,
) -> None:
    """Eliminate some vertices within their own rows.

    The conductance of each to the ground is moved to the diagonal, and its resistance to `ground`.
    """
    for p in range(first, stop):
        row = p * width
        whole = range_sum(square, row + p + ONE, last - p - ONE) + ground[p]
        resistance = 1.0 / whole if whole > 0.0 else 0.0
        for i in range(p + ONE, stop):
            share = square[row + i] * resistance
            if share != 0.0:
                ground[i] += share * ground[p]
                rest = last - i - ONE
                add_multiple(share, square, row + i + ONE, square, i * width + i + ONE, rest)
        square[row + p] = ground[p]
        ground[p] = resistance


@leaf
def _join_neighbours(
    square: FloatArray, ground: FloatArray, width: np.uint64, first: np.uint64, last: np.uint64
) -> None:
    """Add the conductances between later vertices that four eliminated vertices imply."""
    p, q, r, s = first, first + ONE, first + TWO, first + THREE
    a, b, c, d = p * width, q * width, r * width, s * width
    for i in range(first + FOUR, last):
        f, g = square[a + i] * ground[p], square[b + i] * ground[q]
        h, k = square[c + i] * ground[r], square[d + i] * ground[s]
        if (f + g) + (h + k) == 0.0:
            continue
        ground[i] += (f * square[a + p] + g * square[b + q]) + (
            h * square[c + r] + k * square[d + s]
        )
        here = i * width
        for j in range(i + ONE, last):
            square[here + j] += (f * square[a + j] + g * square[b + j]) + (
                h * square[c + j] + k * square[d + j]
            )


@leaf
def eliminate_network(
    net: ElectricNetwork, length: int, n_states: int, weight: FloatArray, conductance: FloatArray
) -> bool:
    """Eliminate all vertices of a network, from the ground to the source.

    Parameters
    ----------
    net
        The network, which holds the result.
    length, n_states
        Numbers of layers, at least two, and of nodes in each.
    weight
        (L, S) conductances from *in* to *out*.
    conductance
        (L - 1, S, S) conductances of the edges, by their second and then by their first node.

    Returns
    -------
    bool
        Whether the elimination was completed, without an interrupt.
    """
    n, ground, square = np.uint64(n_states), net.ground, net.square
    width, final = TWO * n, np.uint64(length - 1) * n
    for j in range(n):
        ground[j] = weight[final + j]
        square[j * width : j * width + n] = 0.0
    for back in range(length - 1):
        if interrupted():
            return False
        layer = np.uint64(length - 2 - back)
        _add_edges(net, n, conductance, layer * n * n)
        _eliminate(net, width, width, n, width)
        _store_shares(net, n, layer, net.in_shares, net.in_resistance, width, np.uint64(0))
        _shift_up(net, n)
        if layer == np.uint64(0):
            break
        _add_nodes(net, n, weight, layer * n)
        _eliminate(net, width, width, n, n)
        _store_shares(net, n, layer, net.out_shares, net.out_resistance, n, ONE)
        _shift_up(net, n)
    for i in range(n):
        square[i * width + n] = weight[i]
    ground[n] = 0.0
    _eliminate(net, n + ONE, width, n, n)
    _store_shares(net, n, np.uint64(0), net.out_shares, net.out_resistance, n, ONE)
    net.source[0] = 1.0 / ground[n] if ground[n] > 0.0 else 0.0
    return True


@leaf
def _add_edges(
    net: ElectricNetwork, n: np.uint64, conductance: FloatArray, first: np.uint64
) -> None:
    """Append the *out* of the previous layer to the *in* of a layer, connected by the edges."""
    square, width = net.square, TWO * n
    for j in range(n):
        row, below = j * width + n, (n + j) * width + n
        for i in range(n):
            square[row + i] = conductance[first + j * n + i]
            square[below + i] = 0.0
        net.ground[n + j] = 0.0


@leaf
def _add_nodes(net: ElectricNetwork, n: np.uint64, weight: FloatArray, first: np.uint64) -> None:
    """Append the *in* of a layer to its *out*, connected by the nodes' weights."""
    square, width = net.square, TWO * n
    for j in range(n):
        row, below = j * width + n, (n + j) * width + n
        for i in range(n):
            square[row + i] = 0.0
            square[below + i] = 0.0
        square[row + j] = weight[first + j]
        net.ground[n + j] = 0.0


@leaf
def _shift_up(net: ElectricNetwork, n: np.uint64) -> None:
    """Move the remaining vertices to the places of the n eliminated ones."""
    square, width = net.square, TWO * n
    for i in range(n):
        net.ground[i] = net.ground[n + i]
        row, below = i * width, (n + i) * width + n
        for j in range(i + ONE, n):
            square[row + j] = square[below + j]


@leaf
def _store_shares(
    net: ElectricNetwork,
    n: np.uint64,
    layer: np.uint64,
    shares: FloatArray,
    resistance: FloatArray,
    size: np.uint64,
    ahead: np.uint64,
) -> None:
    """Store the resistances and the `size` shares of n eliminated vertices."""
    width, to = TWO * n, layer * n * size
    for k in range(n):
        resistance[layer * n + k] = net.ground[k]
        begin = k * width + ahead * (k + ONE)
        for j in range(size):
            shares[to + k * size + j] = net.square[begin + j]


# -------------------------------------------------------------------- right-hand sides


@leaf
def solve_network(
    net: ElectricNetwork,
    length: int,
    n_states: int,
    out: FloatArray,
    into: FloatArray,
    source: float,
) -> float:
    """Solve for the potentials, which replace the currents into the vertices.

    Parameters
    ----------
    net
        The eliminated network.
    length, n_states
        Its layers, and the nodes in each.
    out
        (L, S) currents into the *out*. The last layer, which is the ground, is not used.
    into
        (L, S) currents into the *in*. The first layer, which is the source, is not used.
    source
        The current into the source.

    Returns
    -------
    float
        The potential of the source.
    """
    n, lane = np.uint64(n_states), net.lane
    for back in range(length - 1):
        layer = np.uint64(length - 2 - back)
        before, here = layer * n, (layer + ONE) * n
        _load(lane, n, into, here, out, before)
        for k in range(n):
            rest = TWO * n - k - ONE
            begin = (before + k) * TWO * n + k + ONE
            add_multiple(lane[k], net.in_shares, begin, lane, k + ONE, rest)
        _store(lane, n, into, here, out, before)
        if layer == np.uint64(0):
            break
        _load(lane, n, out, before, into, before)
        for k in range(n):
            add_multiple(lane[k], net.out_shares, (before + k) * n, lane, k + ONE, n)
        _store(lane, n, out, before, into, before)
    for k in range(n):
        lane[k] = out[k]
    lane[n] = source
    for k in range(n):
        add_multiple(lane[k], net.out_shares, k * n, lane, k + ONE, n - k)
    for k in range(n):
        out[k] = lane[k]
    return _substitute(net, length, n, out, into, lane[n] * net.source[0])


@leaf
def _substitute(
    net: ElectricNetwork,
    length: int,
    n: np.uint64,
    out: FloatArray,
    into: FloatArray,
    source: float,
) -> float:
    """Substitute the potentials backwards, from the source to the ground."""
    lane, zero = net.lane, np.uint64(0)
    lane[n] = source
    for layer in range(np.uint64(length - 1)):
        here, behind = layer * n, (layer + ONE) * n
        if layer > zero:
            for j in range(n):
                lane[n + j] = into[here + j]
        for back in range(n):
            k = n - ONE - back
            size = n if layer > zero else n - k
            known = inner_product(net.out_shares, (here + k) * n, lane, k + ONE, size)
            lane[k] = out[here + k] * net.out_resistance[here + k] + known
            out[here + k] = lane[k]
        for j in range(n):
            lane[n + j] = lane[j]
        for back in range(n):
            k = n - ONE - back
            begin, size = (here + k) * TWO * n + k + ONE, TWO * n - k - ONE
            known = inner_product(net.in_shares, begin, lane, k + ONE, size)
            lane[k] = into[behind + k] * net.in_resistance[here + k] + known
            into[behind + k] = lane[k]
    return source


@leaf
def _load(
    lane: FloatArray, n: np.uint64, x: FloatArray, at: np.uint64, y: FloatArray, to: np.uint64
) -> None:
    for j in range(n):
        lane[j], lane[n + j] = x[at + j], y[to + j]


@leaf
def _store(
    lane: FloatArray, n: np.uint64, x: FloatArray, at: np.uint64, y: FloatArray, to: np.uint64
) -> None:
    for j in range(n):
        x[at + j], y[to + j] = lane[j], lane[n + j]
