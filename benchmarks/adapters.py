"""Measure the adapters to PyTorch and JAX on batches of matchings, 8 by 14.

The adapter to JAX solves again in the backward pass, and with `jax.vmap` it declares each instance.
The figures are milliseconds of processor time, the least of several rounds.

    python benchmarks/adapters.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from lpsmap import AtMostOne, Variables, Xor
from lpsmap_core import Factor
from lpsmap_jax import sparse_map
from lpsmap_torch.layers import SparseMAP


def matching(u: Variables) -> list[Factor]:
    """Return the factors of matchings."""
    return [Xor(u), AtMostOne(u, axis=-2)]


def milliseconds(call: Callable[[], Any], rounds: int) -> float:
    """Return the least processor time of a call."""
    call()
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return 1e3 * min(found)


def by_jax(scores: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return the calls of the adapter to JAX."""
    solve, given = sparse_map(matching, threads=1), jnp.asarray(scores)

    def total(scores: Any) -> Any:
        return jnp.sum(solve(scores) ** 2)

    functions = {
        "jax forward": solve,
        "jax gradient": jax.grad(total),
        "jax forward, vmap": jax.vmap(solve),
        "jax gradient, vmap": jax.vmap(jax.grad(total)),
    }

    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: function(given).block_until_ready()

    return {name: call(jax.jit(function)) for name, function in functions.items()}


def by_torch(scores: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return the calls of the adapter to PyTorch."""
    layer, given = SparseMAP(matching, threads=1), torch.tensor(scores)
    traced = given.clone().requires_grad_()
    return {
        "torch forward": lambda: layer(given),
        "torch gradient": lambda: torch.autograd.grad((layer(traced) ** 2).sum(), traced),
    }


def main() -> None:
    """Print a row for every call and a column for every size of the batch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    rows: dict[str, list[float]] = {}
    for size in options.sizes:
        scores = np.random.default_rng(0).normal(size=(size, 8, 14)).astype(np.float32)
        for name, call in {**by_torch(scores), **by_jax(scores)}.items():
            rows.setdefault(name, []).append(milliseconds(call, options.rounds))
    print(f"{'ms for a batch of':20}", *(f"{size:8}" for size in options.sizes))
    for name, found in rows.items():
        print(f"{name:20}", *(f"{x:8.2f}" for x in found))


if __name__ == "__main__":
    main()
