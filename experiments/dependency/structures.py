"""The parser's factor graphs: trees, trees with labels, trees beside head automata."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from lpsmap import DepTree, Factor, HeadAutomaton, Variables

__all__ = ["Structure", "sibling_tables", "tree_factors"]


class Structure(str, Enum):
    """The scored and inferred structures."""

    ARCS = "arcs"
    RELATIONS = "relations"
    SIBLINGS = "siblings"


def tree_factors(
    u: Variables,
    *,
    lengths: Tensor,
    single_root: bool = False,
    labelled: bool = False,
    siblings: tuple[Tensor, Tensor] | None = None,
) -> list[Factor]:
    """Return the tree factor of every sentence, and the head automata of its words.

    Parameters
    ----------
    u
        (size, n, n) arcs, or (size, n, n, relations) if `labelled`.
    lengths
        (size,)
    single_root
        Whether the root has exactly one modifier.
    labelled
        Whether arcs have relations.
    siblings
        The result of `sibling_tables`.
    """
    tree = DepTree(u, lengths=lengths.numpy(), single_root=single_root, labelled=labelled)
    if siblings is None:
        return [tree]
    return [tree, *_automata(u, lengths, siblings)]


def _automata(
    u: Variables, lengths: Tensor, siblings: tuple[Tensor, Tensor]
) -> list[HeadAutomaton]:
    """Return the automata of all words on both sides, nearest candidates first."""
    size, n = u.shape[0], u.shape[1]
    if n < 2:
        return []
    head, step = torch.arange(n)[:, None], torch.arange(n - 1)
    sentence = torch.arange(size)[:, None, None]
    found = []
    for table, direction in zip(siblings, (1, -1), strict=True):
        word = (head + direction * (step + 1)).clamp(0, n - 1)
        there = lengths[:, None] - 1 - head[:, 0] if direction > 0 else head[:, 0].expand(size, n)
        there = torch.where(head[:, 0] < lengths[:, None], there, 0)
        arcs = u[
            sentence.expand(size, n, n - 1).numpy(),
            word.expand(size, n, n - 1).numpy(),
            head.expand(size, n, n - 1).numpy(),
        ]
        found.append(HeadAutomaton(arcs, table, lengths=there.numpy()))
    return found


def sibling_tables(right: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores of siblings in the layout of head automata, for all words as heads.

    Parameters
    ----------
    right, left
        (size, n + 1, n + 2, n + 2) scores [head, inner, outer] of `Scores`: the root is head 0 and
        has no automaton.

    Returns
    -------
    tuple of two tensors (size, n, n, n)
        [head, 1 + inner candidate, outer candidate], the nearest candidate of a side first.
    """
    n = right.shape[1] - 1
    head = torch.arange(n)[:, None, None]
    step = torch.arange(n)
    found = []
    for scores, direction in ((right, 1), (left, -1)):
        # Word w is state w + 1, and inner state w + 2; candidate i is head + direction * (i + 1).
        inner = torch.where(step == 0, 0, head[:, 0] + direction * step + 2)[:, :, None]
        outer = torch.where(step == n - 1, n + 1, head[:, 0] + direction * (step + 1) + 1)
        inner, outer = inner.clamp(0, n + 1), outer[:, None].clamp(0, n + 1)
        found.append(scores[:, head + 1, inner, outer])
    return found[0], found[1]
