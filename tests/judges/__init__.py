"""Independent judges: slow, simple and exact references for tests of the library.

No module here imports the library. Polytopes are lists of enumerated vertices, programs are solved
by other algorithms than the library's, and a judge that cannot verify its result raises an error.
"""

from judges.differences import central_difference, directional_derivative
from judges.faces import face_directions
from judges.graphs import (
    EnumeratedFactor,
    admm,
    is_feasible,
    linear_optimum,
    project_factor,
    solve_graph,
)
from judges.polytope import project_polytope
from judges.vertices import (
    Vertices,
    and_out,
    at_least_one,
    at_most_one,
    binary_vectors,
    budget,
    imply,
    knapsack,
    nand,
    negations,
    or_out,
    pair,
    potts,
    sequences,
    tree_heads,
    trees,
    xor,
    xor_out,
)

__all__ = [
    "EnumeratedFactor",
    "Vertices",
    "admm",
    "and_out",
    "at_least_one",
    "at_most_one",
    "binary_vectors",
    "budget",
    "central_difference",
    "directional_derivative",
    "face_directions",
    "imply",
    "is_feasible",
    "knapsack",
    "linear_optimum",
    "nand",
    "negations",
    "or_out",
    "pair",
    "potts",
    "project_factor",
    "project_polytope",
    "sequences",
    "solve_graph",
    "tree_heads",
    "trees",
    "xor",
    "xor_out",
]
