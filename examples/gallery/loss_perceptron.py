"""
Loss: a structured perceptron
=============================

Words that end in the same letters have the same tag, mostly, and tags follow each other by rules. A
tagger learns both by :class:`~lpsmap_torch.losses.PerceptronLoss`: a sentence contributes to the
loss only if the best tagging scores more than the correct one.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from lpsmap import Sequence, TorchFactorGraph, plot
from lpsmap_torch.losses import PerceptronLoss

rng = np.random.default_rng(0)
torch.manual_seed(0)
TAGS = ["noun", "verb", "adverb"]
FOLLOWS = np.array([[0.1, 0.8, 0.1], [0.5, 0.0, 0.5], [0.6, 0.4, 0.0]])  # by row

# %%
# Sentences of eight words. A word reveals its tag in three of four cases; otherwise its tag depends
# only on its neighbours.


def batch(size: int):
    """Return signs of words, and their tags."""
    tags = np.zeros((size, 8), dtype=np.int64)
    for row in tags:
        for t in range(8):
            row[t] = rng.choice(3, p=FOLLOWS[row[t - 1]] if t else None)
    signs = np.where(rng.random(tags.shape) < 0.75, tags, 3)
    return torch.from_numpy(signs), torch.from_numpy(tags)


# %%
# The transitions are additional scores of the factor: they are passed to the criterion and trained.


class Tagger(nn.Module):
    """Scores of tags from signs, and of transitions."""

    def __init__(self) -> None:
        super().__init__()
        self.tag = nn.Embedding(4, 3)
        self.transitions = nn.Parameter(torch.zeros(3, 3))


def tagging(u, transitions):
    """Return the factors of a batch of taggings."""
    return Sequence(u, transitions)


def decode(tagger, signs):
    """Return the best taggings, a distribution of one structure for every sentence."""
    graph = TorchFactorGraph()
    factor = graph.add(tagging(graph.variable_from(tagger.tag(signs)), tagger.transitions))
    graph.solve_map()
    return graph.structures(factor)


tagger, criterion = Tagger(), PerceptronLoss(tagging)
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.03)
test_signs, test_tags = batch(100)
losses, accuracy = [], []
for _ in range(80):
    signs, tags = batch(16)
    loss = criterion(tagger.tag(signs), tags, transitions=tagger.transitions)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    found = decode(tagger, test_signs).variables[:, 0].argmax(-1)
    accuracy.append((found == test_tags).float().mean().item())

figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
axes[0].plot(losses)
axes[0].set(xlabel="update", title="Perceptron loss of a batch", ylim=(0, None))
axes[1].plot(accuracy)
axes[1].axhline(0.75 + 0.25 / 3, color="grey", linestyle=":")
axes[1].set(xlabel="update", title="Right tags (dotted: by signs alone)", ylim=(0.3, 1))

# %%
# A new sentence, decoded. Question marks are words that do not reveal their tag.

signs, _ = batch(1)
plot.lattice(decode(tagger, signs)[0], TAGS, [(*TAGS, "?")[i] for i in signs[0].tolist()])
plt.gcf().set_size_inches(8, 3)
