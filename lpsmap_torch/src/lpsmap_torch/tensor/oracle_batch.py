"""Batches of factors with an oracle on tensors, and their solutions by the active set.

A component has one of them, and possibly linear constraints on its variables by other factors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, Bucket, IntArray, Part
from lpsmap_torch.tensor.active_face import ActiveFace
from lpsmap_torch.tensor.active_set import MAX_SIZE, solve_active_sets
from lpsmap_torch.tensor.batch import Members
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of, matrices_of
from lpsmap_torch.tensor.local_problems import LocalProblems
from lpsmap_torch.tensor.multipliers import Rows
from lpsmap_torch.tensor.projection_problem import MAX_SCORE, Limits, Projected
from lpsmap_torch.tensor.served import oracles_of
from lpsmap_torch.tensor.splices import N_HEAVY

FORCED_MULTIPLE = 1e3
"""Score of a forced number, as a multiple of the summed magnitudes of all other scores."""

NUMBER_BYTES, NUMBERS_OF_SETS = 8, 2**16
"""Bytes of a number, and how many numbers an active set may take."""


@dataclasses.dataclass(frozen=True)
class OracleBatch:
    """Factors with the same oracle, one for each component."""

    members: Members
    sign: Tensor
    """(n, n_columns) -1 for negated slots, else 1."""
    unused: Tensor
    """(n, n_columns) flags of numbers that are 0 in all structures, whatever their scores."""
    event_shape: tuple[int, ...]
    best: Callable[..., Any]
    tables: tuple[Tensor, ...]
    """The tables of the factors."""
    shared: tuple[Tensor, ...]
    """The tables that all factors share."""
    n_parts: int
    """Number of parts of structures that are paths; 0 for others."""
    rows: Rows | None
    """The constraints of the other factors of the components."""

    @property
    def n_slots(self) -> int:
        """Number of slots of the event shape."""
        return int(np.prod(self.event_shape, dtype=np.int64))

    def oracle(self, scores: Tensor) -> Tensor:
        """Return the entries of the best structures; the number of columns for padding.

        There may be several scores for each factor: all factors, and all factors again.
        """
        slots, additionals = scores[:, : self.n_slots], scores[:, self.n_slots :]
        times = len(scores) // len(self.sign)
        tables = self.tables
        if times > 1:
            tables = tuple(x.repeat(times, *[1] * (x.ndim - 1)) for x in tables)
        entries: Tensor = self.best(
            slots.reshape(len(scores), *self.event_shape), additionals, *tables, *self.shared
        )
        return entries % (scores.shape[1] + 1)  # of -1, the last

    def problems(self, eta: Tensor) -> LocalProblems:
        """Return the local problems for (n, n_columns) scores without NaN and ``inf``."""
        open_ = eta > -MAX_SCORE
        eta = torch.where(open_, eta, 0.0).clamp(max=MAX_SCORE)
        linear = torch.where((self.sign < 0.0) & open_, 1.0 - eta, eta)
        forced = torch.where(open_, 0.0, -self.sign)
        huge = FORCED_MULTIPLE * (linear.abs() + 1.0).sum(1, keepdim=True)
        quadratic = torch.zeros_like(linear[:1])
        quadratic[:, : self.n_slots] = 1.0
        linear, quadratic, forced = (
            torch.nn.functional.pad(x, (0, 1)) for x in (linear, quadratic, forced)
        )
        shape = self.n_parts, self.rows
        return LocalProblems(self.oracle, linear, quadratic, forced, huge, *shape)

    def project(self, eta: Tensor, limits: Limits) -> Projected:
        """Solve the local problems for (n, n_columns) scores; ``-inf`` where one is forbidden."""
        # -inf forbids a variable that is 1 since its slot is negated and unused
        eta = torch.where(self.unused & (eta != -torch.inf), 0.0, eta)
        invalid = ~(eta < torch.inf).all(1)
        problems = self.problems(torch.where(invalid.unsqueeze(1), 0.0, eta))
        sets = solve_active_sets(problems, limits.active)
        x, gap = sets.x[:, :-1], sets.gap.clamp(min=0.0)
        exact = sets.done & ~sets.infeasible & (sets.size <= MAX_SIZE) & ~invalid
        values = torch.where(self.sign < 0.0, 1.0 - x, x)
        return Projected(
            values=torch.where(invalid.unsqueeze(1), torch.nan, values),
            gap=torch.where(sets.infeasible, torch.inf, gap),
            residual=torch.where(exact, 0.0, (2.0 * (gap + sets.rounding)).sqrt()),
            exact=exact,
            infeasible=sets.infeasible & ~invalid,
            iterations=sets.iterations,
            face=ActiveFace(
                problems, dataclasses.replace(sets, done=sets.done & ~invalid), self.sign
            ),
        )


# -------------------------------------------------------------------- from a part, on the host


def oracle_batches(part: Part, selected: BoolArray, n_bytes: int) -> Iterator[OracleBatch]:
    """Yield the batches of the selected components, each of which is one factor, on the host.

    A solve of a batch takes about `n_bytes` of memory at most.
    """
    oracles, rows = part.derived(oracles_of), part.derived(constraint_rows_of)
    has_rows = np.bincount(rows.component, minlength=part.n_components) > 0
    for b, bucket in enumerate(part.buckets):
        groups: dict[Any, list[tuple[int, IntArray]]] = {}
        of_declarations = bucket.declaration, has_rows[bucket.component]
        for d, beside in np.ndindex(len(bucket.declarations), 2):
            own = (of_declarations[0] == d) & (of_declarations[1] == beside)
            factors = np.flatnonzero(own & selected[bucket.component])
            declaration = bucket.declarations[d]
            if not factors.size or id(declaration) not in oracles:
                continue
            oracle = oracles[id(declaration)]
            shapes = declaration.event_shape, tuple(x.shape[1:] for x in oracle.tables)
            kind = declaration.n_additionals, beside
            key = oracle.best, kind, shapes, tuple(map(id, oracle.shared))
            groups.setdefault(key, []).append((d, factors))
        for members in groups.values():
            yield from _batches(part, b, members, n_bytes)


def _batches(
    part: Part, b: int, members: list[tuple[int, IntArray]], n_bytes: int
) -> Iterator[OracleBatch]:
    bucket = part.buckets[b]
    declarations = [bucket.declarations[d] for d, _ in members]
    oracles = [part.derived(oracles_of)[id(x)] for x in declarations]
    tables = [
        np.concatenate([x[bucket.row[own]] for x, (_, own) in zip(given, members, strict=True)])
        for given in zip(*(oracle.tables for oracle in oracles), strict=True)
    ]
    n_additionals = declarations[0].n_additionals
    factors = np.concatenate([x for _, x in members])
    places = [_slots(bucket, bucket.declarations[d], x, part) for d, x in members]
    columns, negated = (np.concatenate(x) for x in zip(*places, strict=True))
    first = part.n_variables + part.additionals_of(b).start + bucket.additional_offsets[factors]
    columns = np.hstack([columns, first[:, None] + np.arange(n_additionals)])
    negated = np.pad(negated, ((0, 0), (0, n_additionals)))
    flags = (_unused(bucket.declarations[d], bucket.row[x]) for d, x in members)
    unused = np.concatenate(list(flags))
    n_calls = 1 + N_HEAVY * (oracles[0].n_parts > 0)
    of_tables = sum(x[0].size for x in oracles[0].shared)
    size = 4 * n_calls * columns.shape[1] + 2 * of_tables + NUMBERS_OF_SETS
    rows = part.derived(constraint_rows_of)
    n_rows = np.bincount(rows.component, minlength=part.n_components)[bucket.component[factors]]
    size += int(n_rows.max()) * columns.shape[1]
    together = max(n_bytes // (NUMBER_BYTES * size), 1)
    for own in np.array_split(np.arange(len(factors)), -(-len(factors) // together)):
        yield OracleBatch(
            Members(bucket.component[factors[own]], torch.from_numpy(columns[own])),
            torch.from_numpy(np.where(negated[own], -1.0, 1.0)),
            torch.from_numpy(unused[own]),
            declarations[0].event_shape,
            oracles[0].best,
            tuple(torch.from_numpy(x[own]) for x in tables),
            tuple(map(torch.from_numpy, oracles[0].shared)),
            oracles[0].n_parts,
            _rows(part, bucket.component[factors[own]], columns[own], negated[own]),
        )


def _rows(part: Part, components: IntArray, columns: IntArray, negated: BoolArray) -> Rows | None:
    """Return the constraints of components on the slots of their factors; None without any."""
    rows = part.derived(constraint_rows_of)
    n_rows = np.bincount(rows.component, minlength=part.n_components)[components].max()
    if not n_rows:
        return None
    place = np.zeros(part.n_variables + part.n_additionals + 1, dtype=np.int64)
    place[columns] = np.arange(columns.shape[1])
    shape = int(n_rows), columns.shape[1] + 1
    matrix, low, high = matrices_of(rows, components, place, shape)
    if (negated == negated[:1]).all():
        negated = negated[:1]
    # a negated slot is 1 minus its variable
    shift = (matrix[:, :, :-1] * negated[:, None]).sum(2)
    signs = np.where(np.pad(negated, ((0, 0), (0, 1))), -1.0, 1.0)
    signed = matrix * signs[:, None]
    return Rows(*map(torch.from_numpy, (signed, low - shift, high - shift)))


def _unused(declaration: Factor, rows: IntArray) -> BoolArray:
    """Return flags of the slots in their event shape and of the additionals that are unused."""
    slots, additionals = declaration.unused()
    n, n_slots = declaration.n_factors, int(np.prod(declaration.event_shape, dtype=np.int64))
    off = np.zeros((n, n_slots + declaration.n_additionals), dtype=bool)
    if slots is not None:
        off[:, :n_slots] = slots.reshape(n, n_slots)
    if declaration.keep is not None:
        off[:, :n_slots] &= declaration.keep.reshape(n, n_slots)
    if additionals is not None:
        off[:, n_slots:] = additionals
    return off[rows]


def _slots(
    bucket: Bucket, declaration: Factor, factors: IntArray, part: Part
) -> tuple[IntArray, BoolArray]:
    """Return the variables of the slots of factors in their event shape, and their negations."""
    padding = part.n_variables + part.n_additionals
    arity = int(np.prod(declaration.event_shape, dtype=np.int64))
    keep = np.ones((len(factors), arity), dtype=bool)
    if declaration.keep is not None:
        keep = declaration.keep.reshape(-1, arity)[bucket.row[factors]]
    slot = bucket.offsets[factors][:, None] + np.cumsum(keep, axis=1) - 1
    slot = np.where(keep, slot, 0)
    return np.where(keep, bucket.variable[slot], padding), keep & bucket.negated[slot]
