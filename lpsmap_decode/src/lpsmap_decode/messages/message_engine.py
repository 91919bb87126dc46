"""The engine for networks of tables, for LP-MAP, by message passing.

Core's loop takes many iterations over tables. Messages need a few passes for nearly optimal duals.
If an answer attains their bound, it is the solution, and core's iterations are not needed.
Otherwise core starts from both. If an exact assignment is requested, small networks are solved by
elimination.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import Engine, Options
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Part,
    WarmStart,
    out_of_time,
    raise_interrupt,
)
from lpsmap_decode.messages.solved_networks import SolvedNetworks
from lpsmap_decode.networks.ascent import ascend, empty_result
from lpsmap_decode.networks.messages import finite_scores, new_shares
from lpsmap_decode.networks.network import networks_of
from lpsmap_decode.networks.small import eliminate_small, small_orders
from lpsmap_decode.networks.tables import has_tables, tables_of
from lpsmap_decode.results.score_units import in_units
from lpsmap_decode.tolerances import MAX_SUM

__all__ = ["MessageEngine"]

MAX_PASSES = 1000
"""Maximum number of pairs of passes; core's engine continues if they do not suffice."""

STILL = 1e-3
"""Relative change of the bound in four pairs of passes, in units of the tolerance, below which they
stop."""

SLOW = 1e-4
"""Fraction of the gap to the best rounding below which a fall of the bound ends the passes before a
search, which has better uses for the time."""


class MessageEngine(Engine):
    """Message passing on networks of tables; core's engine continues where it does not converge."""

    name = "messages"

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Prefer networks that take many iterations or will be searched, for LP-MAP.

        The best structures of separate factors need no engine.
        """
        if options.quadratic or part.all_direct:
            return None
        if options.exact:
            return networks_of(part).covered
        slow = _slow_components(part)
        return slow & networks_of(part).covered if slow.any() else None

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return why the engine cannot solve a part with these options, or None."""
        if options.quadratic:
            return "engine: 'messages' solves LP-MAP, without the quadratic term; use 'auto'."
        if not networks_of(part).covered.all():
            return (
                "engine: 'messages' solves networks of tables, but the graph has other factors; "
                "use 'auto', which assigns components to engines."
            )
        return None

    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedNetworks:
        """Pass messages in networks that take many iterations or will be searched.

        See `Engine.solve`. The given start is ignored.
        """
        networks, slow = networks_of(part), _slow_components(part)
        whole, served = networks.network, networks.covered & ~skip
        unit, in_unit, in_unit_v = in_units(part, eta, eta_v)
        scores = networks.scores(in_unit, in_unit_v)
        given, decisive = finite_scores(whole, scores)
        if decisive > MAX_SUM:
            served = np.zeros_like(served)
        shares = new_shares(whole)
        found, eliminated = empty_result(whole, part.n_components), np.zeros_like(served)
        if options.exact:
            orders, small = _orders(part)
            where = networks.first_node, networks.first_table
            eliminate_small(served & small, *where, whole, scores, orders, found)
            eliminated = found.score > -np.inf
            served = eliminated | (served & (slow | networks.of_pairs))
        ascend(
            served & ~eliminated,
            networks.first_node,
            networks.of_binaries,
            whole,
            given,
            shares,
            min(MAX_PASSES, options.max_iter),
            options.tol,
            STILL * options.tol,
            SLOW if options.exact else 0.0,
            found,
        )
        raise_interrupt()
        rest = unit, given, shares, found, decisive
        return SolvedNetworks(part, eta, eta_v, options, served, eliminated, *rest)


def _slow_components(part: Part) -> BoolArray:
    """Return which components have tables that take many iterations."""
    slow = np.zeros(part.n_components, dtype=bool)
    for bucket in part.buckets:
        if bucket.type.projection_kernel is None:  # active sets
            slow[bucket.component] |= has_tables(bucket.type)
        elif bucket.n_additionals:  # scores for the states of several variables
            tables = tables_of(bucket)
            slow[bucket.component] |= tables is not None and tables.always
    return slow


def _orders(part: Part) -> tuple[IntArray, BoolArray]:
    """Return the elimination order of each component's nodes, and which components to eliminate.

    The result is cached unless the time was up. Graphs with equal links can have different nodes:
    these depend on the factor types.
    """
    networks = networks_of(part)
    if _orders not in networks.known:
        order = np.zeros(len(networks.network.n_states), np.int64)
        where = networks.first_node, networks.first_table
        small = small_orders(*where, networks.network, order)
        raise_interrupt()
        if out_of_time():
            return order, small
        networks.known[_orders] = order, small
    found: tuple[IntArray, BoolArray] = networks.known[_orders]
    return found
