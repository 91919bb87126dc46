"""
Rationales
==========

Three neighbouring words somewhere in a text determine its label. A classifier that sees only the
words of a rationale learns to find them. ``Rationale`` selects at most three words, and learns a
score for selecting neighbours.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import Rationale

torch.manual_seed(0)
n_words, n_labels, length, size = 40, 3, 12, 64


def texts():
    """Return texts, labelled by a phrase of three words in each."""
    text = torch.randint(3 * n_labels, n_words, (size, length))
    labels = torch.randint(n_labels, (size,))
    first = torch.randint(length - 2, (size, 1))
    phrase = 3 * labels[:, None] + torch.randint(3, (size, 3))
    return text.scatter(1, first + torch.arange(3), phrase), labels, first[:, 0]


# %%
# Scores of words, a rationale, and a sum over it; ``transition`` is trained with the rest.

score, classify = nn.Embedding(n_words, 1), nn.Embedding(n_words, n_labels)
nn.init.zeros_(classify.weight)
rationale = Rationale(budget=3)
modules = nn.ModuleList([score, classify, rationale])
optimizer = torch.optim.Adam(modules.parameters(), lr=0.05)
losses, found = [], []
for _ in range(120):
    text, labels, first = texts()
    chosen = rationale(score(text)[..., 0])
    loss = nn.functional.cross_entropy((chosen[..., None] * classify(text)).sum(1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    places = first[:, None] + torch.arange(3)
    found.append((chosen.gather(1, places).sum(1) / 3).mean().item())

# %%
# Words of the phrases are selected, others are not.

figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
axes[0].plot(losses, color="#999999", label="loss")
axes[0].plot(found, color="#0072b2", label="of the phrase chosen")
axes[0].set(xlabel="step", ylim=(0, None))
axes[0].legend(frameon=False)
axes[1].imshow(chosen[:8].detach().numpy(), cmap="Blues", vmin=0, vmax=1)
axes[1].set(title="eight texts", xlabel="word", ylabel="text")
for k, place in enumerate(first[:8].tolist()):
    box = plt.Rectangle((place - 0.5, k - 0.5), 3, 1, fill=False, color="#d55e00", linewidth=1.5)
    axes[1].add_patch(box)
