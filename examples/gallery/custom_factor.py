"""
A factor of your own
====================

Two methods make a factor type: the best structure for given scores, and its variables. Here the
structures are *bumps*, runs of neighbouring variables of length three. Batches, negation,
gradients and distributions follow from the two methods.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import FactorGraph
from lpsmap_core import Factor


class Bump(Factor):
    """Exactly three neighbouring variables are on."""

    def solve_map(self, eta_u, eta_v):
        """Return the start of the best bump."""
        return int(np.argmax(np.convolve(eta_u, np.ones(3), mode="valid")))

    def vertex(self, y):
        """Return ones on a bump, and no additionals."""
        place = np.arange(*self.event_shape)
        return (y <= place) & (place < y + 3), np.empty(0)


# %%
# A batch of two signals is one declaration.

rng = np.random.default_rng(3)
clean = np.zeros((2, 24))
clean[0, 5:8] = clean[1, 12:15] = 1.0
signal = clean + 0.3 * rng.standard_normal(clean.shape)

graph = FactorGraph()
u = graph.variable_from(signal)
bumps = graph.add(Bump(u))
graph.solve()
graph.structures(bumps)

# %%
# The marginals are a sparse mixture of bumps, zero elsewhere.

figure, axes = plt.subplots(2, 1, figsize=(7, 3.6), sharex=True, layout="constrained")
for ax, scores, marginals in zip(axes, signal, u.value, strict=True):
    ax.plot(scores, color="#999999", marker=".", label="scores")
    ax.bar(range(24), marginals, color="#0072b2", alpha=0.8, label="marginals")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False, loc="upper right")
