"""
How a box of parameters is bounded
==================================

Figure 3 of Gormley & Eisner (2013), and the relaxation of ``lpsmap-search`` beside it. **Near**:
part (b) of the figure is a surface, of which this page has a curve, at one count. Viterbi
training maximises products of log-probabilities and counts. A search bounds boxes of probabilities
by problems that are easy to solve; see :doc:`/explanation/global-search`.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap_search import Corpus, DependencyModelWithValence, global_search

# %%
# The paper's program has two parts that are not linear. Log-probabilities of a distribution satisfy
# ``exp(theta_1) + exp(theta_2) <= 1``; tangents contain this set. The products ``theta f`` lie
# below two planes (McCormick 1976). Both become tight as a box shrinks.

figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
points = np.log([[0.2, 0.8], [0.5, 0.5], [0.8, 0.2]])
theta = np.linspace(-2.0, -1e-3, 300)
ax.fill_between(theta, -2.0, np.log1p(-np.exp(theta)), color="C0", alpha=0.35, lw=0)
grid = np.stack(np.meshgrid(theta, theta), axis=-1)
inside = np.all(
    [(np.exp(t) * (1.0 + grid - t)).sum(axis=-1) <= 1.0 for t in points], axis=0
)  # what three tangents allow
ax.contourf(theta, theta, inside, levels=[0.5, 1.5], colors=["C1"], alpha=0.25)
ax.plot(*points.T, "k.")
ax.set(title="sum to one, and three tangents", xlabel="theta 1", ylabel="theta 2")
ax.set(xlim=(-2.0, 0.0), ylim=(-2.0, 0.0), aspect="equal")

# %%
# On the left, a product at a fixed count of 5 between 0 and 10, and the lower of its two planes.
# On the right, the function ``p log p``, whose chord is a relaxation of the library: without
# tangents, and without a bound on the logarithm of zero.

low, high, most, f = -3.0, -0.1, 10.0, 5.0
theta = np.linspace(low, high, 200)
planes = [most * theta + low * f - low * most, high * f + 0.0 * theta]
figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
axes[0].plot(theta, theta * f, label="theta f")
axes[0].plot(theta, np.minimum(*planes), "C1", label="its envelope")
axes[0].set(title="a product, f = 5 of at most 10", xlabel="theta")
axes[0].legend(frameon=False)
p = np.linspace(0.05, 0.6, 200)
value = p * np.log(p)
axes[1].plot(p, value, label="p log p")
axes[1].plot(p[[0, -1]], value[[0, -1]], "C1", label="its chord")
axes[1].set(title="the chord of a box", xlabel="p")
axes[1].legend(frameon=False)

# %%
# Boxes until the result is proved to be within 1 % of the optimum, by relaxation:

corpus = Corpus(DependencyModelWithValence("VNA"), ["VA", "NV", "ANV"])
for relaxation in ("lagrangian", "chord", "mccormick"):
    found = global_search(corpus, relaxation=relaxation, gap=0.01, max_time=20.0)
    print(f"{relaxation:10}  {found.n_nodes:6} boxes, proved: {found.proved}")
