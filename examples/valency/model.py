"""A valency tagger whose only view of the sentence is a latent dependency tree.

Niculae & Martins (2020), section 5.1 and appendix E.2.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from lpsmap import Budget, ConvergenceWarning, DepTree, TorchFactorGraph
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
    """Options of the LP-SparseMAP solver, as `FactorGraph.solve` takes them.

    A step size that is given stays fixed, as in the paper; None: the solver chooses and adapts it.
    """

    max_iter: int = 1000
    max_inner_iter: int | None = None
    tol: float = 1e-6
    step_size: float | None = None
    threads: int | None = None


def latent_arcs(
    scores: Tensor, lengths: Tensor, budget: int | None = None, inference: Inference | None = None
) -> tuple[Tensor, int]:
    """Sparse arc probabilities of a ragged batch of sentences, differentiable in the scores.

    Solves Eq. 10 of Niculae & Martins (2020): for every sentence a non-projective tree factor over
    its arcs and, with a budget, one Budget factor per head over the arcs to its modifiers.

    Parameters
    ----------
    scores : Tensor (size, length, length)
        `scores[b, m, h]` for the arc from head h to modifier m, `scores[b, m, m]` for the arc from
        the root to m; what lies beyond a sentence's length is not looked at.
    lengths : Tensor (size,) of int64
    budget : int, optional
        The most modifiers that a word may have; the root is not limited.

    Returns
    -------
    arcs : Tensor (size, length, length)
        Every row of a sentence sums to 1; padding is 0.
    n_unsolved : int
        How many sentences the solver did not solve to its tolerance within its limits. Training
        can live with their approximate arcs, so they are counted here and not warned of.
    """
    options = inference or Inference()
    valid = torch.arange(scores.shape[1]) < lengths[:, None]
    inside = valid[:, :, None] & valid[:, None, :]
    graph = TorchFactorGraph()
    arcs = graph.variable_from(scores)
    graph.add(DepTree(arcs, packed=True, lengths=lengths))
    if budget is not None:
        between_words = inside & ~torch.eye(scores.shape[1], dtype=torch.bool)
        graph.add(Budget(arcs, budget, axis=-2, mask=between_words))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = graph.solve(
            max_iter=options.max_iter,
            max_inner_iter=options.max_inner_iter,
            tol=options.tol,
            step_size=options.step_size,
            adapt=options.step_size is None,
            threads=options.threads,
        )
    return torch.where(inside, arcs.value, 0.0), len(solution.failed)


def fixed_arcs(heads: Tensor, valid: Tensor) -> Tensor:
    """Arcs (size, length, length) of trees with `heads` (size, length); root on the diagonal."""
    return nn.functional.one_hot(heads, heads.shape[1]) * valid[:, :, None].float()


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
        positions = torch.arange(inputs.shape[1])
        mirrored = lengths[:, None] - 1 - positions
        mirrored = torch.where(mirrored < 0, positions, mirrored)[..., None]
        backwards = self.backwards(inputs.take_along_dim(mirrored, 1))[0]
        return torch.cat([self.forwards(inputs)[0], backwards.take_along_dim(mirrored, 1)], dim=-1)


class ValencyTagger(nn.Module):
    """BiLSTM, arc scores, (latent) tree, one graph convolution on de-lexicalised states, labels.

    The convolution starts from one learned vector v at every position, so that the prediction for a
    word can depend on nothing but the arcs at that word.

    Parameters
    ----------
    structure : Structure
    inference : Inference, optional
        Limits of the solver, for the latent structures.
    size : int
        Size of the embedding, of the BiLSTM output, of the arc and the graph hidden layers.

    Attributes
    ----------
    n_inferred, n_unsolved : int
        How many latent trees were inferred so far, and how many of those not to tolerance.
    """

    def __init__(
        self, structure: Structure, inference: Inference | None = None, size: int = 50
    ) -> None:
        super().__init__()
        self.structure = structure
        self.inference = inference
        self.n_inferred = self.n_unsolved = 0
        self.embedding = nn.Embedding(len(VOCABULARY), size)
        self.encoder = BiLSTM(size, size // 2)
        self.as_head = nn.Linear(size, size)
        self.as_modifier = nn.Linear(size, size)
        self.root = nn.Parameter(torch.randn(size) / size**0.5)
        self.start = nn.Parameter(torch.randn(size))
        self.from_self = nn.Linear(size, size)
        self.from_modifiers = nn.Linear(size, size, bias=False)
        self.from_head = nn.Linear(size, size, bias=False)
        self.output = nn.Linear(size, N_CLASSES)

    def scores(self, batch: Batch) -> Tensor:
        """Arc scores (size, length, length), laid out as `latent_arcs` takes them.

        `<W_hd h_h + b_hd, ReLU(W_mo h_m + b_mo)>` for head h and modifier m; the root has a learned
        vector in place of `W_hd h_h + b_hd`.
        """
        states = self.encoder(self.embedding(batch.tokens), batch.lengths)
        modifiers = self.as_modifier(states).relu()
        between_words = modifiers @ self.as_head(states).mT
        from_root = torch.diag_embed(modifiers @ self.root)
        return torch.where(torch.eye(states.shape[1], dtype=torch.bool), from_root, between_words)

    def arcs(self, batch: Batch) -> Tensor:
        """Arc probabilities (size, length, length) of the model's structure."""
        if self.structure.is_latent:
            budget = MAX_ARGUMENTS if self.structure is Structure.TREE_BUDGET else None
            arcs, n_unsolved = latent_arcs(
                self.scores(batch), batch.lengths, budget, self.inference
            )
            self.n_inferred += len(arcs)
            self.n_unsolved += n_unsolved
            return arcs
        if self.structure is Structure.GOLD:
            return fixed_arcs(batch.heads, batch.valid)
        to_the_left = (torch.arange(batch.tokens.shape[1]) - 1).clamp(min=0)
        return fixed_arcs(to_the_left.expand_as(batch.tokens), batch.valid)

    def forward(self, batch: Batch) -> Tensor:
        """Class scores (size, length, classes) of every token; meaningful at operators."""
        return self.tag(self.arcs(batch))

    def tag(self, arcs: Tensor) -> Tensor:
        """Class scores (size, length, classes) from arcs (size, length, length).

        All states are the same v, so the messages `sum_m arcs[m, i] W v` add up to the word's
        expected number of modifiers times one vector; likewise for its head. The root sends none.
        """
        between_words = arcs - torch.diag_embed(arcs.diagonal(dim1=-2, dim2=-1))
        n_modifiers = between_words.sum(-2)[..., None]
        n_heads = between_words.sum(-1)[..., None]
        hidden = (
            self.from_self(self.start)
            + n_modifiers * self.from_modifiers(self.start)
            + n_heads * self.from_head(self.start)
        ).relu()
        logits: Tensor = self.output(hidden)
        return logits
