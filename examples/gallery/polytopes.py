"""
Between the best structure and the marginals
============================================

Figure 1 of the SparseMAP paper (Niculae et al. 2018). **Near**: as printed for a choice among
three; its other polytope, of trees, is here that of tagging three words with two tags. The choices
are the corners of a simplex, the taggings those of the *marginal polytope*, here a cube.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import FactorGraph, Sequence, Xor

# %%
# All three answers maximise the score, less a regulariser. Without one the answer is a corner; the
# entropy leads into the interior, where every corner has weight; half of the squared norm leads to
# a face, where few have. At a small temperature T, which divides the scores, all end at the corner.


def choices(scores):
    """Return softmax and sparsemax of scores."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.solve()
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum(), u.value


scores = np.array([0.8, 0.5, -0.4])
softmax, sparsemax = choices(scores)
print("argmax   ", np.eye(3)[scores.argmax()])
print("softmax  ", softmax.round(2))
print("sparsemax", sparsemax.round(2))

# %%
# Taggings have scores of tags, and of equal neighbours. Coordinates are the probabilities of the
# second tag of each word.

tag_scores = np.array([1.3, -0.5, 0.5])
transitions = 0.2 * np.eye(2)


def taggings(temperature):
    """Return the best tagging, the marginals and those of SparseMAP, and SparseMAP's taggings."""
    graph = FactorGraph()
    scores = np.stack([np.zeros(3), tag_scores], axis=1)
    u = graph.variable_from(scores / temperature)
    factor = graph.add(Sequence(u, transitions / temperature))
    marginals = graph.gibbs(factor).marginals.reshape(3, 2)[:, 1]
    graph.solve_map()
    best = u.value[:, 1].copy()
    graph.solve()
    return best, marginals, u.value[:, 1].copy(), graph.structures(factor)[0]


best, marginals, sparse, structures = taggings(1.0)
print("MAP      ", best)
print("marginals", marginals.round(2))
print("SparseMAP", sparse.round(2), "with", len(structures.probabilities), "of 8 taggings")

# %%
# The lines are the answers at temperatures from 30, in the middle, to 0.08, at the corner.

CORNERS = np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, np.sqrt(0.75)]])
COLOURS = ("C1", "C0")  # of the entropy, and of the norm
temperatures = np.geomspace(30.0, 0.08, 80)

figure = plt.figure(figsize=(9, 4.2), layout="constrained")
flat = figure.add_subplot(1, 2, 1)
flat.fill(*CORNERS.T, facecolor="0.95", edgecolor="0.4")
paths = np.array([choices(scores / t) for t in temperatures])
for k, colour in enumerate(COLOURS):
    flat.plot(*(paths[:, k] @ CORNERS).T, color=colour, lw=1)
points = {"argmax": np.eye(3)[scores.argmax()], "softmax": softmax, "sparsemax": sparsemax}
offsets = [(-10, -26), (10, 2), (-10, -26)]
for (name, point), colour, at in zip(points.items(), ["k", "C1", "C0"], offsets, strict=True):
    flat.plot(*(point @ CORNERS), "o", color=colour)
    label = f"{name}\n({', '.join(f'{x:.2g}' for x in point.round(2))})"
    flat.annotate(label, point @ CORNERS, xytext=at, textcoords="offset points", color=colour)
flat.set(title="a choice among three", aspect="equal", xlim=(-0.75, 0.95), ylim=(-0.2, 0.95))
flat.axis("off")

solid = figure.add_subplot(1, 2, 2, projection="3d")
corners = np.array(list(np.ndindex(2, 2, 2)))
for i, a in enumerate(corners):
    for b in corners[i + 1 :]:
        if abs(a - b).sum() == 1:
            solid.plot(*np.stack([a, b]).T, color="0.6", lw=0.8)
found = [taggings(t)[1:3] for t in temperatures]
for path, colour in zip(np.swapaxes(found, 0, 1), COLOURS, strict=True):
    solid.plot(*path.T, color=colour, lw=1)
points = {"MAP": best, "marginals": marginals, "SparseMAP": sparse}
for (name, point), colour in zip(points.items(), ["k", "C1", "C0"], strict=True):
    solid.plot(*point[:, None], "o", color=colour)
    label = f"  {name}  \n  ({', '.join(f'{x:.2g}' for x in point.round(2))})  "
    across, along = ("left", "center") if name == "SparseMAP" else ("right", "bottom")
    solid.text(*point, label, color=colour, ha=across, va=along)
solid.set(title="taggings of three words", xlabel="word 1", ylabel="word 2")
solid.set(xticks=[0, 1], yticks=[0, 1], zticks=[0, 1], box_aspect=(1, 1, 1))
for axis in (solid.xaxis, solid.yaxis, solid.zaxis):
    axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
    axis.line.set_color((1.0, 1.0, 1.0, 0.0))
solid.grid(visible=False)
solid.text(0.0, 0.0, 1.1, "word 3", ha="right")
solid.view_init(elev=20, azim=-55)
