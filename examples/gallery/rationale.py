"""
A rationale: a few neighbouring words
=====================================

Which words of a review show that it is negative? At most five words are selected, and neighbours
are preferred: a ``Budget`` over the sentence, and a ``Pair`` for every two neighbours. In a
network, the marginals would mask the input of a classifier, and the gradient of its loss would flow
through them to the scores.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import Budget, FactorGraph, Pair

review = "the plot is thin but the acting really is a complete and utter waste of talent"
words = review.split()
scores = np.full(len(words), -0.5)
scores[[3, 10, 12, 13, 15]] = 0.55, 0.4, 0.7, 0.9, 0.2


def choose(together: float):
    """Return the marginals of the words, given a score for selecting two neighbours."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Budget(u, 5))
    graph.add(Pair(u[:-1], u[1:], together))
    graph.solve()
    return u.value


# %%
# The higher the score of neighbours, the more contiguous the selection. Words that are not selected
# have a marginal of exactly zero.

figure, axes = plt.subplots(3, 1, figsize=(8, 4.2), sharex=True, layout="constrained")
for ax, together in zip(axes, [0.0, 0.2, 0.4], strict=True):
    marginals = choose(together)
    ax.bar(range(len(words)), marginals, color="#0072b2")
    ax.set(ylim=(0, 1.05), yticks=[0, 1], ylabel=f"pairs {together}")
    ax.spines[["top", "right"]].set_visible(False)
axes[-1].set_xticks(range(len(words)), words, rotation=60, ha="right")
