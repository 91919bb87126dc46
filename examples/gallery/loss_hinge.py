"""
Loss: labels that go together
=============================

A film has several genres, and some go together. Every genre and every pair of genres has a score.
Both are learned by :class:`~lpsmap_torch.losses.StructuredHingeLoss`: the correct set must score
better than every other set by the number of labels in which they differ.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from lpsmap import Pair, TorchFactorGraph
from lpsmap_torch.losses import StructuredHingeLoss

torch.manual_seed(0)
GENRES = ["crime", "thriller", "comedy", "romance", "horror"]
FIRST, SECOND = np.triu_indices(5, k=1)

# %%
# Crime films are thrillers, romances are comedies, nothing is horror and comedy. A film has a noisy
# feature for each genre.


def batch(size: int):
    """Return features of films, and their genres."""
    labels = torch.rand(size, 5) < torch.tensor([0.4, 0.1, 0.3, 0.4, 0.3])
    labels[:, 1] |= labels[:, 0]
    labels[:, 2] |= labels[:, 3]
    labels[:, 4] &= ~labels[:, 2]
    return labels + 0.8 * torch.randn(size, 5), labels


# %%
# A factor for every pair of genres of every film. The graph has cycles: the loss maximises over a
# relaxation.


def pairs(u, together):
    """Return the factors of a batch of films."""
    return Pair(u[:, FIRST], u[:, SECOND], together.expand(len(u), -1))


class Model(nn.Module):
    """Scores of genres from features, and of pairs of genres."""

    def __init__(self) -> None:
        super().__init__()
        self.slope, self.bias = (nn.Parameter(torch.zeros(5)) for _ in range(2))
        self.together = nn.Parameter(torch.zeros(len(FIRST)))

    def genre(self, shown):
        """Return the scores of genres."""
        return self.slope * shown + self.bias


def decode(scores, together):
    """Return the best sets of genres."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores.detach())
    graph.add(pairs(u, together.detach()))
    graph.solve_map(tol=1e-4)  # accurate enough to round
    return u.value > 0.5


def train(learn_pairs: bool):
    """Return a model and the test accuracies during training."""
    model, criterion = Model(), StructuredHingeLoss(pairs)
    model.together.requires_grad_(learn_pairs)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    curve = []
    for _ in range(100):
        shown, labels = batch(32)
        loss = criterion(model.genre(shown), labels, together=model.together)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = decode(model.genre(test_shown), model.together)
        curve.append((found == test_labels).all(-1).float().mean().item())
    return model, curve


test_shown, test_labels = batch(200)
_, alone = train(learn_pairs=False)
model, together = train(learn_pairs=True)

# %%
# Left: with pairs, more films have all genres right. Right: the learned scores of pairs.

table = np.full((5, 5), np.nan)
table[FIRST, SECOND] = table[SECOND, FIRST] = model.together.detach().numpy()
figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
axes[0].plot(alone, label="genres alone", color="grey")
axes[0].plot(together, label="with pairs")
axes[0].set(xlabel="update", title="Films with all genres right", ylim=(0, 1))
axes[0].legend(loc="lower right")
most = np.nanmax(np.abs(table))
image = axes[1].imshow(table, cmap="RdBu", vmin=-most, vmax=most)
axes[1].set_xticks(range(5), GENRES, rotation=30)
axes[1].set_yticks(range(5), GENRES)
axes[1].set_title("Scores of pairs")
figure.colorbar(image, ax=axes[1])
