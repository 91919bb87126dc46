"""
A tree with budgets
===================

A dependency tree over a sentence, and the same tree when no word may have more than two
dependents: one tree factor, and a ``ModifierBudget``.
"""

import numpy as np

from lpsmap import DepTree, FactorGraph, ModifierBudget, plot

words = ["She", "saw", "the", "man", "there", "yesterday"]
n = len(words)

# %%
# A score for every arc: row *m*, column *h* for word *h* as the head of word *m*. The diagonal is
# the root.

scores = np.full((n, n), -1.0)
scores[[0, 2, 3, 4, 5], [1, 3, 1, 1, 1]] = 2.0  # "saw" prefers four dependents
scores[1, 1] = 3.0
scores[4, 3], scores[5, 4], scores[5, 3] = 1.0, 0.8, 0.6


def parse(budget: int | None):
    """Return the distribution over trees under these scores."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    tree = graph.add(DepTree(u, packed=True, single_root=True))
    if budget is not None:
        graph.add(ModifierBudget(u, budget))
    graph.solve()
    return graph.structures(tree)[0]


# %%
# Without budgets, a single tree has all the probability.

ax = plot.arcs(parse(None), words)
ax.set_title("no budget")

# %%
# With at most two dependents per word, some must attach elsewhere, and several trees share the
# probability. The width of arcs is their marginal.

ax = plot.arcs(parse(2), words)
ax.set_title("at most two dependents a word")
