"""Chains of tags: linear-chain conditional random fields."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_torch.built_graph import factor_type
from lpsmap_torch.distributions.positions import present
from lpsmap_torch.distributions.structured_distribution import StructuredDistribution
from lpsmap_torch.forms import Tags


def chains(
    u: Variables,
    transitions: Any,
    initial: Any = None,
    final: Any = None,
    lengths: Any = None,
    mask: Any = None,
    name: str = "Chain",
) -> Factor:
    """Return the factors of `Chain` over ``(..., L, S)`` variables: sequences without gaps."""
    positions = present(name, u, 2, lengths, mask)
    n_states = u.shape[-1]
    if tuple(transitions.shape[-2:]) != (n_states, n_states):
        raise ValueError(
            f"{name}: transitions has shape {tuple(transitions.shape)}; expected "
            f"({n_states}, {n_states}), or more axes before these."
        )
    if positions.holes and transitions.ndim > 2 and transitions.shape[-3] > 1:
        raise ValueError(
            f"{name}: mask leaves out positions between others, and every step has transitions of "
            "its own; expected transitions that all steps share, or a mask without holes."
        )
    return factor_type("Sequence")(
        positions.variables, transitions, initial, final, lengths=positions.lengths
    )


class Chain(StructuredDistribution):
    """Sequences of tags: a linear-chain conditional random field (Lafferty et al. 2001).

    Values are tags of shape ``(..., L)``, with -100 at positions that take no part.

    Parameters
    ----------
    scores
        ``(..., L, S)`` scores of `S` tags at `L` positions.
    transitions
        ``(S, S)`` the score of tag j after tag i at ``[i, j]``; or any shape that broadcasts to
        ``(..., L - 1, S, S)``.
    initial, final
        Scores of the first and of the last tag, which broadcast to ``(..., S)``; None for zeros.
    lengths
        Integers that broadcast to the batch.
    mask
        Booleans that broadcast to ``(..., L)``, true for positions that take part. The others are
        skipped: the tag after a gap follows the tag before it.
    validate_args
        As in `StructuredDistribution`.

    Examples
    --------
    >>> import torch
    >>> from lpsmap_torch.distributions import Chain
    >>> chain = Chain(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), torch.eye(2) / 2)
    >>> chain.argmax
    tensor([[0, 1]])
    >>> chain.k_best(2).values[:, 0]
    tensor([[0, 1],
            [1, 1]])
    """

    def __init__(
        self,
        scores: Tensor,
        transitions: Tensor,
        initial: Tensor | None = None,
        final: Tensor | None = None,
        *,
        lengths: Any = None,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(
            chains,
            scores,
            event_ndim=2,
            form=Tags,
            validate_args=validate_args,
            transitions=transitions,
            initial=initial,
            final=final,
            lengths=lengths,
            mask=mask,
        )
