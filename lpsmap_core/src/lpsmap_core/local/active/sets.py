"""The generic active set: SparseMAP of any factor with a MAP oracle (Niculae et al. 2018, A.2).

It solves, for many factors at once,

    minimise 1/2 ||z - a||^2 - <eta_v, v>   s.t.  delta * z = M p,  v = N p,  p in the simplex

over a changing set of structures per factor. The oracle's best structure joins, the weights move to
the optimum of the set, and structures whose weight falls to zero on the way leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lpsmap_core.kernels.entries import Entry
from lpsmap_core.kernels.records import Scores
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.memory import (
    MAX_NEWCOMERS,
    SetsRecord,
    block_size,
    copy_sets,
    needed_capacity,
)
from lpsmap_core.local.active.oracle_results import (
    PythonOracles,
    allocate_structures,
    ask_oracle,
    call_map_kernel,
    raise_invalid_structure,
    vertex_sizes,
)
from lpsmap_core.local.active.steps import (
    advance,
    measure,
    multiply_faces,
    read_out,
    restart,
    write_additionals,
)
from lpsmap_core.local.active.ties import MAX_TILT, add_tied, draw_wave, tilt_scores
from lpsmap_core.local.local_solver import RUNNING, LocalSolver, SolverDescription
from lpsmap_core.local.vertices import Vertices
from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.interrupts import interrupted, raise_interrupt

MIN_FIRST_CAPACITY, MAX_FIRST_CAPACITY = 4, 64
"""Limits of the first capacity of a set, which is a quarter of its variables."""

LARGE_CAPACITY = 64
"""Capacity from which a full set doubles; smaller sets quadruple, which takes fewer calls."""

MAX_FIRST_WORDS = 1 << 21
"""Words of the first blocks, 16 MiB, above which the sets of a bucket rest between solves."""

SMALL_SET = 32
"""Number of structures up to which resting sets have no triangle, which takes little time to make
again."""

MAX_WORK_WORDS = 1 << 19
"""Words of the blocks of resting sets that are solved together, 4 MiB, which stay in the cache."""

MAX_KEPT_WORDS = 1 << 25
"""Words of all blocks, 256 MiB, above which large sets release their triangles."""

LARGE_SET = 1_000
"""Number of structures from which the memory of a triangle, 4 MB, is worth releasing."""

NO_CAPS = np.empty(0, dtype=np.int64)
"""No further limits of iterations."""

MAX_TRIANGLE_WORDS = 1 << 25
"""Words of the triangles of whole faces that are completed together, unless one has more."""


class ActiveSets(LocalSolver):
    """The active sets of a bucket: they solve, differentiate and list the structures.

    Solves start warm from the latest sets. A factor that runs out of iterations keeps the status
    ``RUNNING``; one that cannot improve in floating point gets ``OPTIMAL_TO_ROUNDING``. Products
    on the faces are ``[W; N] Q [W; N]^T`` with ``Q`` the inverse of the Gram matrix on the weights
    that sum to zero (Niculae & Martins 2020, Eq. 38 and 39).

    A subclass that starts with active sets or falls back to them calls `solve_sets`.

    Parameters
    ----------
    bucket
        Factors whose type has a MAP oracle.
    delta
        For each slot, the square root of its variable's degree.
    forbidden
        For each additional, whether it is forbidden. If None, no slot is forced either.
    """

    vectorised = False
    iterates = True
    lists_structures = True
    faces_complete = False
    starts_warm = True

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        self.width = np.maximum(vertex_sizes(bucket), 1)
        n = len(self.width)
        self._first_capacity = first_capacity(bucket)
        self.capacity = self._first_capacity.copy()
        self.active = np.zeros(n, dtype=np.int64)
        self.waiting = np.zeros(n, dtype=np.int64)
        self.iterations_left = np.zeros(n, dtype=np.int64)
        self._is_large = self._released = False
        """Whether any set may be large, and whether any triangle was released."""
        self._first_length = block_size(self.width, self.capacity)
        self._rests = bool(self._first_length.sum() > MAX_FIRST_WORDS)
        if self._rests:
            self._first_length[:] = self.capacity[:] = 0
        self._resting = np.zeros((3, n), dtype=np.int64)
        """For each set, the address, the length and the capacity of the block in which it rests."""
        self._first_ends = np.cumsum(self._first_length)
        self._first = np.empty(self._first_ends[-1] if n else 0)
        self._grown: dict[int, FloatArray] = {}
        self.address = np.empty(n, dtype=np.int64)
        self.length = np.empty(n, dtype=np.int64)
        self.candidates = allocate_structures(self.width)
        self.scores = np.empty(bucket.n_links)
        # see `lpsmap_core.local.active.smoothing`
        self._centre = np.empty(bucket.n_links if bucket.n_additionals else 0)
        self._bound, self._exchanges, self._smooths = np.empty(n), *np.zeros((2, n), dtype=np.int64)
        self._oracle = Entry(bucket.type.map_kernel, "map_kernel")
        self._oracles: PythonOracles | None = None
        self._write_addresses()
        super().__init__(bucket, delta, forbidden)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description in `FactorGraph.plan` for the type `factor_type`."""
        oracle = factor_type.map_kernel
        compiled = "compiled" if hasattr(oracle, "overloads") else "Python"
        function = oracle or factor_type.solve_map
        return SolverDescription(f"active set, {compiled} oracle", function, "no closed form")

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of `rows`; see `LocalSolver`."""
        self.solve_sets(rows, a, eta_v, z, max_iterations)
        if len(v):
            self.write_additionals(rows, v)

    def solve_sets(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        max_iterations: int,
        caps: IntArray = NO_CAPS,
    ) -> None:
        """Solve the local problems of `rows` by active sets, without marginals of additionals.

        An iteration asks the oracle for the best structure of every running factor, and lets it
        join the factor's set.

        Parameters
        ----------
        rows, a, eta_v, z, max_iterations
            As for `solve`.
        caps
            A further limit of iterations for each of `rows`; empty without.
        """
        if self._rests:
            for some in self._at_work(rows):
                self._solve_sets(rows[some], a, eta_v, z, max_iterations, caps[some])
        else:
            if self._released:
                self.grow(rows)
            self._solve_sets(rows, a, eta_v, z, max_iterations, caps)
            self.release(rows)
        raise_interrupt()

    def _solve_sets(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        max_iterations: int,
        caps: IntArray,
    ) -> None:
        """Solve the local problems of sets that do not rest; see `solve_sets`."""
        handle, running, n = self.handle, rows.copy(), len(rows)
        restart(handle, rows, a, eta_v, z, max_iterations, caps)
        while n and not interrupted():
            running = running[:n]
            self.find_candidates(running, eta_v)
            n, full = advance(handle, running, a, eta_v, z)
            if full:
                self.grow(rows)

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`; see `LocalSolver`."""
        multiply_faces(self.handle, rows, d_u, d_v, out_u, out_v)

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
    ) -> None:
        """Add structures that are tied with the active ones at `z`, with weight zero.

        With tied scores, the simplex of a solution can have fewer dimensions than its face, such as
        the centre of a square on a diagonal. A solution can also lack structures whose weights
        would be below rounding: about 52 structures represent a mean like binary digits. A time
        limit leaves faces incomplete, and a further call continues.
        """
        rows = self.incomplete(rows)
        if not len(rows):
            return
        most = np.diff(self.bucket.offsets)[rows] + 1
        words = np.cumsum(most * (most + 1) // 2)
        for some in np.split(rows, np.flatnonzero(np.diff(words // MAX_TRIANGLE_WORDS)) + 1):
            self.grow(some)  # an interrupt may have prevented it
            self._complete(some, a, eta_v, z)
            self.release(some)

    def _complete(self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray) -> None:
        """Complete the faces of some factors with enough memory; see `complete_faces`."""
        handle, offsets, attempt = self.handle, self.bucket.offsets, 0
        wave, along, nothing = np.zeros(len(a)), np.zeros(len(a)), np.empty(0)
        tilt = np.full(self.bucket.n_factors, MAX_TILT)
        while len(rows):
            draw_wave(rows, offsets, attempt, wave)
            multiply_faces(handle, rows, wave, nothing, along, nothing)
            tilt_scores(handle, rows, a, eta_v, z, wave, along, tilt)
            self.find_candidates(rows, eta_v)
            if interrupted():
                break
            if add_tied(handle, rows, a, eta_v, z, tilt):
                self.grow(rows)
            rows, attempt = rows[tilt[rows] > 0.0], attempt + 1

    def incomplete(self, rows: IntArray) -> IntArray:
        """Return the factors of `rows` that `complete_faces` has to complete."""
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

    def write_additionals(self, rows: IntArray, v: FloatArray) -> None:
        """Write the marginals of the additionals of solved `rows`."""
        write_additionals(self.handle, rows, v)

    @property
    def delta(self) -> FloatArray:
        """The square roots of the degrees, of which only the inverses are stored."""
        return 1.0 / self.inverse_delta

    @delta.setter
    def delta(self, delta: FloatArray) -> None:
        self.inverse_delta = 1.0 / delta

    # ---------------------------------------------------------------- memory

    def own_record(self) -> Any:
        """Return the record of the sets; a subclass with arrays of its own puts it before them."""
        return SetsRecord(
            self._oracle.place,
            self.bucket.factors,
            self.inverse_delta,
            self.scores,
            self._centre,
            self._bound,
            self._exchanges,
            self._smooths,
            self.candidates,
            self.width,
            self.capacity,
            self.address,
            self.length,
            self.active,
            self.waiting,
            self.iterations_left,
            self.status,
            int(self.forbids),
            self.forbidden,
        )

    def _write_addresses(self) -> None:
        """Write the addresses and lengths of the blocks for kernels."""
        self.length[:] = self._first_length
        words = self._first_ends - self.length
        self.address[:] = self._first.ctypes.data + self._first.itemsize * words
        for f, block in self._grown.items():
            self.address[f], self.length[f] = block.ctypes.data, len(block)

    def _at_work(self, rows: IntArray) -> Iterator[slice]:
        """Yield slices of `rows` whose resting sets have memory for more structures for a while."""
        capacity = np.maximum(self._first_capacity[rows], 2 * self.active[rows])
        length = block_size(self.width[rows], capacity)
        ends = np.cumsum(length)
        cuts = np.flatnonzero(np.diff(ends // MAX_WORK_WORDS)) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
            some = slice(first, last)
            block = np.empty(length[some].sum())
            starts = ends[some] - ends[first] + length[first] - length[some]
            address = block.ctypes.data + block.itemsize * starts
            self._move_all(rows[some], address, length[some], capacity[some])
            yield some
            self.release(rows[some])
            del block  # before the next one is allocated

    def _lay_to_rest(self, rows: IntArray) -> None:
        """Move sets to blocks that hold their structures; most fit into their last one."""
        count, capacity = self.active[rows], self._resting[2, rows]
        blocks = {}
        for f in rows[(count > capacity) | (2 * count < capacity)].tolist():
            width, n = int(self.width[f]), int(self.active[f])
            block = blocks[f] = np.empty(block_size(width, n, triangle=n > SMALL_SET))
            self._resting[:, f] = block.ctypes.data, len(block), n
            self._is_large |= n > LARGE_SET
        self._move_all(rows, *self._resting[:, rows])
        self._grown |= blocks

    def _move_all(
        self, rows: IntArray, address: IntArray, length: IntArray, capacity: IntArray
    ) -> None:
        copy_sets(self.handle, rows, address, length, capacity)
        self.address[rows], self.length[rows], self.capacity[rows] = address, length, capacity

    def grow(self, rows: IntArray) -> None:
        """Grow the active sets in `rows` that are nearly full.

        Sets that released their triangles get memory for them again.
        """
        nearly = self.active[rows] + MAX_NEWCOMERS >= self.capacity[rows]
        short = self.length[rows] < block_size(self.width[rows], self.capacity[rows])
        for f in rows[nearly | short].tolist():
            width, before = int(self.width[f]), int(self.capacity[f])
            needed, capacity = needed_capacity(int(self.active[f])), max(before, 1)
            while capacity < needed:
                capacity *= 4 if capacity < LARGE_CAPACITY else 2
            length = block_size(width, capacity)
            if capacity > before or self.length[f] < length:
                self._move(f, np.empty(length), capacity)

    def release(self, rows: IntArray) -> None:
        """Release the triangles of large sets if all blocks together take much memory.

        This applies only to factors in `rows` that share no variable; others are soon solved again.
        The sets of a large bucket are laid to rest.
        """
        if self._rests:
            self._lay_to_rest(rows)
        if not self._is_large:
            return
        for f in rows[self.active[rows] >= LARGE_SET].tolist():
            slots = slice(self.bucket.offsets[f], self.bucket.offsets[f + 1])
            taken = sum(map(len, list(self._grown.values())))
            if taken > MAX_KEPT_WORDS and (self.inverse_delta[slots] == 1.0).all():
                width, capacity = int(self.width[f]), needed_capacity(int(self.active[f]))
                self._move(f, np.empty(block_size(width, capacity, triangle=False)), capacity)
                self._released = True

    def _move(self, f: int, block: FloatArray, capacity: int) -> None:
        # no other thread uses this set, and no signal handler runs before its block is kept
        self._move_all(np.array([f]), *np.array([[block.ctypes.data], [len(block)], [capacity]]))
        self._grown[f] = block
        self._resting[:, f] = 0  # its former block is gone
        self._is_large |= capacity > LARGE_SET

    def forget(self, rows: IntArray) -> None:
        """Empty the active sets of factors and release their memory."""
        for f in rows.tolist():
            self.active[f], self.capacity[f] = 0, 0 if self._rests else self._first_capacity[f]
            block = self._first[self._first_ends[f] - self._first_length[f] : self._first_ends[f]]
            self.address[f], self.length[f] = block.ctypes.data, len(block)
            self._resting[:, f] = 0
            self._grown.pop(f, None)

    def copy_from(self, other: LocalSolver) -> None:
        """Start from the final sets of another solve of the same factors."""
        if not isinstance(other, ActiveSets):
            return
        self._first = other._first.copy()
        self._grown = {f: block.copy() for f, block in other._grown.items()}
        self.capacity[:], self.active[:] = other.capacity, other.active
        self.status[:] = other.status
        self._is_large, self._released = other._is_large, other._released
        self._write_addresses()
        if self._rests:
            self._resting[:] = self.address, self.length, self.capacity
        else:
            self.grow(np.arange(len(self.active)))  # a time limit may have prevented it

    def find_candidates(self, rows: IntArray, eta_v: FloatArray) -> None:
        """Write the best structures of `rows` for the current scores of slots and `eta_v`."""
        if self._oracle.ready():
            wrong = ask_oracle(self.handle, rows, eta_v)
            if wrong >= 0:
                raise_invalid_structure(self.bucket, int(rows[wrong]), self.candidates)
            return
        if self.bucket.type.map_kernel is not None:
            call_map_kernel(self.bucket, rows, Scores(self.scores, eta_v), self.candidates)
            return
        if self._oracles is None:
            self._oracles = PythonOracles(self.bucket, self.candidates)
        self._oracles.solve(rows, self.scores, eta_v)


def first_capacity(bucket: Bucket) -> IntArray:
    """Return the first capacities of the sets of a bucket's factors, in structures."""
    quarter: IntArray = np.diff(bucket.offsets) // 4
    return np.minimum(np.maximum(quarter, MIN_FIRST_CAPACITY), MAX_FIRST_CAPACITY)
