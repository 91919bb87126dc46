"""What a solve works with: memory, and solvers of local problems, which serve again and again.

A small solve takes less time than all that is to be made for it. So a part keeps what its latest
solves worked with, for a solve that comes when nobody has their solutions any more. It looks for
that itself: Python drops what the handler of a signal raises while an object is finalized.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable
from typing import Any, NamedTuple

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import new_problem
from lpsmap_core.kernels.arrays import ByteArray
from lpsmap_core.kernels.memory import Memory
from lpsmap_core.kernels.tiers import interprets
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.solvers import LocalSolver, local_solver, make_solver_table

__all__ = ["Workplace", "give_back_tools", "take_tools", "take_workplace"]

SMALL = 10_000
"""Links of a part that keeps workplaces; larger solves take long enough to make their own."""


class Workplace:
    """What a solve of a part works with, while nobody else does.

    Parameters
    ----------
    part
        The part.
    options
        Of which the quadratic term and the choice of solvers count.
    """

    def __init__(self, part: Part, options: Options) -> None:
        self._kind = _kind_of(options)
        self._serves_again = part.n_links <= SMALL and not part.n_additionals
        self.problem = new_problem(part, options.quadratic)
        self.record = self.problem.record
        self.solvers: list[LocalSolver] = []
        self.table: Any = None
        """How compiled loops call the solvers."""
        self.together, self.whole_faces = False, True
        """Whether any solver serves many rows at once much faster, and whether all report whole
        faces, which derivatives take as they are."""

    def equip(self, part: Part, barred: ByteArray | None) -> None:
        """Have solvers that know what is forbidden; None for nothing.

        Near the solution of LP-MAP few structures matter, and the oracle finds them sooner than a
        closed form that iterates.
        """
        if self.solvers and barred is None:
            return
        _, generic, limited, _ = self._kind
        self.solvers = [
            local_solver(
                bucket,
                part.delta[part.links_of(b)],
                generic,
                limited,
                None if barred is None else barred[part.additionals_of(b)],
            )
            for b, bucket in enumerate(part.buckets)
        ]
        self.table = make_solver_table(self.solvers)
        self.together = any(solver.vectorised for solver in self.solvers)
        self.whole_faces = not any(isinstance(solver, ActiveSets) for solver in self.solvers)

    def lend(self, part: Part, user: object) -> None:
        """Let another solve of the part have it, if it can, when nobody holds its user any more.

        Nor may anybody hold an array of it, then. Marginals of additionals go to solutions as they
        are, and active sets keep what they know.
        """
        if self._serves_again and self.whole_faces:
            # a solution is found while the one before it is still there
            lent = part.spare.setdefault((Workplace, self._kind), deque(maxlen=2))
            lent.append(_Lent(self, weakref.ref(user)))

    def renew(self) -> bool:
        """Be as it was made; false if it cannot."""
        self.problem.clear()
        return all(solver.renew() for solver in self.solvers)


class _Lent(NamedTuple):
    """A workplace, and whose it is while that is there."""

    workplace: Workplace
    user: weakref.ref[object]


def take_workplace(part: Part, options: Options) -> Workplace:
    """Return a workplace that is nobody else's."""
    latest: deque[_Lent] = part.spare.get((Workplace, _kind_of(options)), deque())
    for _ in range(len(latest)):
        try:
            lent = latest.popleft()  # which no other thread gets, too
        except IndexError:
            break
        if lent.user() is not None:
            latest.append(lent)
        elif lent.workplace.renew():
            return lent.workplace
    return Workplace(part, options)


def take_tools(part: Part, kind: Hashable) -> tuple[Memory[Any], ...] | None:
    """Return memory of some kind, as it was made, that is nobody else's; None if there is none."""
    found: tuple[Memory[Any], ...] | None = part.spare.pop(kind, None)
    for memory in found or ():
        memory.clear()
    return found


def give_back_tools(part: Part, kind: Hashable, *memories: Memory[Any]) -> None:
    """Keep memory for who takes it next. Nobody may hold it, nor an array of it."""
    if part.n_links <= SMALL:
        part.spare[kind] = memories


def _kind_of(options: Options) -> tuple[float, bool, bool, bool]:
    """Return the settings that a workplace depends on."""
    limited = options.max_inner_iter is not None or options.quadratic == 0.0
    return options.quadratic, options.generic, limited, interprets()
