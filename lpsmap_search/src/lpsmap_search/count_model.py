"""The protocol of block-normalised count models."""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from lpsmap_dynamic import HypergraphBuilder
from lpsmap_search.arrays import FloatArray, IntArray

__all__ = ["CountModel"]


class CountModel(abc.ABC):
    """A latent-variable model whose likelihood depends on counts of its parameters alone.

    The parameters come in blocks of probabilities that sum to one. A sentence has many structures;
    a structure uses each parameter some number of times, and its probability is the product of the
    parameters that it uses (Gormley & Eisner 2013, Eq. 1). A dynamic program enumerates the
    structures of a sentence.

    Parameters
    ----------
    blocks
        For each block the names of its parameters. Parameters are numbered block by block.

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
        """Return the numbers of a sentence's symbols.

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
            What `encode` returned.
        build
            ``build.edge(head, tails, slots=..., additionals=...)`` adds a hyperedge. Its
            ``additionals`` are the parameters that it uses, which it may repeat; its ``slots`` the
            variables that it has on, see `variables_shape`.
        """

    def variables_shape(self, sentence: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape of a sentence's variables, which are 0 or 1 in every structure.

        Such as the arcs of a tree. SparseMAP prefers distributions whose marginals of these are
        spread, see `sparse_counts`.

        Parameters
        ----------
        sentence
            What `encode` returned.

        Returns
        -------
        tuple or None
            None, as here, stands for a variable for each hyperedge; `hypergraph` then names no
            slots.
        """
        return None

    def normalised(self, counts: FloatArray) -> FloatArray:
        """Return the probabilities of greatest likelihood for some counts.

        A block without counts gets equal probabilities.

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
        """Return the sum of `values`, of shape (M,), over every block: (C,) numbers."""
        return np.add.reduceat(np.asarray(values, dtype=np.float64), self.first[:-1])

    def log_likelihood(self, counts: FloatArray) -> float:
        """Return the largest log-likelihood that parameters give to structures of some counts.

        The function ``G(f) = sum_m f_m log f_m - sum_c F_c log F_c``, where F_c is the sum of block
        c: convex, and homogeneous of degree one. It is the objective of Viterbi training
        (Gormley & Eisner 2013, Eq. 1) once the best parameters for the counts are put in.
        """
        return float(_x_log_x(counts).sum() - _x_log_x(self.sums(counts)).sum())


def _x_log_x(x: FloatArray) -> FloatArray:
    positive = np.where(x > 0.0, x, 1.0)
    return positive * np.log(positive)
