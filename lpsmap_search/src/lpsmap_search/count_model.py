"""The protocol of block-normalised count models."""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import HypergraphBuilder


class CountModel(abc.ABC):
    """A latent-variable model whose likelihood depends only on counts of its parameters.

    The parameters come in blocks of probabilities that sum to one. A sentence has many structures;
    a structure uses each parameter some number of times, and its probability is the product of the
    parameters that it uses (Gormley & Eisner 2013, Eq. 1). A dynamic program enumerates the
    structures of a sentence.

    Parameters
    ----------
    blocks
        For each block, the names of its parameters. Parameters are numbered block by block.

    Raises
    ------
    ValueError
        If there are no blocks, or one is empty.

    Attributes
    ----------
    names
        The name of every parameter.
    first
        (C + 1,) block c has the parameters ``first[c]`` to ``first[c + 1]``.
    block
        (M,) the block of every parameter.
    """

    def __init__(self, blocks: Sequence[Sequence[str]]) -> None:
        self.names = [name for block in blocks for name in block]
        sizes = np.array([len(block) for block in blocks], dtype=np.int64)
        if not sizes.size or (sizes < 1).any():
            raise ValueError("blocks: got an empty block; expected a name for each parameter.")
        self.first: IntArray = np.concatenate([[0], np.cumsum(sizes)])
        self.block: IntArray = np.repeat(np.arange(len(sizes)), sizes)

    @property
    def n_parameters(self) -> int:
        """M, the number of parameters."""
        return len(self.names)

    @abc.abstractmethod
    def encode(self, sentence: Sequence[Any]) -> tuple[int, ...]:
        """Return the indices of a sentence's symbols.

        Raises
        ------
        ValueError
            If the sentence is empty, or a symbol is unknown.
        """

    @abc.abstractmethod
    def hypergraph(self, sentence: tuple[int, ...], build: HypergraphBuilder) -> Hashable:
        """Add the hyperedges of an encoded sentence's dynamic program, and return its goal.

        Parameters
        ----------
        sentence
            The result of `encode`.
        build
            ``build.edge(head, tails, slots=..., additionals=...)`` adds a hyperedge. Its
            ``additionals`` are the parameters that it uses, with repetitions; its ``slots`` are the
            variables that it switches on, see `variables_shape`.
        """

    def variables_shape(self, sentence: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape of a sentence's binary variables.

        For example, the arcs of a tree. SparseMAP penalises the squared norm of their marginals,
        see `sparse_counts`.

        Parameters
        ----------
        sentence
            The result of `encode`.

        Returns
        -------
        tuple or None
            The default None means one variable for each hyperedge; `hypergraph` then has no slots.
        """
        return None

    def normalised(self, counts: FloatArray) -> FloatArray:
        """Return the maximum-likelihood probabilities for counts.

        A block without counts is uniform.

        Parameters
        ----------
        counts
            (M,) nonnegative numbers.
        """
        totals = self.sums(counts)
        sizes = np.diff(self.first)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = counts / totals[self.block]
        return np.where(totals[self.block] > 0.0, shares, 1.0 / sizes[self.block])

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the (C,) sums of `values`, of shape (M,), over every block."""
        return np.add.reduceat(np.asarray(values, dtype=np.float64), self.first[:-1])

    def log_likelihood(self, counts: FloatArray) -> float:
        """Return the maximum over parameters of the log-likelihood of structures with given counts.

        This is ``G(f) = sum_m f_m log f_m - sum_c F_c log F_c``, where F_c is the sum of block c:
        convex, and homogeneous of degree one. It is the objective of Viterbi training (Gormley &
        Eisner 2013, Eq. 1) with the optimal parameters for the counts.
        """
        return float(x_log_x(counts).sum() - x_log_x(self.sums(counts)).sum())


def x_log_x(x: FloatArray) -> FloatArray:
    """Return ``x log x``, 0 at 0."""
    positive = np.where(x > 0.0, x, 1.0)
    return positive * np.log(positive)
