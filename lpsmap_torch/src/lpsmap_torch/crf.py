"""A linear-chain conditional random field that owns its transitions."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from lpsmap_core.api import checked_count
from lpsmap_torch.distributions.chain import Chain, chains
from lpsmap_torch.distributions.positions import lengths_of, mask_of
from lpsmap_torch.forms import PADDING
from lpsmap_torch.layers.checks import check_scores
from lpsmap_torch.losses import CRFLoss


class CRF(nn.Module):
    """A linear-chain conditional random field (Lafferty et al. 2001): the last module of a tagger.

    Its call is the negative log-likelihood, to be minimised.

    Parameters
    ----------
    n_tags
        The number of tags.
    reduction
        Of the losses of sentences, as in `CRFLoss`.
    device, dtype
        Of the parameters, as in the modules of `torch.nn`.

    Attributes
    ----------
    transitions
        ``(n_tags, n_tags)`` the score of tag j after tag i at ``[i, j]``; a parameter, like
        `initial` and `final`.
    initial, final
        ``(n_tags,)`` scores of the first and of the last tag.

    Examples
    --------
    >>> import torch
    >>> from lpsmap_torch import CRF
    >>> crf = CRF(3)
    >>> scores, tags = torch.zeros(1, 2, 3), torch.tensor([[0, 2]])
    >>> crf(scores, tags).exp()
    tensor(9., grad_fn=<ExpBackward0>)
    >>> crf.decode(torch.eye(3)[None], mask=torch.tensor([[True, False, True]]))
    [[0, 2]]
    """

    def __init__(
        self,
        n_tags: int,
        *,
        reduction: str = "mean",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        n_tags = checked_count("CRF: n_tags", n_tags)
        empty = partial(torch.empty, device=device, dtype=dtype)
        self.transitions = nn.Parameter(empty(n_tags, n_tags))
        self.initial, self.final = nn.Parameter(empty(n_tags)), nn.Parameter(empty(n_tags))
        self._loss = CRFLoss(partial(chains, name="CRF"), reduction=reduction)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all scores to zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(
        self,
        scores: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        *,
        lengths: Any = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the negative log-likelihood of tags.

        Parameters
        ----------
        scores
            ``(batch, L, n_tags)`` scores of the tags.
        tags
            ``(batch, L)`` integers. -100 marks unknown tags, over which the likelihood is summed;
            tags of positions that take no part may be any.
        mask, lengths
            As in `lpsmap_torch.distributions.Chain`: the positions that take part.
        weight
            ``(batch,)`` by which the losses of the sentences are multiplied.
        """
        self._check(scores)
        arguments = {"lengths": lengths, "mask": mask, **self._scores()}
        loss: Tensor = self._loss(scores, tags, weight=weight, **arguments)
        return loss

    def distribution(
        self, scores: Tensor, mask: Tensor | None = None, *, lengths: Any = None
    ) -> Chain:
        """Return the distribution over tags: marginals, samples, the k best, entropies.

        Parameters
        ----------
        scores, mask, lengths
            As in `forward`; the batch may have any number of axes.
        """
        self._check(scores)
        lengths_of("CRF", lengths, tuple(scores.shape[:-2]))
        if mask is not None:
            mask_of("CRF", mask, tuple(scores.shape[:-1]))
        return Chain(scores, **self._scores(), lengths=lengths, mask=mask)

    def decode(
        self, scores: Tensor, mask: Tensor | None = None, *, lengths: Any = None
    ) -> list[Any]:
        """Return the best tags of every sentence as lists, without positions that take no part.

        Parameters
        ----------
        scores, mask, lengths
            As in `distribution`.
        """
        with torch.no_grad():
            return _lists(self.distribution(scores, mask, lengths=lengths).argmax)

    def extra_repr(self) -> str:
        """Return the arguments for `repr`."""
        return f"{len(self.initial)}"

    def _check(self, scores: Any) -> None:
        check_scores("CRF", scores, 2)
        if scores.shape[-1] != len(self.initial):
            raise ValueError(
                f"CRF: scores has shape {tuple(scores.shape)}; expected {len(self.initial)} tags "
                "on the last axis, as n_tags says."
            )

    def _scores(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("transitions", "initial", "final")}


def _lists(tags: Tensor) -> list[Any]:
    if tags.ndim == 1:
        return [int(tag) for tag in tags[tags != PADDING]]
    return [_lists(x) for x in tags]
