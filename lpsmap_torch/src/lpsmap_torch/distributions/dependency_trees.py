"""Dependency trees, labelled or not."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_torch.built_graph import factor_type
from lpsmap_torch.distributions.positions import present
from lpsmap_torch.distributions.structured_distribution import StructuredDistribution
from lpsmap_torch.forms import Heads, LabelledHeads


def dependency_trees(u: Variables, lengths: Any, mask: Any, **options: bool) -> Factor:
    """Return trees over the words that take part, given the variables of arcs.

    Lengths and mask are as in `Tree`, and the options are those of `DepTree`.
    """
    name = "ProjectiveTree" if options["projective"] else "Tree"
    name, n_axes = ("LabelledTree", 3) if options["labelled"] else (name, 2)
    if u.shape[-n_axes] != u.shape[1 - n_axes]:
        raise ValueError(
            f"{name}: scores has shape {u.shape}; expected (..., n, n{', K' * (n_axes - 2)}): a "
            "row for every word, with a column for every head, and the root's arc on the diagonal."
        )
    words = present(name, u, n_axes, lengths, mask, n_axes=2)
    return factor_type("DepTree")(words.variables, lengths=words.lengths, **options)


class Tree(StructuredDistribution):
    """Dependency trees, whose arcs may cross: sums by the matrix-tree theorem (Smith & Smith 2007).

    Values are heads of shape ``(..., n)``, counted from 0, with -1 for the root and -100 at words
    that take no part.

    Parameters
    ----------
    scores
        ``(..., n, n)``: ``scores[..., m, h]`` of the arc from head h to modifier m, and
        ``scores[..., m, m]`` of that from the root to m.
    single_root
        Whether exactly one word hangs from the root.
    lengths
        Integers that broadcast to the batch.
    mask
        Booleans that broadcast to ``(..., n)``, true for words that take part. Heads are numbers of
        words before the others are left out.
    validate_args
        As in `StructuredDistribution`.

    Examples
    --------
    >>> import torch
    >>> from lpsmap_torch.distributions import Tree
    >>> tree = Tree(torch.tensor([[[0.0, 2.0], [0.0, 1.0]]]))
    >>> tree.argmax
    tensor([[ 1, -1]])
    >>> tree.k_best(3).values[:, 0]
    tensor([[ 1, -1],
            [-1, -1],
            [-1,  0]])
    """

    _projective = False

    def __init__(
        self,
        scores: Tensor,
        *,
        single_root: bool = False,
        lengths: Any = None,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(
            dependency_trees,
            scores,
            event_ndim=2,
            form=Heads,
            validate_args=validate_args,
            projective=self._projective,
            single_root=single_root,
            labelled=False,
            lengths=lengths,
            mask=mask,
        )


class ProjectiveTree(Tree):
    """Dependency trees without crossing arcs: sums by Eisner's algorithm.

    Values and parameters are those of `Tree`.
    """

    _projective = True


class LabelledTree(StructuredDistribution):
    """Dependency trees with a label on every arc.

    Values are pairs of a head and a label, ``(..., n, 2)``.

    Parameters
    ----------
    scores
        ``(..., n, n, K)``, as in `Tree`, for every label.
    projective
        Whether arcs must not cross.
    single_root, lengths, mask, validate_args
        As in `Tree`.
    """

    def __init__(
        self,
        scores: Tensor,
        *,
        projective: bool = False,
        single_root: bool = False,
        lengths: Any = None,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(
            dependency_trees,
            scores,
            event_ndim=3,
            form=LabelledHeads,
            validate_args=validate_args,
            projective=projective,
            single_root=single_root,
            labelled=True,
            lengths=lengths,
            mask=mask,
        )
