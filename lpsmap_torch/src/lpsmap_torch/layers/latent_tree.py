"""Latent dependency trees."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_core.api import checked_count
from lpsmap_torch.built_graph import Declarations, factor_type
from lpsmap_torch.forms import Heads
from lpsmap_torch.layers.checks import Instances, words_of
from lpsmap_torch.layers.layer import Layer


class LatentTree(Layer):
    """Marginals of the arcs of a latent dependency tree over every sentence.

    The graph has a `DepTree`, and a `ModifierBudget` if `budget` is given (Niculae & Martins 2020,
    section 5.1).

    Parameters
    ----------
    budget
        The maximum number of modifiers of a word; None for any number. A call can set it for every
        sentence: ``layer(scores, budget=torch.tensor([2, 3]))``.
    projective
        Whether arcs must not cross.
    single_root
        Whether the root has exactly one modifier.
    budget_root
        Whether the budget also applies to the root.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Raises
    ------
    ValueError
        If `budget_root` is given without `budget`, or an option is out of range.

    Notes
    -----
    Scores are ``(..., n, n)``: ``scores[..., m, h]`` for the arc from head h to modifier m, and
    ``scores[..., m, m]`` for that from the root to m. Lengths are integers of the batch's shape. A
    mask of shape ``(..., n)`` marks the words; padding must come last. Every word's row of
    marginals sums to 1.
    """

    event_ndim: int = 2
    limit: ClassVar[str] = "budget"
    solved_by: ClassVar[tuple[str, ...]] = ("projective", "single_root", "budget", "budget_root")

    def __init__(
        self,
        budget: int | None = None,
        *,
        projective: bool = False,
        single_root: bool = False,
        budget_root: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if budget is not None:
            budget = checked_count("LatentTree: budget", budget, least=0)
        elif budget_root:
            raise ValueError(
                "LatentTree: budget_root is True but budget is None; expected a number. Set budget."
            )
        self.projective, self.single_root = projective, single_root
        self.budget, self.budget_root = budget, budget_root

    def heads(
        self, scores: Tensor, options: dict[str, Any] | None = None, **arguments: Any
    ) -> Tensor:
        """Return the heads of the words in the best trees, whose budgets are obeyed.

        Parameters
        ----------
        scores, options, arguments
            As in `decode`.

        Returns
        -------
        Tensor
            ``(..., n)`` heads, counted from 0, with -1 for the root, and -100 in the padding and in
            sentences without a tree.
        """
        trees = self.decode(scores, options, **arguments)
        return Heads(tuple(trees.shape[-2:])).read(trees)

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return the trees, and the budgets of their heads."""
        if u.shape[-2] != u.shape[-1]:
            raise ValueError(
                f"LatentTree: scores has shape {u.shape}; expected (..., n, n): a row for every "
                "word, with a column for every head, and the arc from the root on the diagonal."
            )
        budget = self.budget if instances.limits is None else instances.limits
        n_words = words_of(type(self).__name__, u.shape[:-1], instances)
        trees = factor_type("DepTree")(
            u,
            projective=self.projective,
            single_root=self.single_root,
            lengths=n_words,
        )
        factors: list[Factor] = [trees]
        if budget is not None:
            root = budget if self.budget_root else None
            of_words = np.asarray(budget)[..., None]
            limits = factor_type("ModifierBudget")
            factors.append(limits(u, of_words, root_budget=root, lengths=n_words))
        return Declarations(factors)

    def _repr_arguments(self) -> dict[str, Any]:
        names = "projective", "single_root", "budget", "budget_root"
        return {name: getattr(self, name) for name in names if getattr(self, name)}
