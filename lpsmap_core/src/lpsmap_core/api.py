"""What packs and adapters may use of core beside what `lpsmap_core` exports.

`lpsmap_core` has what a hook takes and returns: the base classes of factor types, local solvers,
engines, solvers, decoders, file formats and array libraries. Larger plugins use what is here. A
plugin imports `lpsmap_core`, this module, and in its tests `lpsmap_core.testing`, as all
distributions of this project do. Other modules of core may change at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpsmap_core.engine.choice import AUTO, run_with
from lpsmap_core.engine.direct import DirectSolution, solve_directly
from lpsmap_core.engine.options import checked_options
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.file_format import Evidence
from lpsmap_core.kernels.entries import reader_of
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.layout.counts import Counts, write_point
from lpsmap_core.layout.layout import Bucket, Layout, Part, build_layout, part_of_buckets
from lpsmap_core.layout.ragged import distinct_rows, offsets_of, ranges
from lpsmap_core.local.active.limits import UNTIL_SOLVED
from lpsmap_core.local.active.record_access import LocalProblem, problem_of, set_of, status_of
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.local_solver import (
    OPTIMAL,
    RUNNING,
    SolverDescription,
)
from lpsmap_core.local.oracles import best_feasible
from lpsmap_core.local.vertices import Vertices, join_vertices, structure_scores
from lpsmap_core.model.earlier import replaced_options
from lpsmap_core.model.inputs import (
    broadcast,
    check_readable,
    checked_count,
    checked_flag,
    checked_number,
    checked_shape,
    kind_of,
    real_numbers,
    truth_values,
    whole_numbers,
)
from lpsmap_core.model.labels import label_of, set_label
from lpsmap_core.model.lengths import check_unambiguous_lengths, checked_lengths
from lpsmap_core.model.memory_limit import (
    MAX_MEMORY,
    VIEW_BYTES,
    MemoryLimitError,
    check_fits_memory,
    memory_limit,
    reserve_memory,
)
from lpsmap_core.model.named_arguments import check_accepted, refuse_arguments
from lpsmap_core.model.slots import (
    declared_variables,
    flipped_slots,
    in_factors,
    name_of_factor,
    parameters_of,
    row_values,
    row_view,
    slot_values,
    slots_of,
)
from lpsmap_core.model.sums import PartlyConstrained, one_of_each_group
from lpsmap_core.model.unused import zero_unused_scores
from lpsmap_core.plugins.error_origin import error_with_origin, raised_by_core
from lpsmap_core.plugins.packs import missing_name_advice, missing_pack_advice, moved_names
from lpsmap_core.plugins.registry import (
    DuplicateNameError,
    Registry,
)
from lpsmap_core.projections.face_codes import exact_at_bounds, face_codes
from lpsmap_core.projections.face_jacobian import (
    free_jvp,
    sum_constrained_jvp,
)
from lpsmap_core.projections.sum_constrained import clip_row, project_budget_rows
from lpsmap_core.projections.tolerance import BOUND_LEVEL, bound_slack, bound_slack_array
from lpsmap_core.solution.comparison import (
    Point,
    all_variables,
    compare_maxima,
    infeasible_variables,
    objective_difference,
)
from lpsmap_core.solution.complete_assignment import best_additionals, complete_assignment
from lpsmap_core.solution.contradictions import (
    Contradictions,
    explain_contradictions,
    reduced_contradictions,
)
from lpsmap_core.solution.decoder import (
    DEFAULT_GAP,
    MapProblem,
    Relaxation,
    ScoredGraph,
    SearchOptions,
    check_search_options,
)
from lpsmap_core.solution.dominant_scores import reduce_dominant_scores
from lpsmap_core.solution.report import report_unsolved, warn_unsolved
from lpsmap_core.solution.solve import check_options, solve_laid_out, solve_linear_from
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_core.solution.targets import Items, Labels, check_root, labels_of, read_labels
from lpsmap_jit.announcements import is_quiet
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, FloatTable, IndexArray, IntArray
from lpsmap_jit.by_address import by_address
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.compile import interpreted_by, summing_leaf
from lpsmap_jit.ctrl_c import raised_by_ctrl_c
from lpsmap_jit.interrupts import (
    Watch,
    deadline_passed,
    interruptible,
    out_of_time,
    raise_interrupt,
    stopped,
)
from lpsmap_jit.native import floats as floats_at_address

if not TYPE_CHECKING:  # a type checker would take every name for one of this module
    __getattr__ = moved_names(__name__)

# Arrays: the types that annotations of kernels and factors name.
__all__ = ["BoolArray", "ByteArray", "FloatArray", "FloatTable", "IndexArray", "IntArray"]

# Input: read an argument that a user gave, or refuse it by an error that names it.
__all__ += [
    "broadcast",
    "check_accepted",
    "check_readable",
    "checked_count",
    "checked_flag",
    "checked_lengths",
    "checked_number",
    "checked_shape",
    "zero_unused_scores",
    "kind_of",
    "real_numbers",
    "refuse_arguments",
    "check_unambiguous_lengths",
    "check_fits_memory",
    "MAX_MEMORY",
    "VIEW_BYTES",
    "MemoryLimitError",
    "memory_limit",
    "reserve_memory",
    "truth_values",
    "whole_numbers",
]

# Declarations: their factors one by one, and what their types registered.
__all__ += [
    "flipped_slots",
    "declared_variables",
    "in_factors",
    "label_of",
    "name_of_factor",
    "parameters_of",
    "row_values",
    "row_view",
    "set_label",
    "slot_values",
    "slots_of",
]

# Kernels: what else there is than `kernel`, `leaf` and `interrupted`.
__all__ += [
    "by_address",
    "floats_at_address",
    "interpreted_by",
    "is_quiet",
    "stopped",
    "summing_leaf",
]

# Ctrl-C and limits of time, in Python code that calls kernels.
__all__ += ["Watch", "deadline_passed", "interruptible", "out_of_time", "raise_interrupt"]
__all__ += ["raised_by_ctrl_c"]

# Closed forms: solutions and derivatives by face codes.
__all__ += [
    "exact_at_bounds",
    "face_codes",
    "free_jvp",
    "sum_constrained_jvp",
]

# Closed forms: projections of rows under one bound on a weighted sum, and their tolerances.
__all__ += [
    "BOUND_LEVEL",
    "bound_slack",
    "bound_slack_array",
    "clip_row",
    "project_budget_rows",
]

# Local solvers: how a factor type solves its local problems itself.
__all__ += [
    "UNTIL_SOLVED",
    "OPTIMAL",
    "RUNNING",
    "SolverDescription",
    "reader_of",
]

# The active set: what a local solver that begins with it, or falls back on it, is made of.
__all__ += [
    "ActiveSets",
    "LocalProblem",
    "join_vertices",
    "problem_of",
    "set_of",
    "status_of",
]

# Linear constraints: what a factor type tells solvers of whole graphs.
__all__ += ["PartlyConstrained", "one_of_each_group"]

# Graphs as flat arrays: what engines solve, and what adapters ask about a whole assignment.
__all__ += [
    "Bucket",
    "Counts",
    "Layout",
    "Links",
    "Part",
    "best_additionals",
    "complete_assignment",
    "best_feasible",
    "reduce_dominant_scores",
    "build_layout",
    "distinct_rows",
    "offsets_of",
    "part_of_buckets",
    "ranges",
    "structure_scores",
    "write_point",
]

# Engines: what `Engine` and `SolvedGraph` are handed and return.
__all__ += ["Vertices", "WarmStart", "check_options", "checked_options", "first_step_sizes"]

# Decoders: they find best assignments, and graphs given evidence.
__all__ += [
    "AUTO",
    "run_with",
    "Contradictions",
    "DEFAULT_GAP",
    "MapProblem",
    "Relaxation",
    "ScoredGraph",
    "SearchOptions",
    "check_search_options",
    "explain_contradictions",
    "reduced_contradictions",
]

# Solutions: the solution of a laid-out graph, and the warnings about unsolved components.
__all__ += ["DirectSolution", "solve_directly", "solve_laid_out", "solve_linear_from"]
__all__ += ["report_unsolved", "warn_unsolved"]

# Messages: what a user is told, and about which line.
__all__ += ["error_with_origin", "raised_by_core", "replaced_options", "stacklevel", "text_table"]

# File formats: what readers and writers return.
__all__ += ["Evidence"]

# Losses: how targets are read, and the difference between a maximum and the maximum given labels.
__all__ += ["Items", "Labels", "Point", "all_variables", "check_root", "compare_maxima"]
__all__ += ["infeasible_variables", "labels_of", "objective_difference", "read_labels"]

# The registry: what installed plugins offer.
__all__ += [
    "DuplicateNameError",
    "Registry",
    "missing_name_advice",
    "missing_pack_advice",
]
