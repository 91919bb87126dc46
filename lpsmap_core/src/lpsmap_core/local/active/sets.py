"""The generic active set: SparseMAP of any factor with a MAP oracle (Niculae et al. 2018, A.2).

Solves, for many factors at once, in lock-step with their oracle,

    minimise 1/2 ||z - a||^2 - <eta_v, v>   s.t.  delta * z = M p,  v = N p,  p in the simplex

over a growing and shrinking set of structures per factor: the oracle's best structure joins, the
weights move to the optimum of the set, and structures whose weight falls to zero on the way leave.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lpsmap_core.kernels.entries import address_of
from lpsmap_core.kernels.records import Scores
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.answers import (
    PythonOracles,
    ask_kernel,
    refuse_structure,
    room_for_structures,
    vertex_sizes,
)
from lpsmap_core.local.active.handle import GIVE_BACK, GROW, LARGE_SET, REFUSE, SetsRecord
from lpsmap_core.local.active.memory import (
    MOST_NEWCOMERS,
    ActiveSet,
    block_size,
    carve_set,
    move_set,
    room,
)
from lpsmap_core.local.active.steps import (
    measure,
    multiply_active_sets,
    read_out,
    solve_active_sets,
)
from lpsmap_core.local.active.ties import complete_faces
from lpsmap_core.local.protocol import ANSWER, RUNNING, LocalSolver, Question, SolverDescription
from lpsmap_core.local.vertices import Vertices
from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.memory import record_in
from lpsmap_jit.tiers import interprets

__all__ = ["ActiveSets", "first_capacity"]

FEWEST_PLACES, MOST_PLACES = 4, 64
"""Structures that a set has room for before it grows: a quarter of its variables, within these."""

LARGE_CAPACITY = 64
"""Room that is doubled where it does not suffice; less is quadrupled, for few calls."""


MOST_KEPT = 1 << 25
"""Words of all blocks beyond which large sets give their triangles back: 256 megabytes."""


class ActiveSets(LocalSolver):
    """The active sets of a bucket: solve, differentiate and read the distributions.

    Solves are warm-started from the latest sets. A factor whose iterations ran out keeps the status
    ``RUNNING``; one that cannot improve in floating point has ``STALLED``. Products on the faces
    are ``[W; N] Q [W; N]^T`` with ``Q`` the inverse of the Gram matrix on the weights that sum to
    zero (Niculae & Martins 2020, Eq. 38 and 39).

    A subclass that begins with active sets, or falls back on them, has kernels of its own, which
    call `solve_active_sets` and `multiply_active_sets`.

    Parameters
    ----------
    bucket
        Factors whose type has a MAP oracle.
    delta
        For each slot, the square root of its variable's degree.
    barred
        For each additional, whether it is forbidden; without, no slot is forced either.
    """

    kernels: ClassVar[tuple[tuple[Any, Any], ...]] = ((solve_active_sets, multiply_active_sets),)
    vectorised = False
    iterates = True
    lists_structures = True
    faces_complete = False
    starts_warm = True

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        self.inverse_delta = 1.0 / delta
        self.width = np.maximum(vertex_sizes(bucket), 1)
        n = len(self.width)
        self._first_capacity = first_capacity(bucket)
        self.capacity = self._first_capacity.copy()
        self.active = np.zeros(n, dtype=np.int64)
        self.waiting = np.zeros(n, dtype=np.int64)
        self._first_length = block_size(self.width, self.capacity)
        self._first_ends = np.cumsum(self._first_length)
        self._first = np.empty(self._first_ends[-1] if n else 0)
        self._grown: dict[int, FloatArray] = {}
        self.address = np.empty(n, dtype=np.int64)
        self.length = np.empty(n, dtype=np.int64)
        self.candidates = room_for_structures(self.width)
        self.scores = np.empty(bucket.n_links)
        self._oracles: PythonOracles | None = None
        self._write_addresses()
        super().__init__(bucket, delta, barred)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return what `FactorGraph.plan` says of it where it serves `factor_type`."""
        oracle = factor_type.map_kernel
        compiled = "compiled" if hasattr(oracle, "overloads") else "Python"
        function = oracle or factor_type.solve_map
        return SolverDescription(f"active set, {compiled} oracle", function, "no closed form")

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
    ) -> None:
        """Add, with weight zero, structures that are tied with the active ones at `z`.

        With tied scores a solution can lie on a smaller simplex of structures than its face has
        dimensions, the centre of a square on a diagonal, say; and a solution found to the last
        digit can do without structures whose weights would be smaller than that. Scores tilted at
        right angles to the simplex are the same for all of it, and since `z` lies inside its face,
        larger for some structure of the face unless the simplex has all its dimensions.
        """
        rows = self.incomplete(rows)
        if not len(rows):
            return
        large = self.active[rows] >= LARGE_SET
        for some in (rows[~large], *rows[large].reshape(-1, 1)):  # large ones one at a time
            self.grow(some)  # which an interruption may have left to do
            complete_faces(self.handle, some, a, eta_v, z)
            self.raise_error()

    def incomplete(self, rows: IntArray) -> IntArray:
        """Return the factors of `rows` that `complete_faces` has to look at."""
        ended: IntArray = rows[self.status[rows] != RUNNING]
        return ended

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures of positive weight of the factors in `rows`."""
        n_structures, n_entries = measure(self.handle, rows)
        owner, weight = np.empty(n_structures, dtype=np.int64), np.empty(n_structures)
        offsets = np.zeros(n_structures + 1, dtype=np.int64)
        entry, value = np.empty(n_entries, dtype=np.int64), np.empty(n_entries)
        read_out(self.handle, rows, owner, weight, offsets, entry, value)
        return Vertices(owner, weight, offsets, entry, value)

    def set_of(self, f: int) -> ActiveSet:
        """Return the active set of factor `f`."""
        return carve_set(self._block(f), self.width[f], self.capacity[f], *self._counts(f))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (*vars(self).values(), *self.candidates, *self._grown.values())
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def _counts(self, f: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return the numbers of active and waiting structures of a factor, and its status."""
        one = slice(f, f + 1)
        return self.active[one], self.waiting[one], self.status[one]

    def _block(self, f: int) -> FloatArray:
        if f in self._grown:
            return self._grown[f]
        end = self._first_ends[f]
        return self._first[end - self._first_length[f] : end]

    # ---------------------------------------------------------------- what compiled loops need

    def _sets_record(self) -> SetsRecord:
        """Return what compiled loops need to know of these sets."""
        oracle = self.bucket.type.map_kernel
        return SetsRecord(
            0 if oracle is None or interprets() else address_of(oracle, "map_kernel"),
            self.bucket.factors,
            self.inverse_delta,
            self.scores,
            self.candidates,
            self.width,
            self.capacity,
            self.address,
            self.length,
            self.active,
            self.waiting,
            self.status,
            int(self.forbids),
            self.barred,
        )

    def _write_addresses(self) -> None:
        """Tell compiled loops where the blocks are."""
        self.length[:] = self._first_length
        words = self._first_ends - self.length
        self.address[:] = self._first.ctypes.data + self._first.itemsize * words
        for f, block in self._grown.items():
            self.address[f], self.length[f] = block.ctypes.data, len(block)

    def _called(self, what: int, argument: int) -> None:
        """Do for a compiled loop what only Python can."""
        if what == ANSWER:
            super()._called(what, argument)
            return
        question = record_in(Question, argument)
        rows = question.rows
        if what == GROW:
            self.grow(rows)
        elif what == GIVE_BACK:
            self.give_back(rows)
        elif what == REFUSE:
            refuse_structure(self.bucket, int(rows[0]), self.candidates)
        else:
            self.solve_map(rows, question.second)

    def grow(self, rows: IntArray) -> None:
        """Make room for more structures in every active set in `rows` that is nearly full.

        And for the triangles of those that gave theirs back.
        """
        nearly = self.active[rows] + MOST_NEWCOMERS >= self.capacity[rows]
        short = self.length[rows] < block_size(self.width[rows], self.capacity[rows])
        for f in rows[nearly | short].tolist():
            width, before = int(self.width[f]), int(self.capacity[f])
            needed, capacity = room(int(self.active[f])), before
            while capacity < needed:
                capacity *= 4 if capacity < LARGE_CAPACITY else 2
            length = block_size(width, capacity)
            if capacity > before or self.length[f] < length:
                self._move(f, np.empty(length), capacity)

    def give_back(self, rows: IntArray) -> None:
        """Free the triangles of large sets, which can be made again, where all take much memory.

        Only those of `rows` that share no variable: others are soon asked again.
        """
        for f in rows[self.active[rows] >= LARGE_SET].tolist():
            slots = slice(self.bucket.offsets[f], self.bucket.offsets[f + 1])
            taken = sum(map(len, list(self._grown.values())))
            if taken > MOST_KEPT and (self.inverse_delta[slots] == 1.0).all():
                width, capacity = int(self.width[f]), room(int(self.active[f]))
                self._move(f, np.empty(block_size(width, capacity, triangle=False)), capacity)

    def _move(self, f: int, block: FloatArray, capacity: int) -> None:
        """Move a set to another block."""
        width, before = int(self.width[f]), int(self.capacity[f])
        move_set(self._block(f), block, width, before, capacity, *self._counts(f))
        at, length = block.ctypes.data, len(block)
        # the old block was the set's until here, for this is the only thread that works on it; no
        # handler of a signal runs between these
        self._grown[f], self.capacity[f] = block, capacity
        self.address[f], self.length[f] = at, length

    def forget(self, rows: IntArray) -> None:
        """Empty the active sets of factors, and give their memory back."""
        for f in rows.tolist():
            self.active[f], self.capacity[f] = 0, self._first_capacity[f]
            block = self._first[self._first_ends[f] - self._first_length[f] : self._first_ends[f]]
            self.address[f], self.length[f] = block.ctypes.data, len(block)
            self._grown.pop(f, None)

    def copy_from(self, other: LocalSolver) -> None:
        """Start from the sets that another solve of the same factors ended with."""
        if not isinstance(other, ActiveSets):
            return
        self._first = other._first.copy()
        self._grown = {f: block.copy() for f, block in other._grown.items()}
        self.capacity[:], self.active[:] = other.capacity, other.active
        self.status[:] = other.status
        self._write_addresses()
        self.grow(np.arange(len(self.active)))  # which the end of the time may have left to do

    def solve_map(self, rows: IntArray, eta_v: FloatArray) -> None:
        """Write the best structures of `rows`, for the current scores of slots and `eta_v`."""
        if self.bucket.type.map_kernel is not None:
            ask_kernel(self.bucket, rows, Scores(self.scores, eta_v), self.candidates)
            return
        if self._oracles is None:
            self._oracles = PythonOracles(self.bucket, self.candidates)
        self._oracles.ask(rows, self.scores, eta_v)


def first_capacity(bucket: Bucket) -> IntArray:
    """Return how many structures the sets of a bucket's factors have room for at first."""
    quarter: IntArray = np.diff(bucket.offsets) // 4
    return np.minimum(np.maximum(quarter, FEWEST_PLACES), MOST_PLACES)
