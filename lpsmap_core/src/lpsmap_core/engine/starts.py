"""Starting points of the loop near the solution, which plugins find for components that they serve.

Without one, a component starts from zero, or from an earlier solution.
"""

from __future__ import annotations

import abc
from typing import ClassVar, NamedTuple

from lpsmap_core.layout.layout import Part
from lpsmap_core.plugins.registry import installed
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

__all__ = ["ServedStart", "Start", "starts_of"]


class Start(abc.ABC):
    """Finds starting points of core's loop. Plugins provide starts by the hook ``lpsmap_starts``.

    A start affects the time of a solve, not its result. It is constructed without arguments, and
    keeps no state between solves.
    """

    name: ClassVar[str]
    """Name of the start in the registry."""
    linear: ClassVar[bool] = False
    """Whether its points are for LP-MAP. Otherwise they are for the quadratic term."""

    @abc.abstractmethod
    def serves(self, part: Part) -> BoolArray | None:
        """Return for each component whether `find` serves it, or None for no component.

        This must be fast, because every solve calls it. `Part.derived` stores what it computes.

        Parameters
        ----------
        part
            The part.
        """

    @abc.abstractmethod
    def find(
        self,
        part: Part,
        components: IntArray,
        score: FloatArray,
        tolerance: FloatArray,
        u: FloatArray,
        duals: FloatArray,
    ) -> BoolArray:
        """Write the starting points of some components, and return which of them have one.

        Several threads call this for different components at the same time.

        Parameters
        ----------
        part
            The part.
        components
            The components, all of which `serves` names.
        score
            For each variable, its score divided by the square root of its degree; ``-inf`` forbids
            it, and ``inf`` forces it on.
        tolerance
            For each component, the rounding of its largest score.
        u, duals
            Written for these components alone, as in `WarmStart`.
        """


class ServedStart(NamedTuple):
    """A start, and the components that it serves."""

    start: Start
    components: BoolArray


def starts_of(part: Part, linear: bool) -> list[ServedStart]:
    """Return the installed starts that serve components of a part, for LP-MAP if `linear`."""
    kinds = [registration.value for registration in installed().starts.values()]
    starts = [kind() for kind in kinds if kind.linear == linear]
    served = [(start, start.serves(part)) for start in starts]
    return [ServedStart(start, flags) for start, flags in served if flags is not None]
