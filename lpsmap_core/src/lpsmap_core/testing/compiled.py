"""Checks of a compiled oracle: it agrees with the plain one, and writes where it may."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.kernels.entries import address_of
from lpsmap_core.kernels.records import Scores, Structures
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import bucket_of, local_problems
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.oracle import Oracle, oracles_of, vertices_seen
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray, IntArray

__all__ = [
    "KernelAnswers",
    "ask_kernel",
    "check_map_kernel",
    "check_vertex_sizes",
    "require_as_good",
]

UNTOUCHED = -7
"""What buffers hold before a kernel writes."""


def check_vertex_sizes(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """vertex_sizes leaves room for every structure's nonzeros, because kernels write that many."""
    rng = np.random.default_rng(seed)
    sizes = _sizes(bucket_of(factor, 1))
    if sizes.shape != (factor.n_factors,) or sizes.dtype.kind != "i":
        raise broken(
            "vertex_sizes returns one integer for every factor, because buffers are cut by it",
            f"{sizes.dtype} of shape {sizes.shape}",
            f"integers of shape {(factor.n_factors,)}",
            repr(factor),
        )
    for oracle, size in zip(oracles_of(factor), sizes, strict=True):
        for vertex in vertices_seen(oracle, rng, draws):
            if np.count_nonzero(vertex) > size:
                raise broken(
                    "vertex_sizes is at least the number of nonzeros of every vertex, because "
                    "kernels write so many entries",
                    f"{size} for {vertex.tolist()}",
                    f"at least {np.count_nonzero(vertex)}",
                    oracle.name,
                )


def check_map_kernel(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """map_kernel answers as well as solve_map, for the rows asked, within its room.

    Every other factor is asked, so that writing for one that was not shows.
    """
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws, decades=4.0)
    bucket, oracles = problems.bucket, oracles_of(factor)
    seen = [vertices_seen(oracle, rng, draws) for oracle in oracles]
    for start in (0, 1):
        rows = np.arange(start, bucket.n_factors, 2)
        given = Scores(problems.a.copy(), problems.eta_v.copy())
        answers = ask_kernel(bucket, rows, *given)
        _require_unchanged(factor, given, Scores(problems.a, problems.eta_v))
        _require_room(factor, bucket, rows, answers)
        for f in rows:
            oracle = oracles[bucket.row[f]]
            scores = np.concatenate(
                [problems.a[problems.slots(f)], problems.eta_v[problems.extra(f)]]
            )
            require_as_good(oracle, answers.vertex(f, oracle), seen[bucket.row[f]], scores)


class KernelAnswers(NamedTuple):
    """What a kernel wrote; factor f may write ``room[f]`` entries from its start on."""

    structures: Structures
    room: IntArray

    def vertex(self, f: int | np.int64, oracle: Oracle) -> FloatArray:
        """Return factor f's vertex as numbers of all variables and additionals."""
        start, entry, value, size = self.structures
        entries = slice(start[f], start[f] + size[f])
        index = entry[entries]
        proper = (
            len(set(index.tolist())) == len(index) and ((index >= 0) & (index < oracle.size)).all()
        )
        if not proper:
            raise broken(
                "map_kernel writes different positions in the factor, 0 to arity - 1 for "
                "variables and arity + j for additionals, because a vertex is a sparse vector",
                index.tolist(),
                f"different numbers of 0 to {oracle.size - 1}",
                oracle.name,
            )
        vertex = np.zeros(oracle.size)
        vertex[index] = value[entries]
        return vertex


def ask_kernel(
    bucket: Bucket, rows: IntArray, eta_u: FloatArray, eta_v: FloatArray
) -> KernelAnswers:
    """Run a bucket's compiled oracle with spare room after every factor's own."""
    assert bucket.type.map_kernel is not None
    room = _sizes(bucket)
    spare = np.diff(bucket.offsets) + np.diff(bucket.additional_offsets) + 4
    ends = np.cumsum(room + spare)
    structures = Structures(
        start=ends - room - spare,
        entry=np.full(ends[-1], UNTOUCHED, dtype=np.int32),
        value=np.full(ends[-1], float(UNTOUCHED)),
        size=np.full(bucket.n_factors, UNTOUCHED, dtype=np.int64),
    )
    address_of(bucket.type.map_kernel, "map_kernel")  # which refuses other arguments in words
    bucket.type.map_kernel(rows, bucket.factors, Scores(eta_u, eta_v), structures)
    return KernelAnswers(structures, room)


def _sizes(bucket: Bucket) -> IntArray:
    return np.asarray(bucket.type.vertex_sizes(bucket.factors))


def _require_unchanged(factor: Factor, given: Scores, before: Scores) -> None:
    """Require that scores are as they were: what was asked could not be judged otherwise."""
    for name, now, then in zip(given._fields, given, before, strict=True):
        if not np.array_equal(now, then):
            i = int(np.flatnonzero(now != then)[0])
            raise broken(
                "map_kernel leaves its scores as they are, because the caller goes on with them",
                f"map_kernel wrote into {name}: {now[i]} at entry {i} of the bucket's",
                f"{then[i]}, as it was; copy what you need to change",
                repr(factor),
            )


def _require_room(factor: Factor, bucket: Bucket, rows: IntArray, answers: KernelAnswers) -> None:
    """Require that only the rows asked were written, and they within their room."""
    start, entry, value, size = answers.structures
    may = np.zeros(len(entry), dtype=bool)
    for f in rows:
        may[start[f] : start[f] + answers.room[f]] = True
    wrote = (entry != UNTOUCHED) | (value != UNTOUCHED)
    asked = np.isin(np.arange(bucket.n_factors), rows)
    outside = np.flatnonzero(wrote & ~may)
    sized = np.flatnonzero((size != UNTOUCHED) & ~asked)
    if outside.size or sized.size:
        owners = np.searchsorted(start, outside, side="right") - 1
        wrong = sorted({*owners.tolist(), *sized.tolist()})
        raise broken(
            "map_kernel writes at most vertex_sizes entries for each of the rows it is asked for, "
            "because the rest belongs to other factors",
            f"writes beyond the room of factors {wrong[:5]} of the bucket",
            f"writes for factors {rows[:5].tolist()}, ... only, within their room",
            repr(factor),
        )
    bad = rows[(size[rows] < 0) | (size[rows] > answers.room[rows])]
    if bad.size:
        raise broken(
            "map_kernel writes size[r], the number of entries of the vertex it found, for every "
            "row it is asked for, because the engine reads so many",
            f"{size[bad[0]]} for factor {bad[0]} of the bucket",
            f"0 to {answers.room[bad[0]]}, what vertex_sizes says",
            repr(factor),
        )


def require_as_good(
    oracle: Oracle, vertex: FloatArray, seen: FloatArray, scores: FloatArray
) -> None:
    """Require that a kernel's vertex scores as the plain oracle's, and is one of its own."""
    plain = oracle.of(scores)
    allowed = 1e-10 * np.abs(scores).sum()
    found, best = float(scores @ vertex), float(scores @ plain.vertex)
    least, most = (seen @ scores).max() - allowed, best + allowed
    if not max(least, best - allowed) <= found <= most:  # nor is a NaN
        raise broken(
            "map_kernel finds a structure of the same score as solve_map, because it replaces it",
            f"{vertex.tolist()} of score {found:.10g}",
            f"{plain.vertex.tolist()} of score {best:.10g}",
            oracle.where(scores),
        )
    if np.isin(vertex, (0.0, 1.0)).all():
        back = oracle.of(2.0 * vertex - 1.0)
        if (back.vertex != vertex).any():
            raise broken(
                "map_kernel's vertex is a structure of the factor, which solve_map returns for the "
                "scores that ask for it (1 where it is on, -1 elsewhere), because it replaces it",
                vertex.tolist(),
                f"a structure, as {back.vertex.tolist()} is",
                oracle.where(scores),
            )
