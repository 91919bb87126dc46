"""Checks of a compiled oracle: it agrees with the plain oracle, and writes within its room."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.kernels.entries import address_of
from lpsmap_core.kernels.records import Factors, Scores, Structures
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import bucket_of, local_problems
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.oracle import Oracle, oracles_of, vertices_seen
from lpsmap_core.testing.rules import ConformanceError, broken
from lpsmap_jit.arrays import FloatArray, IntArray

UNTOUCHED = -7
"""Value of buffers before a kernel writes."""


def check_vertex_sizes(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """vertex_sizes is at least the number of nonzeros of every vertex."""
    rng = np.random.default_rng(seed)
    sizes = _sizes(bucket_of(factor, 1))
    if sizes.shape != (factor.n_factors,) or sizes.dtype.kind != "i":
        raise broken(
            "vertex_sizes returns one integer for every factor, because it sets buffer sizes",
            f"{sizes.dtype} of shape {sizes.shape}",
            f"integers of shape {(factor.n_factors,)}",
            repr(factor),
        )
    for oracle, size in zip(oracles_of(factor), sizes, strict=True):
        for vertex in vertices_seen(oracle, rng, draws):
            if np.count_nonzero(vertex) > size:
                raise broken(
                    "vertex_sizes is at least the number of nonzeros of every vertex, because "
                    "kernels write that many entries",
                    f"{size} for {vertex.tolist()}",
                    f"at least {np.count_nonzero(vertex)}",
                    oracle.name,
                )


def check_map_kernel(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """map_kernel is as good as solve_map, and writes only for the given rows, within their room.

    It runs on every second factor, so that a write for another factor is detected.
    """
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws, decades=4.0)
    bucket, oracles = problems.bucket, oracles_of(factor)
    seen = [vertices_seen(oracle, rng, draws) for oracle in oracles]
    for start in (0, 1):
        rows = np.arange(start, bucket.n_factors, 2)
        scores = Scores(problems.a.copy(), problems.eta_v.copy())
        results = run_kernel(bucket, rows, *scores)
        _require_unchanged(factor, scores, Scores(problems.a, problems.eta_v))
        _require_room(factor, bucket, rows, results)
        for f in rows:
            i = bucket.row[f]
            require_structure(results, bucket, f, oracles[i], seen[i], scores)


class KernelResults(NamedTuple):
    """Output of a kernel, with room for ``room[f]`` entries from the start of factor f."""

    structures: Structures
    room: IntArray

    def vertex(self, f: int | np.int64, oracle: Oracle) -> FloatArray:
        """Return factor f's vertex as a dense array of variables and additionals."""
        start, entry, value, size = self.structures
        entries = slice(start[f], start[f] + size[f])
        index = entry[entries]
        valid = (
            len(set(index.tolist())) == len(index) and ((index >= 0) & (index < oracle.size)).all()
        )
        if not valid:
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


def require_structure(
    results: KernelResults,
    bucket: Bucket,
    f: int | np.int64,
    oracle: Oracle,
    seen: FloatArray,
    scores: Scores,
) -> None:
    """Require that factor f's vertex is as good as its oracle's; see `require_equal_score`.

    The error has a hint if the kernel reads factor 0's data: its vertex is right once factor 0 has
    the data of factor f.
    """
    slots, extra = bucket.offsets[f : f + 2], bucket.additional_offsets[f : f + 2]
    of_factor = np.concatenate([scores.eta_u[slice(*slots)], scores.eta_v[slice(*extra)]])
    try:
        require_equal_score(oracle, results.vertex(f, oracle), seen, of_factor)
        return
    except ConformanceError as wrong:
        error = wrong
    names = {"integer_ranges": "integers", "parameters": "parameters"}
    for name, what in names.items():
        data = getattr(bucket.factors, name).copy()
        if data.size == 0 or (data[0] == data[f]).all():
            continue
        data[0] = data[f]
        factors = bucket.factors._replace(**{name: data})
        eta_u, eta_v = (numbers.copy() for numbers in scores)
        results = run_kernel(bucket, np.array([f]), eta_u, eta_v, factors)
        try:
            require_equal_score(oracle, results.vertex(f, oracle), seen, of_factor)
        except ConformanceError:
            continue
        hint = f"{error}\nHint: this is the answer with factor 0's {what}: read {name}[r]"
        raise ConformanceError(hint) from error
    raise error


def run_kernel(
    bucket: Bucket,
    rows: IntArray,
    eta_u: FloatArray,
    eta_v: FloatArray,
    factors: Factors | None = None,
) -> KernelResults:
    """Run a bucket's compiled oracle with spare room after the room of every factor.

    It gets `factors` in place of those of the bucket.
    """
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
    address_of(bucket.type.map_kernel, "map_kernel")  # its errors explain wrong arguments
    records = factors or bucket.factors, Scores(eta_u, eta_v), structures
    bucket.type.map_kernel(rows, *records)
    return KernelResults(structures, room)


def _sizes(bucket: Bucket) -> IntArray:
    return np.asarray(bucket.type.vertex_sizes(bucket.factors))


def _require_unchanged(factor: Factor, scores: Scores, before: Scores) -> None:
    """Require that a kernel did not change its scores; the results could not be judged then."""
    for name, now, then in zip(scores._fields, scores, before, strict=True):
        if not np.array_equal(now, then):
            i = int(np.flatnonzero(now != then)[0])
            raise broken(
                "map_kernel does not change its scores, because the caller uses them again",
                f"map_kernel wrote into {name}: {now[i]} at entry {i} of the bucket",
                f"{then[i]}, as before the call; change a copy instead",
                repr(factor),
            )


def _require_room(factor: Factor, bucket: Bucket, rows: IntArray, results: KernelResults) -> None:
    """Require that a kernel wrote only for the given rows, and within their room."""
    start, entry, value, size = results.structures
    in_room = np.zeros(len(entry), dtype=bool)
    for f in rows:
        in_room[start[f] : start[f] + results.room[f]] = True
    written = (entry != UNTOUCHED) | (value != UNTOUCHED)
    selected = np.isin(np.arange(bucket.n_factors), rows)
    outside = np.flatnonzero(written & ~in_room)
    sized = np.flatnonzero((size != UNTOUCHED) & ~selected)
    if outside.size or sized.size:
        owners = np.searchsorted(start, outside, side="right") - 1
        wrong = sorted({*owners.tolist(), *sized.tolist()})
        raise broken(
            "map_kernel writes at most vertex_sizes entries for each of the given rows, because "
            "the other entries belong to other factors",
            f"writes beyond the room of factors {wrong[:5]} of the bucket",
            f"writes for factors {rows[:5].tolist()}, ... only, within their room",
            repr(factor),
        )
    bad = rows[(size[rows] < 0) | (size[rows] > results.room[rows])]
    if bad.size:
        raise broken(
            "map_kernel writes size[r], the number of entries of the vertex, for every given row, "
            "because the engine reads that many entries",
            f"{size[bad[0]]} for factor {bad[0]} of the bucket",
            f"0 to {results.room[bad[0]]}, the result of vertex_sizes",
            repr(factor),
        )


def require_equal_score(
    oracle: Oracle, vertex: FloatArray, seen: FloatArray, scores: FloatArray
) -> None:
    """Require that a kernel's vertex is a structure with the score of the plain oracle's."""
    plain = oracle.of(scores)
    allowed = 1e-10 * np.abs(scores).sum()
    score, best = float(scores @ vertex), float(scores @ plain.vertex)
    least, most = (seen @ scores).max() - allowed, best + allowed
    if not max(least, best - allowed) <= score <= most:  # false for NaN, too
        raise broken(
            "map_kernel finds a structure of the same score as solve_map, because it replaces it",
            f"{vertex.tolist()} of score {score:.10g}",
            f"{plain.vertex.tolist()} of score {best:.10g}",
            oracle.where(scores),
        )
    if np.isin(vertex[: oracle.arity], (0.0, 1.0)).all():
        structure = oracle.beaten_by(vertex)
        if structure is not None:
            raise broken(
                "map_kernel's vertex is a structure of the factor, which solve_map returns for the "
                "scores that select it (1 where it is on, -1 elsewhere, and less for additionals), "
                "because map_kernel replaces solve_map",
                vertex.tolist(),
                f"a structure, such as {structure.tolist()}",
                oracle.where(scores),
            )
