"""
Warm starts in training
=======================

A training loop revisits every batch in each epoch, with slightly changed scores. A solve can start
from the last solution of its batch: here, of trees in which no word has more than two modifiers.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import DepTree, FactorGraph, ModifierBudget

rng = np.random.default_rng(0)
n_examples, n_epochs, n = 24, 8, 12
first = rng.standard_normal((n_examples, n, n))
drift = rng.standard_normal((n_epochs, n_examples, n, n))


def train(warm: bool):
    """Return the mean number of iterations of every epoch; the changes of the scores decrease."""
    scores, counts, latest = first.copy(), [], {}
    for epoch in range(n_epochs):
        scores += 0.2 * 0.5**epoch * drift[epoch]
        iterations = []
        for b, batch in enumerate(np.arange(n_examples).reshape(-1, 8)):
            graph = FactorGraph()
            u = graph.variable_from(scores[batch])
            graph.add(DepTree(u))
            graph.add(ModifierBudget(u, 2))
            latest[b] = graph.solve(warm_start=latest.get(b) if warm else None)
            iterations.append(latest[b].iterations)
        counts.append(np.mean(iterations))
    return counts


# %%
# Values and gradients are the same, with fewer iterations.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(train(warm=False), marker="o", color="#999999", label="cold")
ax.plot(train(warm=True), marker="o", color="#0072b2", label="warm")
ax.set(xlabel="epoch", ylabel="iterations, mean", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
