"""Dynamic programs as hypergraphs, and sums over all structures of factors."""

from lpsmap_dynamic.accepted_arguments import (
    check_accepted,
    check_solve_options,
    refuse_arguments,
)
from lpsmap_dynamic.budget_projection import clip_row, project_budget_rows
from lpsmap_dynamic.builder import HypergraphBuilder
from lpsmap_dynamic.comparison import (
    Point,
    all_variables,
    compare_maxima,
    infeasible_variables,
    objective_difference,
)
from lpsmap_dynamic.complete_assignment import best_additionals, complete_assignment
from lpsmap_dynamic.count_constraints import Counts, count_bounds, counts_of, write_point
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.derivations import HypergraphInference
from lpsmap_dynamic.dynamic_program import DynamicProgram
from lpsmap_dynamic.edges import POLL_PERIOD
from lpsmap_dynamic.elimination_order import EliminationOrder, cheapest_order, minimum_fill
from lpsmap_dynamic.equal_rows import distinct_rows
from lpsmap_dynamic.exact_sums import add_exactly, sum_exactly, two_sum
from lpsmap_dynamic.gibbs import Gibbs
from lpsmap_dynamic.graph_gibbs import GraphGibbs
from lpsmap_dynamic.graph_samples import GraphSamples
from lpsmap_dynamic.group_constraints import one_of_each_group
from lpsmap_dynamic.hypergraph_factor import HypergraphFactor
from lpsmap_dynamic.inference import Beliefs, Found, Inference, LogPartition
from lpsmap_dynamic.machine_memory import check_fits_memory
from lpsmap_dynamic.row import Row
from lpsmap_dynamic.scores import as_scores
from lpsmap_dynamic.square import check_square
from lpsmap_dynamic.subsets import min_subset_paths, subset_hypergraph
from lpsmap_dynamic.tables import Tables
from lpsmap_dynamic.targets import Items, Labels, check_root, in_factors, labels_of, read_labels

__version__ = "0.1.0"

__all__ = [
    "POLL_PERIOD",
    "Beliefs",
    "Counts",
    "DynamicProgram",
    "EliminationOrder",
    "Found",
    "Gibbs",
    "GraphGibbs",
    "GraphSamples",
    "Hypergraph",
    "HypergraphBuilder",
    "HypergraphFactor",
    "HypergraphInference",
    "Inference",
    "Items",
    "Labels",
    "LogPartition",
    "Point",
    "Row",
    "Tables",
    "add_exactly",
    "all_variables",
    "as_scores",
    "best_additionals",
    "cheapest_order",
    "check_accepted",
    "check_fits_memory",
    "check_root",
    "check_solve_options",
    "check_square",
    "clip_row",
    "compare_maxima",
    "complete_assignment",
    "count_bounds",
    "counts_of",
    "distinct_rows",
    "in_factors",
    "infeasible_variables",
    "labels_of",
    "min_subset_paths",
    "minimum_fill",
    "objective_difference",
    "one_of_each_group",
    "project_budget_rows",
    "read_labels",
    "refuse_arguments",
    "subset_hypergraph",
    "sum_exactly",
    "two_sum",
    "write_point",
]
