"""What packs and adapters may use of core beside what `lpsmap_core` exports.

`lpsmap_core` has what a hook takes and returns: the base classes of factor types, local solvers,
engines, solvers, decoders, file formats and array libraries. Larger plugins use what is here. A
plugin imports `lpsmap_core`, this module, and in its tests `lpsmap_core.testing`, as all
distributions of this project do. Other modules of core may change at any time.
"""

from __future__ import annotations

from lpsmap_core import (  # noqa: F401  (where version 2 of the plugin API has them)
    Answer,
    Backend,
    CompiledEngine,
    Decoder,
    FileFormat,
    FileFormatError,
    LinearConstraints,
    LocalSolver,
    MapSolver,
    NamedGraph,
    Options,
    Program,
    SolverLimits,
    bounded_sums,
    boxed_solution,
    installed,
    registered,
)
from lpsmap_core.engine.backends import NumpyBackend
from lpsmap_core.engine.choice import AUTO, run_with
from lpsmap_core.engine.direct import DirectSolution, solve_directly
from lpsmap_core.engine.options import checked_options
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.kernels.entries import reader_of
from lpsmap_core.layout.layout import Bucket, Layout, Part, build_layout, part_of_buckets
from lpsmap_core.layout.ragged import offsets_of, ranges
from lpsmap_core.local.active.limits import UNTIL_SOLVED, iteration_limit
from lpsmap_core.local.active.record_access import LocalProblem, problem_of, set_of, status_of
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.active.steps import multiply_active_sets, solve_active_sets
from lpsmap_core.local.oracles import best_feasible
from lpsmap_core.local.protocol import (
    OPTIMAL,
    RUNNING,
    SolverDescription,
    call_oracle,
    multiply_by,
    solve_by,
)
from lpsmap_core.local.vertices import Vertices, join_vertices
from lpsmap_core.model.earlier import replaced_options
from lpsmap_core.model.inputs import (
    broadcast,
    check_fits_memory,
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
from lpsmap_core.model.marginal_targets import check_marginals, target_additionals
from lpsmap_core.model.memory_limit import (
    MAX_MEMORY,
    VIEW_BYTES,
    memory_limit,
    reserve_memory,
)
from lpsmap_core.model.parameters import Parameters
from lpsmap_core.model.registration import parameters_of
from lpsmap_core.model.row_labels import (
    HEADS,
    check_root,
    root_variables,
    row_labels,
    warn_of_padding,
)
from lpsmap_core.model.slots import (
    declared_variables,
    flipped_slots,
    name_of_factor,
    placed_values,
    row_values,
    row_view,
    slot_values,
    slots_of,
)
from lpsmap_core.model.sums import PartlyConstrained, one_of_each_group
from lpsmap_core.model.unused import zero_unused_scores
from lpsmap_core.plugins.compressed_text import file_bytes, write_text
from lpsmap_core.plugins.error_origin import error_with_origin, raised_by_core
from lpsmap_core.plugins.factor_types import factor_named
from lpsmap_core.plugins.files import read_evidence, read_graph, write_graph
from lpsmap_core.plugins.formats import Evidence
from lpsmap_core.plugins.packs import missing_name_advice, missing_pack_advice
from lpsmap_core.plugins.registry import (
    Contributions,
    DuplicateNameError,
    Plugin,
    PluginWarning,
    Registration,
    Registry,
    engine_named,
    solver_named,
)
from lpsmap_core.projections.face_jacobian import (
    face_jvp,
    face_jvp_kernel,
    free_jvp,
    sum_constrained_jvp,
)
from lpsmap_core.projections.faces import exact_at_bounds, face_codes
from lpsmap_core.projections.sum_constrained import clip_row, project_budget_rows
from lpsmap_core.projections.tolerance import BOUND_LEVEL, bound_slack, bound_slack_array
from lpsmap_core.solution.assignment import OWN_SEARCH, is_proved
from lpsmap_core.solution.assignment_score import (
    CompletedAssignment,
    best_additionals,
    complete_assignment,
    score_assignment,
)
from lpsmap_core.solution.decoder import (
    DEFAULT_GAP,
    Relaxation,
    ScoredGraph,
    SearchLimits,
    check_search_options,
)
from lpsmap_core.solution.dominant_scores import reduce_dominant_scores
from lpsmap_core.solution.report import report_unsolved, warn_of_negative, warn_unsolved
from lpsmap_core.solution.solve import solve_laid_out, solve_linear_from
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_jit.announcements import is_quiet
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IndexArray, IntArray
from lpsmap_jit.by_address import by_address
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.compile import COMPILED, general_position, interpreted_by, summing_leaf
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
from lpsmap_jit.threads import in_shares

# Arrays: the types that annotations of kernels and factors name.
__all__ = ["BoolArray", "ByteArray", "FloatArray", "IndexArray", "IntArray"]

# Input: read an argument that a user gave, or refuse it by an error that names it.
__all__ += [
    "broadcast",
    "check_readable",
    "checked_count",
    "checked_flag",
    "checked_lengths",
    "checked_number",
    "checked_shape",
    "zero_unused_scores",
    "kind_of",
    "real_numbers",
    "check_unambiguous_lengths",
    "check_fits_memory",
    "MAX_MEMORY",
    "VIEW_BYTES",
    "memory_limit",
    "reserve_memory",
    "truth_values",
    "whole_numbers",
]

# Declarations: their factors one by one, and what their types registered.
__all__ += [
    "Parameters",
    "flipped_slots",
    "declared_variables",
    "label_of",
    "name_of_factor",
    "parameters_of",
    "placed_values",
    "row_values",
    "row_view",
    "set_label",
    "slot_values",
    "slots_of",
]

# Kernels: what else there is than `kernel`, `leaf` and `interrupted`.
__all__ += [
    "COMPILED",
    "by_address",
    "floats_at_address",
    "general_position",
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
    "face_jvp",
    "face_jvp_kernel",
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
    "call_oracle",
    "multiply_by",
    "reader_of",
    "solve_by",
]

# The active set: what a local solver that begins with it, or falls back on it, is made of.
__all__ += [
    "ActiveSets",
    "LocalProblem",
    "iteration_limit",
    "join_vertices",
    "multiply_active_sets",
    "problem_of",
    "set_of",
    "solve_active_sets",
    "status_of",
]

# Linear constraints: what a factor type tells solvers of whole graphs.
__all__ += ["PartlyConstrained", "one_of_each_group"]

# Graphs as flat arrays: what engines solve, and what adapters ask about a whole assignment.
__all__ += [
    "Bucket",
    "CompletedAssignment",
    "Layout",
    "Part",
    "best_additionals",
    "best_feasible",
    "reduce_dominant_scores",
    "build_layout",
    "complete_assignment",
    "offsets_of",
    "part_of_buckets",
    "ranges",
    "score_assignment",
]

# Engines: what `Engine` and `SolvedGraph` are handed and return.
__all__ += ["Vertices", "WarmStart", "checked_options", "first_step_sizes", "in_shares"]

# Decoders: they find best assignments, and graphs given evidence.
__all__ += [
    "AUTO",
    "run_with",
    "DEFAULT_GAP",
    "OWN_SEARCH",
    "Relaxation",
    "ScoredGraph",
    "SearchLimits",
    "check_search_options",
    "is_proved",
]

# Solutions: the solution of a laid-out graph, and the warnings about unsolved components.
__all__ += ["DirectSolution", "solve_directly", "solve_laid_out", "solve_linear_from"]
__all__ += ["report_unsolved", "warn_unsolved"]

# Messages: what a user is told, and about which line.
__all__ += ["error_with_origin", "raised_by_core", "replaced_options", "stacklevel", "text_table"]

# File formats: read and write graphs in files.
__all__ += [
    "Evidence",
    "factor_named",
    "file_bytes",
    "read_evidence",
    "read_graph",
    "write_graph",
    "write_text",
]

# Losses: how targets are read, and what is wrong with a result.
__all__ += ["HEADS", "check_root", "root_variables", "row_labels", "warn_of_padding"]
__all__ += ["check_marginals", "target_additionals", "warn_of_negative"]

# Array libraries: where closed forms in array-API code run.
__all__ += ["NumpyBackend"]

# The registry: what installed plugins offer.
__all__ += [
    "Contributions",
    "DuplicateNameError",
    "Plugin",
    "PluginWarning",
    "Registration",
    "Registry",
    "engine_named",
    "missing_name_advice",
    "missing_pack_advice",
    "solver_named",
]
