"""Attention by matchings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lpsmap_core import Factor, Variables
from lpsmap_core.api import checked_number
from lpsmap_torch.built_graph import Declarations, factor_type
from lpsmap_torch.layers.checks import Instances
from lpsmap_torch.layers.pairs import PairLayer, RelaxedPairLayer

Full = Literal["rows", "shorter", "none"]


class MatchingAttention(PairLayer):
    """Bidirectional attention: a sparse mixture of matchings of rows and columns.

    Every word of the shorter side attends to words of the longer side with weights that sum to 1,
    and every word of the longer side receives a total weight of at most 1 (Niculae et al. 2018,
    section 5.2; Niculae & Martins 2020, Eq. 20). For attention from the columns, transpose the
    weights.

    Parameters
    ----------
    full
        Which side must be matched completely, as in `Matching`.
    null
        Words may also have no partner: a pair is worth its score less `null`, the score of no
        partner for its two words. A number; or True for a parameter of this name, 0 at first. None:
        `full` says which words may have none.
    device, dtype
        Those of the parameter.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Raises
    ------
    ValueError
        If `full` is another word, or ``"rows"`` with `null`.

    Notes
    -----
    Scores are ``(..., m, n)``. Lengths are integers in the shape of the batch with a last axis of
    two, rows and columns; axes of the batch may be 1, and the last ones may be omitted. A mask
    marks the allowed pairs, and broadcasts to the scores; rows and columns without pairs have
    weights of zero, and must come last.
    """

    solved_by: ClassVar[tuple[str, ...]] = ("full",)

    def __init__(
        self,
        full: Full = "shorter",
        *,
        null: bool | float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        name = type(self).__name__
        if full not in ("rows", "shorter", "none"):
            raise ValueError(f"{name}: full is {full!r}; expected 'rows', 'shorter' or 'none'.")
        has_null = null is not None and null is not False
        if has_null and full == "rows":
            raise ValueError(
                f"{name}: full is 'rows' and null is {null!r}, but with null no row needs a "
                "partner; expected one of them."
            )
        self.full: Full = "none" if has_null else full
        self.null: Tensor | float | None = None
        if null is True:
            self.null = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
            self.reset_parameters()
        elif has_null:
            self.null = checked_number(f"{name}: null", null, "a number, or True", lambda x: x == x)

    def reset_parameters(self) -> None:
        """Set the parameter to 0, if there is one."""
        if isinstance(self.null, nn.Parameter):
            nn.init.zeros_(self.null)

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return one matching per instance."""
        rectangles, forbidden = self._rectangles(self._allowed(u.shape, instances))
        lengths = None if instances.are_whole else rectangles  # losses tell them from full ones
        matching = factor_type("Matching")(u, self.full, lengths=lengths)
        return Declarations([matching], forbidden)

    def _prepare(self, scores: Tensor) -> Tensor:
        """Return the scores by which pairs exceed no partner."""
        if self.null is None:
            return scores
        return scores - (self.null.to(scores) if isinstance(self.null, Tensor) else self.null)

    def _repr_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"full": self.full}
        if self.null is not None:
            shown = {"null": True if isinstance(self.null, Tensor) else self.null}
        return {**shown, **super()._repr_arguments()}


class LPMatchingAttention(MatchingAttention, RelaxedPairLayer):
    """Bidirectional attention by LP-SparseMAP over rows and columns.

    The graph has an `Xor` for every word of the shorter side, and an `AtMostOne` for every word of
    the longer side (Niculae & Martins 2020, Eq. 21). At convergence it equals `MatchingAttention`,
    since fractional matchings are mixtures of matchings (Birkhoff 1946). Unlike `MatchingAttention`
    it consists of small factors, and can be stopped early.

    Parameters
    ----------
    rescale
        Whether to divide by the sums over the words of the shorter side, which are 1 only at
        convergence: "For both LP-SparseMAP approaches, we rescale the result by row sums to ensure
        feasibility" (section 5.2). Not if ``full="none"``.
    full, null
        As in `MatchingAttention`, also `device` and `dtype`.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Raises
    ------
    ValueError
        As for `MatchingAttention`, or if words can have no partner with `rescale`.

    Notes
    -----
    Scores, lengths and masks are those of `MatchingAttention`; rows and columns without pairs may
    be anywhere.
    """

    def __init__(
        self,
        rescale: bool = False,
        *,
        full: Full = "shorter",
        null: bool | float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(full, null=null, rescale=rescale, **options)
        if rescale and self.full == "none":
            raise ValueError(
                "LPMatchingAttention: rescale is True, but words may have no partner, so that sums "
                "of weights need not be 1; expected rescale=False."
            )

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return the factors of rows and columns with allowed pairs."""
        m, n = u.shape[-2:]
        allowed = self._allowed(u.shape, instances)
        if not allowed.any():
            return Declarations([])
        allowed, table = allowed.reshape(-1, m, n), u.reshape(-1, m, n)
        heights, widths = allowed.any(axis=2).sum(axis=1), allowed.any(axis=1).sum(axis=1)
        wide = (heights <= widths) | (self.full == "rows")
        of_rows = "AtMostOne" if self.full == "none" else "Xor"
        factors = [
            *_lines(of_rows, table, allowed & wide[:, None, None]),
            *_lines(
                of_rows,
                table.transpose(0, 2, 1),
                (allowed & ~wide[:, None, None]).transpose(0, 2, 1),
            ),
        ]
        return Declarations(factors)


def _lines(of_rows: str, table: Variables, pairs: NDArray[np.bool_]) -> Iterator[Factor]:
    """Yield the factors of rows, of a given type, and of columns, which sum to at most 1."""
    instance, row = np.nonzero(pairs.any(axis=2))
    if instance.size:
        yield factor_type(of_rows)(table[instance, row], mask=pairs[instance, row])
        instance, column = np.nonzero(pairs.any(axis=1))
        lines, there = table[instance, :, column], pairs[instance, :, column]
        yield factor_type("AtMostOne")(lines, mask=there)
