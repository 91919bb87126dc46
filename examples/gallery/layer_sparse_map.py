"""
Any factor type as a layer
==========================

``SparseMAP`` turns a factor type into a layer. Here it is ``Alignment``: a text and its
translation, in which every symbol is replaced by another one, once or twice. The network learns the
dictionary by predicting the text from the translation.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap import Alignment
from lpsmap_torch.layers import SparseMAP

torch.manual_seed(1)
n_symbols, length, size = 6, 5, 32
dictionary = torch.randperm(n_symbols)


def pairs():
    """Return texts, translations, and the lengths of the translations."""
    text = torch.randint(n_symbols, (size, length))
    times = torch.randint(1, 3, (size, length))
    said = [dictionary[row].repeat_interleave(n) for row, n in zip(text, times, strict=True)]
    return text, nn.utils.rnn.pad_sequence(said, batch_first=True), times.sum(1)


# %%
# Scores are a table over both alphabets. Lengths are those of the text and of the translation.

table = nn.Parameter(0.1 * torch.randn(n_symbols, n_symbols))
reader = nn.Linear(n_symbols, n_symbols)
align = SparseMAP(Alignment)
optimizer = torch.optim.Adam([table, *reader.parameters()], lr=0.05)
losses = []
for _ in range(60):
    text, said, lengths = pairs()
    scores = table[text[:, :, None], said[:, None, :]]
    ends = torch.stack([torch.full_like(lengths, length), lengths], -1)
    weights = align(scores, lengths=ends)
    heard = weights @ nn.functional.one_hot(said, n_symbols).float()
    loss = nn.functional.cross_entropy(reader(heard).flatten(0, 1), text.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

# %%
# The weights of a pair are a sparse mixture of monotone alignments; these are the most likely.

figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
axes[0].plot(losses, color="#0072b2")
axes[0].set(xlabel="step", ylabel="loss", ylim=(0, None))
axes[1].imshow(weights[0, :, : lengths[0]].detach().numpy(), cmap="Blues", vmin=0, vmax=1)
axes[1].set(title="weights of a pair", xlabel="translation", ylabel="text")
axes[2].imshow(table.detach()[:, dictionary].numpy(), cmap="Blues")
axes[2].set(title="table, translations in order", xlabel="translation", ylabel="symbol")
align.structures(scores[:1], lengths=ends[:1])
