"""
Warm starts in training
=======================

A training loop revisits every example in each epoch, with slightly changed scores. A
``WarmStartCache`` starts each example from its last solution: here, trees in which no word has more
than two modifiers.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import DepTree, FactorGraph, ModifierBudget, WarmStartCache

rng = np.random.default_rng(0)
n_examples, n_epochs, n = 24, 8, 12
first = rng.standard_normal((n_examples, n, n))
drift = rng.standard_normal((n_epochs, n_examples, n, n))


def train(cache: WarmStartCache | None):
    """Return the mean number of iterations of every epoch; the changes of the scores decrease."""
    scores, counts = first.copy(), []
    for epoch in range(n_epochs):
        scores += 0.2 * 0.5**epoch * drift[epoch]
        iterations = []
        for batch in np.arange(n_examples).reshape(-1, 8):
            graph = FactorGraph()
            u = graph.variable_from(scores[batch])
            graph.add(DepTree(u))
            graph.add(ModifierBudget(u, 2))
            start = cache.at(u, batch.tolist()) if cache is not None else None
            iterations.append(graph.solve(warm_start=start).iterations)
        counts.append(np.mean(iterations))
    return counts


# %%
# Values and gradients are the same, with fewer iterations.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(train(None), marker="o", color="#999999", label="cold")
ax.plot(train(WarmStartCache()), marker="o", color="#0072b2", label="with a cache")
ax.set(xlabel="epoch", ylabel="iterations, mean", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
