"""Checks that results of a row depend only on its data: alone, and among other declarations."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.kernels.records import Scores
from lpsmap_core.layout.layout import build_layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.variables import Variables
from lpsmap_core.testing.compiled_oracle import require_structure, run_kernel
from lpsmap_core.testing.declarations import Call, declarations_of, declared_with
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import Oracle, oracles_of, vertices_seen
from lpsmap_core.testing.rules import broken


def check_row_alone(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A row of a declaration has the answer of a separate declaration with its part of the data."""
    if factor.n_factors < 2 or factor._flipped is not None:
        return
    rng = np.random.default_rng(seed)
    for call in declarations_of(factor):
        for oracle in oracles_of(factor):
            alone = _alone(factor, call, oracle)
            if alone is None:
                break  # the arguments have another layout
            for scores in random_scores(rng, draws, oracle.size):
                got, expected = oracle.of(scores).vertex, alone.of(scores).vertex
                if not np.array_equal(got, expected, equal_nan=True):
                    raise broken(
                        "a row has the answer of a separate declaration, because all rows share "
                        "the attributes that are not registered",
                        f"{got.tolist()} in the batch",
                        f"{expected.tolist()}, as alone; register data that differ by row with "
                        "self.per_factor or self.integers",
                        oracle.where(scores),
                    )


def _alone(factor: Factor, call: Call, oracle: Oracle) -> Oracle | None:
    """Return the oracle of a separate declaration of one row, or None if it cannot be derived."""
    batch, changed = factor.batch_shape, {}
    index = np.unravel_index(oracle.i, batch)
    for name, value in call.arguments.items():
        if isinstance(value, Variables):
            if value.shape != factor.variables.shape:
                return None
            changed[name] = value[index]
        elif isinstance(value, (list, tuple)) and any(isinstance(x, Variables) for x in value):
            return None
        elif name in factor._parameters.names:
            changed[name] = _of_row(factor, name, oracle.i, value)
        elif np.ndim(value) >= len(batch) and np.shape(value)[: len(batch)] == batch:
            changed[name] = np.asarray(value)[index]
        elif np.ndim(value) and not isinstance(value, np.ndarray):
            return None
    try:
        alone = declared_with(factor, call, **changed)
    except (TypeError, ValueError, IndexError):
        return None
    if alone.n_factors != 1 or alone.n_additionals != factor.n_additionals:
        return None
    separate = Oracle(alone, 0)
    return separate if separate.arity == oracle.arity else None


def _of_row(factor: Factor, name: str, i: int, value: Any) -> Any:
    """Return factor i's part of an argument that is registered under the argument's name."""
    registered, parameters = getattr(factor, name), factor._parameters
    if name == parameters.integers:
        return value[i] if isinstance(registered, tuple) else value
    if name == parameters.link:
        return registered[np.unravel_index(i, factor.batch_shape)]
    of_row = registered[i] if parameters.rows[name] else registered[i].item()
    return bool(of_row) if np.asarray(value).dtype == np.bool_ else of_row


def check_integers(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Among declarations with other integers, map_kernel reads those of each row."""
    name, cls = factor._parameters.integers, type(factor)
    if name is None or cls.map_kernel is None:
        return
    declared = [factor, *(other for other in cls.examples() if type(other) is cls)]
    different = {array.tobytes() for each in declared for array in each._kernel_integers()[0]}
    if len(different) < 2:
        raise broken(
            "examples() have factors of different integers, because otherwise the check cannot "
            "detect a kernel that reads the first factor's integers for all",
            f"the same {name} in all of {declared[1:]}",
            f"two examples or rows with different {name}; if the type has only one array, add this "
            "check to expected_failures",
            repr(factor),
        )
    rng = np.random.default_rng(seed)
    n_variables = 1 + max(int(each.variables.index.max(initial=-1)) for each in declared)
    for bucket in build_layout(n_variables, declared).buckets:
        sizes = np.diff(bucket.offsets), np.diff(bucket.additional_offsets)
        eta_u, eta_v = (rng.standard_normal(int(size.sum())) for size in sizes)
        results = run_kernel(bucket, np.arange(bucket.n_factors), eta_u, eta_v)
        for f in range(bucket.n_factors):
            oracle = Oracle(bucket.declarations[bucket.declaration[f]], int(bucket.row[f]))
            seen = vertices_seen(oracle, rng, draws)
            require_structure(results, bucket, f, oracle, seen, Scores(eta_u, eta_v))
