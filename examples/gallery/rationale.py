"""
A rationale: a few neighbouring words
=====================================

Which words of a review say that it is a bad one? At most five may be chosen, and neighbours are
welcome together: a ``Budget`` over the sentence, and a ``Pair`` for every two neighbours. In a
network the marginals would mask the words that a classifier reads, and the loss would reach the
scores through them.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import Budget, FactorGraph, Pair

review = "the plot is thin but the acting really is a complete and utter waste of talent"
words = review.split()
scores = np.full(len(words), -0.5)
scores[[3, 10, 12, 13, 15]] = 0.55, 0.4, 0.7, 0.9, 0.2


def choose(together: float):
    """Return the marginals of the words under a score for neighbours that are both chosen."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Budget(u, 5))
    graph.add(Pair(u[:-1], u[1:], together))
    graph.solve()
    return u.value


# %%
# The more neighbours are worth, the more the choice becomes a phrase. Words that are out are out
# exactly.

figure, axes = plt.subplots(3, 1, figsize=(8, 4.2), sharex=True, layout="constrained")
for ax, together in zip(axes, [0.0, 0.2, 0.4], strict=True):
    marginals = choose(together)
    ax.bar(range(len(words)), marginals, color="#0072b2")
    ax.set(ylim=(0, 1.05), yticks=[0, 1], ylabel=f"pairs {together}")
    ax.spines[["top", "right"]].set_visible(False)
axes[-1].set_xticks(range(len(words)), words, rotation=60, ha="right")
