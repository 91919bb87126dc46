"""Checks of one structure: its shapes, its numbers, its label, its decoded form."""

from __future__ import annotations

import json

import numpy as np

from lpsmap_core.model import factor_checks
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import placed_values, slot_values
from lpsmap_core.solution.scored_graph import unused_of
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import oracles_of, queries
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray


def check_parameters(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Parameters are kept under their registered names, finite, and the same in all declarations.

    Buckets have a column of an array for each of them.
    """
    try:
        factor_checks.check_attributes(factor)
    except TypeError as error:
        raise broken(
            "names of the protocol are used only for the protocol, and are spelt correctly, "
            "because core looks up attributes by name and ignores others",
            error,
            "the names of the protocol, and other names for other attributes",
            repr(factor),
        ) from None
    try:
        for other in (factor, *type(factor).examples()):
            if type(other) is type(factor):
                factor_checks.check_parameters(factor, other)
    except TypeError as error:
        raise broken(
            "a parameter is kept under its registered name, and every declaration registers it, "
            "because buckets are built from these attributes",
            error,
            "self.k = self.per_factor('k', k), or self.counts, self.per_link or self.integers",
            repr(factor),
        ) from None
    for name in factor._parameters.names:
        value = getattr(factor, name)
        if isinstance(value, tuple) or np.isfinite(value).all():
            continue
        raise broken(
            "parameters are finite, because kernels compute with them",
            f"{name} = {value}",
            "finite numbers",
            repr(factor),
        )


def check_shapes(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A vertex has variables shaped like eta_u, and as many additionals as eta_v."""
    for oracle, scores in queries(factor, np.random.default_rng(seed), draws):
        eta_u, eta_v = oracle.shaped(scores[: oracle.arity]), scores[oracle.arity :]
        _, m, n = oracle.answer(scores[: oracle.arity], eta_v)
        if np.shape(m) != eta_u.shape or np.size(n) != eta_v.size:
            raise broken(
                "vertex returns variables shaped like eta_u, of this row and not of the "
                "longest, and as many additionals as eta_v, because core concatenates them",
                f"variables of shape {np.shape(m)} and {np.size(n)} additionals",
                f"shape {eta_u.shape} and {eta_v.size} additionals",
                oracle.where(scores),
            )


def check_zero_one(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Variables of a vertex are 0 or 1, and additionals are 0, 1 or larger counts."""
    for oracle, scores in queries(factor, np.random.default_rng(seed), draws):
        best = oracle.of(scores)
        counts = (best.n >= 0.0) & (best.n == np.rint(best.n))
        if not (np.isin(best.m, (0.0, 1.0)).all() and counts.all()):
            raise broken(
                "a structure switches binary variables on or off, because marginals are "
                "probabilities; an additional is the count, mostly 0 or 1, of parts with its "
                "score",
                f"m = {best.m.tolist()}, n = {best.n.tolist()}",
                "variables that are 0 or 1, additionals that are 0, 1, 2, ...",
                oracle.where(scores),
            )


def check_labels(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Labels are hashable, equal for equal calls, and different for different structures."""
    rng, seen = np.random.default_rng(seed), set[object]()
    for oracle in oracles_of(factor):
        vertices: dict[object, FloatArray] = {}
        for scores in random_scores(rng, draws, oracle.size):
            first, again = oracle.of(scores), oracle.of(scores)
            try:
                same = hash(first.label) == hash(again.label) and first.label == again.label
            except TypeError as error:
                raise broken(
                    "solve_map returns a hashable label, because structures are kept in "
                    "dictionaries",
                    f"{first.label!r}: {error}",
                    "a number, a string or a tuple of them (not a list or an array)",
                    oracle.where(scores),
                ) from error
            if same is not True:
                raise broken(
                    "equal calls of solve_map return equal labels, because labels name structures",
                    f"{first.label!r} and {again.label!r}",
                    "equal labels of equal hash",
                    oracle.where(scores),
                )
            earlier = vertices.setdefault(first.label, first.vertex)
            if not np.array_equal(earlier, first.vertex, equal_nan=True):
                raise broken(
                    "a label identifies one structure, because structures are looked up by label",
                    f"label {first.label!r} for {earlier.tolist()} and for {first.vertex.tolist()}",
                    "different labels",
                    oracle.where(scores),
                )
        seen |= {*vertices} if oracle.size else set()
    if seen == {None}:
        raise broken(
            "solve_map returns the best structure, because vertex gets nothing else",
            "None for all scores",
            "a label, such as a number or a tuple of numbers; perhaps a `return` is missing",
            repr(factor),
        )


def check_decode(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """`decode` returns plain Python numbers and lists by name."""
    for oracle, scores in queries(factor, np.random.default_rng(seed), draws):
        best = oracle.of(scores)
        decoded = oracle.row.decode(placed_values(factor, oracle.i, best.m), best.n)
        try:
            named = isinstance(decoded, dict) and all(isinstance(key, str) for key in decoded)
            plain = named and bool(json.dumps(decoded))
        except TypeError:
            plain = False
        if not plain:
            raise broken(
                "decode returns a dictionary of plain Python numbers and lists, because it is "
                "printed and written as JSON",
                repr(decoded),
                'such as {"heads": [1, -1, 1]}; convert arrays with .tolist()',
                oracle.where(scores),
            )


def check_unused(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Entries marked by `unused` are off in every structure.

    Their scores may be anything, such as NaN from an empty mean. `unused` need not mark all such
    entries, for example those that a budget rules out.
    """
    try:
        slots, extra = unused_of(factor)
    except TypeError as error:
        raise broken(
            "unused() returns booleans for the variables and for the additionals, or None, because "
            "core indexes scores with them",
            error,
            "a pair of such booleans, or None",
            repr(factor),
        ) from None
    if slots is None:
        slots = np.zeros(factor.variables.shape, dtype=np.bool_)
    if extra is None:
        extra = np.zeros((factor.n_factors, factor.n_additionals), dtype=np.bool_)
    of_slots = slot_values(factor, slots)
    for oracle in oracles_of(factor):
        of_factor = of_slots[factor.offsets[oracle.i] : factor.offsets[oracle.i + 1]]
        for entry in np.flatnonzero(np.concatenate([of_factor, extra[oracle.i]])):
            scores = np.zeros(oracle.size)
            scores[entry] = 1.0  # the entry is on in the best structure if it is on in any
            if oracle.of(scores).vertex[entry] > 0.0:
                raise broken(
                    "entries that unused() marks are off in every structure, because core may "
                    "replace their scores by zeros",
                    f"entry {entry} of {oracle.size}, variables first, is marked, and on in the "
                    "best structure",
                    "marks only of entries that are off in all structures",
                    oracle.where(scores),
                )
