"""The check of closed forms in array-API code on all installed array libraries and devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.protocol import Backend
from lpsmap_core.kernels.records import LocalSolution
from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.registry import installed
from lpsmap_core.testing.buckets import LocalProblems, local_problems
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.rules import broken

Array = npt.NDArray[Any]


def check_devices(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Array code agrees with NumPy on every installed array library and device.

    Calls of NumPy by name, or arrays of NumPy, in array code fail with other libraries.
    """
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    for backend, device in installed_devices():
        for arguments in _groups(problems):
            _compare(factor, arguments, backend, device)


def installed_devices() -> Iterator[tuple[Backend, str]]:
    """Yield all devices of the installed array libraries."""
    for registration in installed().backends.values():
        backend = registration.value()
        yield from ((backend, device) for device in backend.devices())


def _groups(problems: LocalProblems) -> Iterator[tuple[Array | None, ...]]:
    """Yield the arguments of ``solve_sparsemap`` for the factors of each size."""
    bucket = problems.bucket
    sizes = np.stack([np.diff(bucket.offsets), np.diff(bucket.additional_offsets)], axis=1)
    for arity, extra in np.unique(sizes, axis=0):
        rows = np.flatnonzero((sizes == (arity, extra)).all(axis=1))
        slots = bucket.offsets[rows][:, None] + np.arange(arity)
        additionals = bucket.additional_offsets[rows][:, None] + np.arange(extra)
        links = bucket.factors.link_parameter
        yield (
            problems.a[slots],
            problems.eta_v[additionals],
            problems.delta[slots],
            bucket.factors.parameters[rows],
            links[slots] if links.size else None,
        )


def _compare(
    factor: Factor, arguments: Sequence[Array | None], backend: Backend, device: str
) -> None:
    cls = type(factor)

    def moved(array: Array | None) -> Any:
        return None if array is None else backend.asarray(array, device)

    on_device = [moved(array) for array in arguments]
    a, eta_v, delta, parameters, links = arguments
    ours, theirs = cls.solve_sparsemap(a, eta_v, delta, parameters, links), None
    try:
        theirs = cls.solve_sparsemap(*on_device)
        solution: list[Any] = [backend.to_numpy(array) for array in theirs]
        products = cls.jvp(theirs, on_device[0], on_device[1], *on_device[2:])
        vectors = [backend.to_numpy(array) for array in products]
    except Exception as error:
        method = "solve_sparsemap" if theirs is None else "jvp"
        raise broken(
            f"{method} accepts arrays of any library and device, because it uses functions of "
            "array_namespace(a) and not NumPy by name",
            f"{type(error).__name__}: {error}",
            "the result for NumPy arrays",
            f"{factor!r} on {backend.name}, {device}",
        ) from error
    expected: list[Any] = [*ours, *cls.jvp(ours, a, eta_v, delta, parameters, links)]
    names = [*LocalSolution._fields, "jvp's out_u", "jvp's out_v"]
    for name, got, want in zip(names, [*solution, *vectors], expected, strict=True):
        scale = 1.0 + float(np.abs(a).sum(axis=1).max(initial=0.0)) if a is not None else 1.0
        if np.shape(got) != np.shape(want) or not np.allclose(got, want, 1e-9, 1e-12 * scale):
            raise broken(
                "a closed form gives the same numbers with every library and on every device, "
                "because moving a graph does not change its meaning",
                f"{name} = {np.asarray(got).tolist()}",
                f"{np.asarray(want).tolist()}, as with NumPy",
                f"{factor!r} on {backend.name}, {device}",
            )
