"""
A tagging with transitions
==========================

A sequence of tags with transition scores. The solution consists of marginals of tags and
transitions, and of a few complete taggings.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import FactorGraph, Sequence, plot

words = ["time", "flies", "like", "an", "arrow"]
tags = ["noun", "verb", "prep", "det"]

scores = np.array(
    [
        [1.2, 0.7, 0.0, 0.0],  # time
        [0.8, 0.9, 0.0, 0.0],  # flies
        [0.0, 0.8, 1.0, 0.0],  # like
        [0.0, 0.0, 0.2, 2.0],  # an
        [2.0, 0.1, 0.0, 0.0],  # arrow
    ]
)
transitions = np.zeros((4, 4))  # from row to column
transitions[0, [0, 1]] = -0.2, 0.5
transitions[1, 2] = 0.4
transitions[3, 0] = 0.5

# %%
# The additionals of ``Sequence`` are its transitions.

graph = FactorGraph()
u = graph.variable_from(scores)
tagging = graph.add(Sequence(u, transitions))
graph.solve()
taggings = graph.structures(tagging)
taggings

# %%
# The size of nodes and steps is their probability.

plot.lattice(taggings[0], tags, words)
plt.gcf().set_size_inches(7, 3)
