"""
Cookbook: rationales that become short
======================================

Which words of a text explain its label? A classifier sees only the words of a rationale. A high
temperature at first lets it see many words, and a falling temperature makes it decide.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import Rationale

n_words, n_labels, length, batch, steps = 40, 3, 14, 48, 120

# %%
# A text has two neighbouring words that determine its label, among words that do not.


def texts(generator):
    """Return texts, labels, and the places of the words that determine them."""
    text = torch.randint(2 * n_labels, n_words, (batch, length), generator=generator)
    labels = torch.randint(n_labels, (batch,), generator=generator)
    places = torch.randint(length - 1, (batch, 1), generator=generator) + torch.arange(2)
    words = 2 * labels[:, None] + torch.randint(2, (batch, 2), generator=generator)
    return text.scatter(1, places, words), labels, places


# %%
# ``temperature`` is an attribute, which a schedule sets before every step.

SCHEDULES = {
    "1": lambda done: 1.0,
    "0.1": lambda done: 0.1,
    "3 to 0.1": lambda done: 3.0 * (0.1 / 3.0) ** done,
}


def train(schedule, seed=0):
    """Return the words with weight, the accuracies, and the last batch."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    score, classify = nn.Embedding(n_words, 1), nn.Embedding(n_words, n_labels)
    nn.init.zeros_(classify.weight)
    rationale = Rationale(budget=2)
    modules = nn.ModuleList([score, classify, rationale])
    optimizer = torch.optim.Adam(modules.parameters(), lr=0.05)
    kept, right = [], []
    for step in range(steps):
        rationale.temperature = schedule(step / (steps - 1))
        text, labels, places = texts(generator)
        chosen = rationale(score(text)[..., 0])
        logits = (chosen[..., None] * classify(text)).sum(1)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append((chosen > 0).sum(1).float().mean().item())
        right.append((chosen.gather(1, places).sum(1) / 2).mean().item())
    return kept, right, chosen.detach(), places


trained = {name: train(schedule) for name, schedule in SCHEDULES.items()}

# %%
# What is seen
# ------------
#
# At temperature 1 more than two words keep weight, and a part of it is elsewhere. At 0.1 the choice
# is made before the words are known, and words without weight have no gradient. The schedule first
# gives all words a gradient, and ends with the two words of the phrase. So it is with other seeds.

figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
for (name, (kept, right, _, _)), color in zip(
    trained.items(), ["#999999", "#d55e00", "#0072b2"], strict=True
):
    axes[0].plot(right, color=color, label=f"temperature {name}")
    axes[1].plot(kept, color=color)
    print(f"temperature {name}: {kept[-1]:.1f} words with weight, {right[-1]:.0%} of the phrase")
axes[0].set(xlabel="step", title="weight on the phrase", ylim=(0, 1.02))
axes[0].legend(frameon=False, fontsize=8, loc="lower right")
axes[1].set(xlabel="step", title="words with weight", ylim=(0, length))
_, _, chosen, places = trained["3 to 0.1"]
axes[2].imshow(chosen[:8].numpy(), cmap="Blues", vmin=0, vmax=1)
axes[2].set(title="eight texts", xlabel="word", ylabel="text")
for k, (first, _) in enumerate(places[:8].tolist()):
    box = plt.Rectangle((first - 0.5, k - 0.5), 2, 1, fill=False, color="#d55e00", linewidth=1.5)
    axes[2].add_patch(box)
