"""
Rationales
==========

Three neighbouring words somewhere in a text determine its label. A classifier that sees only the
words of a rationale learns to find them. ``Rationale`` selects at most three words on average, and
learns a score for selecting neighbours. A temperature that falls during training first spreads the
weight over many words, and then selects few.
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
losses, found, kept = [], [], []
steps, hot, cold = 120, 3.0, 0.1
for step in range(steps):
    rationale.temperature = hot * (cold / hot) ** (step / (steps - 1))
    text, labels, first = texts()
    chosen = rationale(score(text)[..., 0])
    loss = nn.functional.cross_entropy((chosen[..., None] * classify(text)).sum(1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    places = first[:, None] + torch.arange(3)
    found.append((chosen.gather(1, places).sum(1) / 3).mean().item())
    kept.append((chosen > 0).sum(1).float().mean().item())

# %%
# In the last batch 3.0 of 12 words keep weight, and 99.7 % of it is on the phrase. At temperature 1
# throughout, 5.6 words keep weight, and 78 % of it is on the phrase. In each text words of the
# phrase are selected, others are not.

print(f"{kept[-1]:.1f} words with weight, {found[-1]:.1%} of the phrase")
figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
axes[0].plot(losses, color="#999999", label="loss")
axes[0].plot(found, color="#0072b2", label="of the phrase chosen")
axes[0].plot([n / length for n in kept], color="#d55e00", label="words with weight")
axes[0].set(xlabel="step", ylim=(0, None))
axes[0].legend(frameon=False)
axes[1].imshow(chosen[:8].detach().numpy(), cmap="Blues", vmin=0, vmax=1)
axes[1].set(title="eight texts", xlabel="word", ylabel="text")
for k, place in enumerate(first[:8].tolist()):
    box = plt.Rectangle((place - 0.5, k - 0.5), 3, 1, fill=False, color="#d55e00", linewidth=1.5)
    axes[1].add_patch(box)
