"""Checks of one structure: its shapes, its numbers, its label, its words."""

from __future__ import annotations

import json

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.names import check_names, check_own_attributes
from lpsmap_core.model.registered import check_registered, check_same_parameters
from lpsmap_core.model.slots import placed_values, slot_values
from lpsmap_core.model.unused import unused_of
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

__all__ = [
    "check_decode",
    "check_labels",
    "check_parameters",
    "check_shapes",
    "check_unused",
    "check_zero_one",
]


def check_parameters(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Parameters are kept as they were registered, finite, and the same in every declaration.

    The engine turns them into columns of arrays for whole buckets.
    """
    try:
        check_names(factor)
        check_own_attributes(factor)
    except TypeError as error:
        raise broken(
            "attributes of the protocol's names are the protocol's, because core looks for them "
            "by name, and passes over others",
            error,
            "the protocol's spelling, and other names for what is the type's own",
            repr(factor),
        ) from None
    try:
        check_registered(factor)
        for other in type(factor).examples():
            if type(other) is type(factor):
                check_same_parameters(factor, other)
    except TypeError as error:
        raise broken(
            "a parameter is kept under the name that it was registered with, and is registered by "
            "every declaration, because buckets are built from these attributes",
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
    """A vertex has as many numbers as solve_map got scores, variables in the same shape."""
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        for scores in random_scores(rng, draws, oracle.size):
            eta_u, eta_v = oracle.shaped(scores[: oracle.arity]), scores[oracle.arity :]
            m, n = oracle.row.vertex(oracle.row.solve_map(eta_u.copy(), eta_v.copy()))
            if np.shape(m) != eta_u.shape or np.size(n) != eta_v.size:
                raise broken(
                    "vertex returns variables shaped like eta_u, of this row and not of the "
                    "longest, and as many additionals as eta_v, because core lays them side by "
                    "side",
                    f"variables of shape {np.shape(m)} and {np.size(n)} additionals",
                    f"shape {eta_u.shape} and {eta_v.size} additionals",
                    oracle.where(scores),
                )


def check_zero_one(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A vertex's variables are 0 or 1, and its additionals 0, 1 or larger counts."""
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        for scores in random_scores(rng, draws, oracle.size):
            answer = oracle.of(scores)
            counts = (answer.n >= 0.0) & (answer.n == np.rint(answer.n))
            if not (np.isin(answer.m, (0.0, 1.0)).all() and counts.all()):
                raise broken(
                    "a structure switches binary variables on or off, because marginals are "
                    "probabilities; an additional counts what has its score, mostly 0 or 1 times",
                    f"m = {answer.m.tolist()}, n = {answer.n.tolist()}",
                    "variables that are 0 or 1, additionals that are 0, 1, 2, ...",
                    oracle.where(scores),
                )


def check_labels(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Labels are hashable, equal for equal calls, and tell different vertices apart."""
    rng = np.random.default_rng(seed)
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
            known = vertices.setdefault(first.label, first.vertex)
            if not np.array_equal(known, first.vertex, equal_nan=True):
                raise broken(
                    "a label stands for one structure, because structures are found again by it",
                    f"label {first.label!r} for {known.tolist()} and for {first.vertex.tolist()}",
                    "different labels",
                    oracle.where(scores),
                )


def check_decode(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Decoding gives plain Python numbers and lists by name."""
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        for scores in random_scores(rng, draws, oracle.size):
            answer = oracle.of(scores)
            words = oracle.row.decode(placed_values(factor, oracle.i, answer.m), answer.n)
            try:
                named = isinstance(words, dict) and all(isinstance(key, str) for key in words)
                plain = named and bool(json.dumps(words))
            except TypeError:
                plain = False
            if not plain:
                raise broken(
                    "decode returns a dictionary of plain Python numbers and lists, because it is "
                    "printed and written as JSON",
                    repr(words),
                    'such as {"heads": [1, -1, 1]}; convert arrays with .tolist()',
                    oracle.where(scores),
                )


def check_unused(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """What is said to be unused is off in every structure.

    Scores there may be anything, such as the NaN of an average over nothing. That `unused` tells
    all such entries is for the author to see to: what a budget rules out need not be told.
    """
    try:
        slots, extra = unused_of(factor)
    except TypeError as error:
        raise broken(
            "unused() returns booleans for the variables and for the additionals, or None, because "
            "the engine looks scores up by them",
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
        mine = of_slots[factor.offsets[oracle.i] : factor.offsets[oracle.i + 1]]
        for entry in np.flatnonzero(np.concatenate([mine, extra[oracle.i]])):
            scores = np.zeros(oracle.size)
            scores[entry] = 1.0  # the best structure has it on, if there is one that has
            if oracle.of(scores).vertex[entry] > 0.0:
                raise broken(
                    "what unused() marks is off in every structure, because the engine puts zeros "
                    "in the place of scores there",
                    f"entry {entry} of {oracle.size}, variables first, is marked, and on in the "
                    "best structure",
                    "marks of nothing that a structure has on",
                    oracle.where(scores),
                )
