"""
Attention by sequences
======================

A text is copied with an offset from a longer one of few symbols, so a symbol alone does not
determine its source. ``SequenceAttention`` learns a score for every step distance; here the next
symbol comes from the next position.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import SequenceAttention

torch.manual_seed(0)
n_symbols, n_hidden, rows, columns, size = 3, 12, 6, 9, 32


def copies():
    """Return symbols, the reverse side of the long texts, the copies, and their reverse side."""
    symbol = torch.randint(n_symbols, (size, columns))
    other = torch.randint(n_hidden, (size, columns))
    places = torch.randint(columns - rows + 1, (size, 1)) + torch.arange(rows)
    return symbol, other, symbol.gather(1, places), other.gather(1, places), places


# %%
# The network sees the symbols, and predicts the reverse side of their source positions. A tenth of
# the probability is uniform: a sequence without weight at the target would otherwise have a loss
# so steep that the scores of distances jump between kinks.

attention = SequenceAttention()
alike = nn.Parameter(0.1 * torch.randn(n_symbols, n_symbols))
optimizer = torch.optim.Adam([alike, *attention.parameters()], lr=0.05)
losses = []
for _ in range(80):
    symbol, other, copied, target, places = copies()
    weights = attention(alike[copied[:, :, None], symbol[:, None, :]])
    read = 0.9 * weights @ nn.functional.one_hot(other, n_hidden).float() + 0.1 / n_hidden
    loss = nn.functional.nll_loss(read.log().flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

# %%
# It has learned to advance by one.

figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
axes[0].plot(losses, color="#0072b2")
axes[0].set(xlabel="step", ylabel="loss", ylim=(0, None))
axes[1].bar(["≤ -2", "-1", "0", "1", "≥ 2"], attention.distances.tolist(), color="#0072b2")
axes[1].set(title="scores of distances")
axes[2].imshow(weights[0].detach().numpy(), cmap="Blues", vmin=0, vmax=1)
axes[2].plot(
    places[0].tolist(), range(rows), "o", color="#d55e00", markerfacecolor="none", markersize=9
)
axes[2].set(title="a copy", xlabel="place", ylabel="copy")
