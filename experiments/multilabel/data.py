"""Multilabel data sets: features, label sets, and the given split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

__all__ = ["SETS", "Examples", "Split", "read_split"]

SETS = ("bibtex", "emotions", "scene", "yeast", "enron", "medical")

HELD_OUT = 0.1
"""Share of the training examples held out to select the epoch."""


@dataclass(frozen=True)
class Examples:
    """Features (size, n) and labels (size, k), 0 or 1."""

    features: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: Any) -> Examples:
        return Examples(self.features[rows], self.labels[rows])


@dataclass(frozen=True)
class Split:
    """Examples for training, model selection and test."""

    train: Examples
    dev: Examples
    test: Examples

    def part(self, n: int | None) -> Split:
        """Return the first `n` examples of each part, or all."""
        return Split(self.train[:n], self.dev[:n], self.test[:n])


def read_split(data: Path, name: str) -> Split:
    """Read a data set below a folder of data sets.

    Features other than 0 and 1 are standardised on the training examples. A fixed tenth of these is
    held out.
    """
    with np.load(data / "multilabel" / f"{name}.npz", allow_pickle=False) as file:
        x, y = (_dense(file, which) for which in "XY")
        rows, test = file["train_idx"], file["test_idx"]
    rows = np.random.default_rng(0).permutation(rows)
    n_dev = round(HELD_OUT * len(rows))
    dev, train = rows[:n_dev], rows[n_dev:]
    if not np.isin(x, (0.0, 1.0)).all():
        deviation = x[train].std(axis=0)
        x = (x - x[train].mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    features, labels = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    everything = Examples(features, labels)
    return Split(*(everything[torch.from_numpy(part)] for part in (train, dev, test)))


def _dense(file: Any, which: str) -> NDArray[np.float64]:
    """Return a matrix of a file, "X" or "Y"."""
    parts = tuple(file[f"{which}_{name}"] for name in ("data", "indices", "indptr"))
    matrix: NDArray[np.float64] = csr_matrix(parts, shape=tuple(file[f"{which}_shape"])).toarray()
    return matrix.astype(np.float64)
