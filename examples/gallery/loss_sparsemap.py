"""
Loss: a parser by SparseMAP
===========================

A parser learns dependency trees by :class:`~lpsmap_torch.losses.SparseMAPLoss`. During training,
fewer trees share the probability, until one is left and the loss is zero.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from lpsmap import DepTree, TorchFactorGraph, plot
from lpsmap_torch.losses import SparseMAPLoss

torch.manual_seed(0)
rng = np.random.default_rng(0)

# %%
# A toy language: a verb between two noun phrases. The head of determiners and adjectives is the
# following noun, that of nouns is the verb, and the verb is the root, with its own index as head.

WORDS = {"D": ["a", "the"], "A": ["big", "old", "red"], "N": ["cat", "dog", "owl"], "V": ["saw"]}
VOCABULARY = [word for words in WORDS.values() for word in words]


def sentence() -> tuple[list[str], list[int]]:
    """Return the words and heads of a sentence."""
    phrases = ["D" + "A" * int(rng.integers(0, 3)) + "N" for _ in range(2)]
    tags = phrases[0] + "V" + phrases[1]
    verb = len(phrases[0])
    nouns = (verb - 1, len(tags) - 1)
    heads = [verb if i in (verb, *nouns) else nouns[i > verb] for i in range(len(tags))]
    return [str(rng.choice(WORDS[tag])) for tag in tags], heads


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return padded words and heads, and the lengths of sentences."""
    drawn = [sentence() for _ in range(size)]
    longest = max(len(heads) for _, heads in drawn)
    words, heads = torch.zeros(2, size, longest, dtype=torch.int64)
    for i, (text, own) in enumerate(drawn):
        words[i, : len(text)] = torch.tensor([VOCABULARY.index(word) for word in text])
        heads[i, : len(own)] = torch.tensor(own)
    return words, heads, torch.tensor([len(own) for _, own in drawn])


# %%
# Scores of arcs from both words and their distance. The loss ignores the scores of padding.


class Parser(nn.Module):
    """Arc scores (batch, modifier, head), those from the root on the diagonal."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.modifier = (nn.Embedding(len(VOCABULARY), 12) for _ in range(2))
        self.distance = nn.Parameter(torch.zeros(19))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of sentences."""
        places = torch.arange(words.shape[1])
        apart = self.distance[(places - places[:, None]).clamp(-9, 9) + 9]
        return self.modifier(words) @ self.head(words).mT / 4 + apart


# %%
# The criterion is called like those of PyTorch, with further arguments of ``DepTree``.

parser, criterion = Parser(), SparseMAPLoss(DepTree)
optimizer = torch.optim.Adam(parser.parameters(), lr=0.03)
test_words, test_heads, test_lengths = batch(1)


def parse():
    """Return the distribution over trees of the test sentence."""
    graph = TorchFactorGraph()
    tree = graph.add(DepTree(graph.variable_from(parser(test_words)[0].detach())))
    graph.solve()
    return graph.structures(tree)[0]


before, losses, trees = parse(), [], []
for _ in range(40):
    words, heads, lengths = batch(16)
    loss = criterion(parser(words), heads, lengths=lengths, root="self")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    trees.append(len(parse()))

figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
axes[0].plot(losses)
axes[0].set(xlabel="update", title="SparseMAP loss of a batch", ylim=(0, None))
axes[1].plot(trees, drawstyle="steps-mid")
axes[1].set(xlabel="update", title="Trees that share the probability", ylim=(0, None))

# %%
# The trees of an unseen sentence, before and after training.

text = [VOCABULARY[i] for i in test_words[0].tolist()]
figure, axes = plt.subplots(2, 1, figsize=(8, 5), layout="constrained")
for ax, distribution, title in zip(axes, (before, parse()), ("before", "after"), strict=True):
    plot.arcs(distribution, text, ax=ax)
    ax.set_title(title)
