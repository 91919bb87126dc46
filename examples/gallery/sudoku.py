"""
A sudoku
========

A number for every cell, such that rows, columns and boxes have each number once: 324 factors
``Xor`` over 729 variables. Exact search finds the solution, and proves that no other is better.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import FactorGraph, Xor

GIVEN = """
5 3 . . 7 . . . .
6 . . 1 9 5 . . .
. 9 8 . . . . 6 .
8 . . . 6 . . . 3
4 . . 8 . 3 . . 1
7 . . . 2 . . . 6
. 6 . . . . 2 8 .
. . . 4 1 9 . . 5
. . . . 8 . . 7 9
"""
given = np.array(
    [[0 if c == "." else int(c) for c in line.split()] for line in GIVEN.split("\n")[1:-1]]
)

# %%
# Variable *(i, j, k)* says that row *i*, column *j* has the number *k + 1*. A given number forbids
# the others: their scores are ``-inf``.

scores = np.zeros((9, 9, 9))
scores[given > 0] = -np.inf
rows, columns = np.nonzero(given)
scores[rows, columns, given[rows, columns] - 1] = 0.0

graph = FactorGraph()
u = graph.variable_from(scores)
graph.add(Xor(u, axis=2))  # one number for each cell
graph.add(Xor(u, axis=1))  # each number once in a row
graph.add(Xor(u, axis=0))  # and in a column
for i in range(0, 9, 3):
    for j in range(0, 9, 3):
        graph.add(Xor(u[i : i + 3, j : j + 3].reshape(9, 9), axis=0))  # and in a box

# %%
# The relaxation alone may leave fractions. The search branches on them.

found = graph.solve_map(exact=True)
solution = u.value.argmax(2) + 1
print("proved" if found.ok else "not proved")
print(solution)

# %%
# Given numbers are black.

figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.set(xlim=(0, 9), ylim=(9, 0), xticks=[], yticks=[], aspect="equal")
for k in range(10):
    width = 1.8 if k % 3 == 0 else 0.5
    ax.axhline(k, color="#444444", linewidth=width)
    ax.axvline(k, color="#444444", linewidth=width)
for (i, j), number in np.ndenumerate(solution):
    colour = "#000000" if given[i, j] else "#0072b2"
    ax.text(j + 0.5, i + 0.52, str(number), color=colour, ha="center", va="center")
