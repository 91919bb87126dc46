"""
Attention by sequences that use a column once
=============================================

Phrases of three words are permuted, and their words stay together. There are few distinct words, so
similarity alone leaves many alignments of the two texts. ``LPSequenceAttention`` uses every word at
most once, and learns a score for steps to a neighbour.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import LPMatchingAttention, LPSequenceAttention

n_words, n_phrases, size = 3, 2, 8
n = 3 * n_phrases


def texts(generator):
    """Return texts with permuted phrases, and the target of each word."""
    words = torch.randint(n_words, (size, n), generator=generator)
    phrases = torch.argsort(torch.rand(size, n_phrases, generator=generator))
    order = (3 * phrases[..., None] + torch.arange(3)).flatten(1)
    return words.gather(1, order), words, order


def train(attention):
    """Return the losses of training, and the last batch's weights and true places."""
    torch.manual_seed(0)
    alike, generator = nn.Parameter(torch.zeros(n_words, n_words)), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam([alike, *attention.parameters()], lr=0.15)
    losses = []
    for _ in range(30):
        moved, words, order = texts(generator)
        weights = attention(alike[moved[:, :, None], words[:, None, :]])
        loss = 1 - weights.gather(2, order[..., None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weights.detach(), order


# %%
# The loss is the weight outside the true alignment.

layers = {"LP-matching": LPMatchingAttention(), "LP-sequence": LPSequenceAttention(tol=1e-3)}
figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
for (name, layer), color, ax in zip(layers.items(), ["#999999", "#0072b2"], axes[1:], strict=True):
    losses, weights, order = train(layer)
    axes[0].plot(losses, color=color, label=name)
    ax.imshow(weights[0].numpy(), cmap="Blues", vmin=0, vmax=1)
    ax.plot(order[0].tolist(), range(n), "o", color="#d55e00", markerfacecolor="none", markersize=9)
    ax.set(title=name, xlabel="text", ylabel="moved")
axes[0].set(xlabel="step", ylabel="weight elsewhere", ylim=(0, None))
axes[0].legend(frameon=False)

# %%
# The learned score of a neighbour:

layers["LP-sequence"].transition
