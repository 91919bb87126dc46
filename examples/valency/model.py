"""A valency tagger whose only view of the sentence is a latent dependency tree.

Niculae & Martins (2020), section 5.1 and appendix E.2.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from lpsmap_torch.layers import LatentTree
from valency.batches import N_CLASSES, Batch
from valency.expressions import MAX_ARGUMENTS, VOCABULARY


class Structure(str, Enum):
    """Where the arcs come from."""

    LEFT_TO_RIGHT = "left-to-right"
    TREE = "tree"
    TREE_BUDGET = "tree+budget"
    GOLD = "gold"

    @property
    def is_latent(self) -> bool:
        """Whether the arcs are inferred from learned scores."""
        return self in (Structure.TREE, Structure.TREE_BUDGET)


@dataclass(frozen=True)
class Inference:
    """Options of the solver, as in layers."""

    max_iter: int = 1000
    max_inner_iter: int | None = None
    tol: float = 1e-6
    step_size: float | None = None
    adapt: bool = True
    relaxation: float = 1.6
    threads: int | None = None


def latent_arcs(tree: LatentTree, scores: Tensor, lengths: Tensor) -> Tensor:
    """Sparse arc probabilities of a ragged batch of sentences, differentiable in the scores.

    The first token of a sentence is its root: the trees of the layer are over all others.

    Parameters
    ----------
    tree : LatentTree
    scores : Tensor (size, length, length)
        `scores[b, m, h]` for the arc from head h to modifier m. The scores of heads of the first
        token, of self-loops, and beyond the length of a sentence are ignored.
    lengths : Tensor (size,) of int64

    Returns
    -------
    Tensor (size, length, length)
        The rows of all tokens of a sentence except the first sum to 1; all other entries are 0.
    """
    return arcs_with_root(tree(word_scores(scores), lengths=lengths - 1))


def word_scores(scores: Tensor) -> Tensor:
    """Scores (size, length - 1, length - 1) of a `LatentTree` over all tokens except the first."""
    diagonal = torch.eye(scores.shape[1] - 1, dtype=torch.bool)
    return torch.where(diagonal, scores[:, 1:, :1], scores[:, 1:, 1:])


def arcs_with_root(found: Tensor) -> Tensor:
    """Arcs (..., length, length) from values (..., length - 1, length - 1) of a `LatentTree`."""
    diagonal = torch.eye(found.shape[-1], dtype=torch.bool)
    from_root = found.diagonal(dim1=-2, dim2=-1)[..., None]
    arcs = torch.cat([from_root, found.masked_fill(diagonal, 0.0)], dim=-1)
    return nn.functional.pad(arcs, (0, 0, 1, 0))


def fixed_arcs(heads: Tensor, valid: Tensor) -> Tensor:
    """Arcs (size, length, length) of trees with `heads` (size, length); the root has none."""
    arcs = nn.functional.one_hot(heads, heads.shape[1]) * valid[:, :, None].float()
    arcs[:, 0] = 0.0
    return arcs


class BiLSTM(nn.Module):
    """Two LSTMs over a padded batch, one of them over each sentence from its own last word back.

    Same as `nn.LSTM(bidirectional=True)` on packed sequences, but four times as fast on a CPU,
    where only padded input reaches the fused kernels.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.backwards = nn.LSTM(input_size, hidden_size, batch_first=True)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """States (size, length, 2 * hidden) from inputs (size, length, features)."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        mirrored = lengths.to(inputs.device)[:, None] - 1 - positions
        mirrored = torch.where(mirrored < 0, positions, mirrored)[..., None]
        backwards = self.backwards(inputs.take_along_dim(mirrored, 1))[0]
        return torch.cat([self.forwards(inputs)[0], backwards.take_along_dim(mirrored, 1)], dim=-1)


class ValencyTagger(nn.Module):
    """BiLSTM, arc scores, (latent) tree, one graph convolution on de-lexicalised states, labels.

    The convolution starts from one learned vector v at every position, and heads send no messages:
    a token's label depends on nothing but its number of modifiers.

    Parameters
    ----------
    structure : Structure
    inference : Inference, optional
        Limits of the solver, for the latent structures.
    budget_on_root
        Whether the budget also applies to the root.
    size : int
        Size of the embedding, of the BiLSTM output, of the arc and the graph hidden layers.
    """

    def __init__(
        self,
        structure: Structure,
        inference: Inference | None = None,
        *,
        budget_on_root: bool = True,
        size: int = 50,
    ) -> None:
        super().__init__()
        self.structure = structure
        budgeted = structure is Structure.TREE_BUDGET
        self.tree = LatentTree(
            budget=MAX_ARGUMENTS if budgeted else None,
            budget_root=budgeted and budget_on_root,
            **asdict(inference or Inference()),
        )
        self.embedding = nn.Embedding(len(VOCABULARY), size)
        self.encoder = BiLSTM(size, size // 2)
        self.as_head = nn.Linear(size, size)
        self.as_modifier = nn.Linear(size, size)
        self.start = nn.Parameter(torch.randn(size))
        self.from_self = nn.Linear(size, size)
        self.from_modifiers = nn.Linear(size, size, bias=False)
        self.output = nn.Linear(size, N_CLASSES)
        # arcs receive gradients only after the counts are informative
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def scores(self, batch: Batch) -> Tensor:
        """Arc scores (size, length, length), with the layout of `latent_arcs`.

        `<W_hd h_h + b_hd, ReLU(W_mo h_m + b_mo)>` for head h and modifier m.
        """
        states = self.encoder(self.embedding(batch.tokens), batch.lengths)
        scores: Tensor = self.as_modifier(states).relu() @ self.as_head(states).mT
        return scores

    def arcs(self, batch: Batch, scores: Tensor | None = None) -> Tensor:
        """Arc probabilities (size, length, length) of the model's structure.

        Parameters
        ----------
        scores
            The result of `scores`, if already computed.
        """
        if self.structure.is_latent:
            known = self.scores(batch) if scores is None else scores
            return latent_arcs(self.tree, known, batch.lengths)
        if self.structure is Structure.GOLD:
            return fixed_arcs(batch.heads, batch.valid)
        to_the_left = (torch.arange(batch.tokens.shape[1]) - 1).clamp(min=0)
        return fixed_arcs(to_the_left.expand_as(batch.tokens), batch.valid)

    def forward(self, batch: Batch) -> Tensor:
        """Class scores (size, length, classes) of every token; meaningful at operators."""
        return self.tag(self.arcs(batch))

    def tag(self, arcs: Tensor) -> Tensor:
        """Class scores (size, length, classes) from arcs (size, length, length).

        All states are the same v, so the messages `sum_m arcs[m, i] W v` add up to the token's
        expected number of modifiers times one vector.
        """
        n_modifiers = arcs.sum(-2)[..., None]
        hidden = self.from_self(self.start) + n_modifiers * self.from_modifiers(self.start)
        logits: Tensor = self.output(nn.functional.leaky_relu(hidden, 0.2))
        return logits
