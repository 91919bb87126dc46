"""The check of oracles for batches on all installed array libraries and devices."""

from __future__ import annotations

import math

import numpy as np

from lpsmap_core.engine.protocol import Backend
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.tensor_oracle import TensorOracle
from lpsmap_core.testing.devices import installed_devices
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

ROUNDING = 1e-11
"""Allowed difference of scores, as a multiple of their summed magnitudes."""


def check_tensor_oracle(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The oracle for batches is as good as `solve_map`, with every array library and device."""
    oracle = factor.tensor_oracle()
    if oracle is None:
        return
    n, n_slots = factor.n_factors, math.prod(factor.event_shape)
    size = n_slots + factor.n_additionals
    rng = np.random.default_rng(seed)
    for backend, device in installed_devices():
        before = None
        for scores in random_scores(rng, draws, n * size).reshape(draws, n, size):
            entries = _compare(factor, oracle, scores, backend, device)
            if oracle.n_parts and before is not None:
                _check_exchange(factor, oracle.n_parts, before, entries)
            before = entries


def _compare(
    factor: Factor, oracle: TensorOracle, scores: FloatArray, backend: Backend, device: str
) -> IntArray:
    """Compare the answers with those of the row's own oracle, and return them."""
    n_slots = math.prod(factor.event_shape)
    where = f"{factor!r} on {backend.name}, {device}"
    given = scores[:, :n_slots].reshape(-1, *factor.event_shape), scores[:, n_slots:]
    try:
        on_device = [
            backend.asarray(x.copy(), device) for x in (*given, *oracle.tables, *oracle.shared)
        ]
        entries = np.asarray(backend.to_numpy(oracle.best(*on_device)))
    except Exception as error:
        raise broken(
            "a tensor oracle accepts arrays of any library and device, because it uses functions "
            "of array_namespace(eta_u) and not NumPy by name",
            f"{type(error).__name__}: {error}",
            "the entries of the best structures",
            where,
        ) from error
    of_rows = entries.ndim == 2 and len(entries) == len(scores) and entries.dtype.kind == "i"
    n_parts = max(oracle.n_parts, 1)
    if not of_rows or entries.shape[1] % n_parts:
        raise broken(
            "a tensor oracle returns a row of entries per factor, because engines solve batches",
            f"an array of {entries.dtype} of shape {entries.shape}",
            f"integers of shape ({len(scores)}, W), W a multiple of n_parts = {n_parts}",
            where,
        )
    _check_entries(factor, scores, entries, where)
    return entries


def _kept(factor: Factor) -> BoolArray:
    """Return flags of each factor's slots among the entries of its event."""
    keep = np.ones(factor.variables.shape, dtype=bool) if factor.keep is None else factor.keep
    return keep.reshape(factor.n_factors, math.prod(factor.event_shape))


def _check_entries(factor: Factor, scores: FloatArray, rows: IntArray, where: str) -> None:
    """Compare each structure with the answer of the row's own oracle."""
    n_slots, size = math.prod(factor.event_shape), scores.shape[1]
    zipped = zip(oracles_of(factor), scores, rows, _kept(factor), strict=True)
    for oracle, own, entries, keep in zipped:
        counts = np.bincount(entries[entries >= 0], minlength=size)
        outside = len(counts) > size or counts[:n_slots][~keep].any()
        if outside or (counts[:n_slots] > 1).any():
            raise broken(
                "entries are slots of the row, once each because variables are 0 or 1",
                f"entries {entries.tolist()}",
                f"slots {np.flatnonzero(keep).tolist()}, and {n_slots} to {size - 1}",
                where,
            )
        best = oracle(own[:n_slots][keep], own[n_slots:])
        expected = best.score(own[:n_slots][keep], own[n_slots:])
        score = float(own @ counts)
        rounding = ROUNDING * float(np.abs(own) @ counts + abs(expected) + 1.0)
        if abs(score - expected) > rounding:
            raise broken(
                "a tensor oracle returns a best structure, because solve_map does",
                f"entries {np.flatnonzero(counts).tolist()} with score {score!r}",
                f"score {expected!r}, as that of {best.label!r}",
                f"{where}, eta = {own.tolist()}",
            )


def _check_exchange(factor: Factor, n_parts: int, a: IntArray, b: IntArray) -> None:
    """Join the parts of two structures where they share one, and look for the results."""
    n_slots = math.prod(factor.event_shape)
    for oracle, first, second, keep in zip(oracles_of(factor), a, b, _kept(factor), strict=True):
        parts, others = first.reshape(n_parts, -1), second.reshape(n_parts, -1)
        for part in np.flatnonzero((parts == others).all(axis=1)):
            entries = np.concatenate([parts[:part], others[part:]])
            counts = np.bincount(entries[entries >= 0], minlength=n_slots + factor.n_additionals)
            own = np.where(counts > 0, 1.0, -1.0)
            own[:n_slots] *= 4.0 * entries.size  # outweigh all additionals
            best = oracle(own[:n_slots][keep], own[n_slots:])
            if best.score(own[:n_slots][keep], own[n_slots:]) < own @ counts:
                raise broken(
                    "structures that have the same entries in a part can exchange all parts before "
                    "it, because engines do so if a tensor oracle has n_parts",
                    f"{first.tolist()} and {second.tolist()}, joined at part {part}",
                    "a structure",
                    repr(factor),
                )
