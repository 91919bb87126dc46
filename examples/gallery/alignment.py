"""
A sparse alignment
==================

Eight words are aligned with eleven. With attention row by row, many choose the same word. In a
factor graph, every row chooses one column, and no column is chosen twice.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import AtMostOne, FactorGraph, Xor

rng = np.random.default_rng(7)
m, n = 8, 11
place = np.abs(np.arange(n) - np.linspace(1, n - 2, m)[:, None])
scores = 1.4 * rng.standard_normal((m, n)) - 0.35 * place
scores[:, 4] += 1.5  # a column with high scores in every row

# %%
# ``Xor`` over the table declares a factor for every row, and ``AtMostOne`` over axis 0 one for
# every column.

graph = FactorGraph()
u = graph.variable_from(scores)
graph.add(Xor(u))
graph.add(AtMostOne(u, axis=0))
solution = graph.solve()
solution

# %%
# Most marginals are exactly zero, and the total weight of the popular column is one.

softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
panels = {"softmax of every row": softmax, "factor graph": u.value}
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    ax.imshow(values, cmap="Blues", vmin=0, vmax=1)
    ax.set(title=title, xlabel=f"largest column sum: {values.sum(axis=0).max():.2f}")
    ax.set(xticks=[], yticks=[])
    for (i, j), value in np.ndenumerate(values):
        if value > 0.005:
            shade = "white" if value > 0.6 else "black"
            ax.text(j, i, f"{value:.2f}"[1:] if value < 0.995 else "1", ha="center", va="center",
                    fontsize=7, color=shade)  # fmt: skip
