"""The engine for networks of tables, for LP-MAP."""

from __future__ import annotations

from lpsmap_core import Engine, Options, SolvedGraph
from lpsmap_core.api import BoolArray, FloatArray, Part, WarmStart
from lpsmap_decode.messages.message_passing import ascend_networks, slow_components
from lpsmap_decode.networks.network import networks_of

__all__ = ["MessageEngine"]


class MessageEngine(Engine):
    """Message passing on networks of tables; core's engine continues where it does not converge.

    The loop takes many iterations over tables. Messages need a few passes for nearly optimal
    duals. If an answer attains their bound, it is the solution, and core's iterations are not
    needed. Otherwise core starts from both. If an exact assignment is requested, small networks are
    solved by elimination.
    """

    name = "messages"

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Prefer networks that take many iterations or will be searched, for LP-MAP.

        The best structures of separate factors need no engine.
        """
        if options.quadratic or part.all_direct:
            return None
        if options.exact:
            return networks_of(part).covered
        slow = slow_components(part)
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
    ) -> SolvedGraph:
        """Solve the networks of a part; see `Engine.solve`. The given start is ignored."""
        return ascend_networks(part, eta, eta_v, ~skip, options)
