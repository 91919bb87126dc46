"""Starting points of the loop near the solution, which plugins find for components that they serve.

Without one, a component starts from zero, or from an earlier solution.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lpsmap_core.engine.problem import ONE, problem_at
from lpsmap_core.layout.layout import Part
from lpsmap_core.plugins.registry import installed
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf


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
            Written for these components alone, as in `WarmStart`; the loop shifts the duals of
            every variable so that they sum to zero.
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
    n = part.n_components
    return [ServedStart(s, checked_flags(s, flags, n)) for s, flags in served if flags is not None]


def checked_flags(start: Start, flags: object, n: int) -> BoolArray:
    """Return what a start returned for `n` components; an error if these are not booleans."""
    if isinstance(flags, np.ndarray) and flags.dtype == np.bool_ and flags.shape == (n,):
        return flags
    cls = type(start)
    raise RuntimeError(
        f"start {start.name!r} returned {flags!r:.80}; expected an array of {n} booleans, one per "
        f"component. This is a bug of {cls.__module__}.{cls.__qualname__}: report it to its author."
    )


@leaf
def centre_duals(components: IntArray, problem: Any) -> None:
    """Shift the duals of each variable of some components so that they sum to zero.

    Otherwise they would count as scores.
    """
    record = problem_at(problem)
    offsets, duals, begin = record.links.offsets, record.iterate.duals, record.spans.first_variable
    for c in components:
        for v in range(np.uint64(begin[c]), np.uint64(begin[c + 1])):
            lo, hi, total = offsets[v], offsets[v + ONE], 0.0
            for e in range(lo, hi):
                total += duals[e]
            mean = total / np.float64(hi - lo)
            for e in range(lo, hi):
                duals[e] -= mean
