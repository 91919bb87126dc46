"""The engine of networks of tables, for LP-MAP."""

from __future__ import annotations

from lpsmap_core import Engine, Options, SolvedGraph
from lpsmap_core.api import BoolArray, FloatArray, Part, WarmStart
from lpsmap_decode.messages.ascended import ascend_networks, slow_components
from lpsmap_decode.messages.solved_networks import SolvedNetworks
from lpsmap_decode.networks.network import networks_of

__all__ = ["MessageEngine"]


class MessageEngine(Engine):
    """Messages between the tables of networks; what they do not solve, core's engine goes on with.

    Active sets take many iterations over tables. Messages need a few passes for duals of nearly the
    best bound. Where an answer scores as much, that is the solution, and no loop is needed.
    Elsewhere the loop sets out from both. Where the best assignment is asked for, small networks
    are eliminated.
    """

    name = "messages"

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Prefer networks, for LP-MAP, that have active sets, or that will be searched."""
        if options.quadratic:
            return None
        if options.exact:
            return networks_of(part).covered
        slow = slow_components(part)
        return slow & networks_of(part).covered if slow.any() else None

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return why it cannot solve a part with these options, if so."""
        if options.quadratic:
            return "engine: 'messages' finds LP-MAP, without the quadratic term; use 'auto'."
        if not networks_of(part).covered.all():
            return (
                "engine: 'messages' solves networks of tables, and other factors are in the "
                "graph; use 'auto', which gives it what it can solve."
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
    ) -> SolvedGraph:
        """Solve the networks of a part, see `Engine.solve`; from nothing, whatever the start."""
        return SolvedNetworks(ascend_networks(part, eta, eta_v, ~skip, options), options)
