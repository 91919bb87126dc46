"""What packs and adapters may use of core beside what `lpsmap_core` exports.

`lpsmap_core` has what a hook takes and returns: the base classes of factor types, local solvers,
engines and array libraries. Larger plugins use what is here. Each name has a line with its home. A
plugin imports `lpsmap_core`, this module, and in its tests `lpsmap_core.testing`, as all
distributions of this project do. Other modules of core may change at any time.
"""

from lpsmap_core.engine.choice import AUTO as AUTO
from lpsmap_core.engine.choice import choose_engine as choose_engine
from lpsmap_core.engine.direct import DirectSolution as DirectSolution
from lpsmap_core.engine.direct import solve_directly as solve_directly
from lpsmap_core.engine.options import DEFAULTS as DEFAULTS
from lpsmap_core.engine.options import checked_options as checked_options
from lpsmap_core.engine.options import replaced_options as replaced_options
from lpsmap_core.engine.protocol import WarmStart as WarmStart
from lpsmap_core.engine.step_size import first_step_sizes as first_step_sizes
from lpsmap_core.face_codes import BOUND_LEVEL as BOUND_LEVEL
from lpsmap_core.face_codes import bound_slack as bound_slack
from lpsmap_core.face_codes import bound_slack_array as bound_slack_array
from lpsmap_core.face_codes import exact_at_bounds as exact_at_bounds
from lpsmap_core.face_codes import face_codes as face_codes
from lpsmap_core.face_codes import free_jvp as free_jvp
from lpsmap_core.face_codes import sum_constrained_jvp as sum_constrained_jvp
from lpsmap_core.layout.arrangement import Links as Links
from lpsmap_core.layout.arrangement import Spans as Spans
from lpsmap_core.layout.layout import Bucket as Bucket
from lpsmap_core.layout.layout import Layout as Layout
from lpsmap_core.layout.layout import Part as Part
from lpsmap_core.layout.layout import build_layout as build_layout
from lpsmap_core.layout.layout import part_of_buckets as part_of_buckets
from lpsmap_core.layout.ragged import offsets_of as offsets_of
from lpsmap_core.layout.ragged import ranges as ranges
from lpsmap_core.local.active.memory import LocalProblem as LocalProblem
from lpsmap_core.local.active.memory import SetsRecord as SetsRecord
from lpsmap_core.local.active.memory import problem_of as problem_of
from lpsmap_core.local.active.memory import set_of as set_of
from lpsmap_core.local.active.memory import status_of as status_of
from lpsmap_core.local.active.sets import ActiveSets as ActiveSets
from lpsmap_core.local.local_solver import OPTIMAL as OPTIMAL
from lpsmap_core.local.local_solver import RUNNING as RUNNING
from lpsmap_core.local.local_solver import UNTIL_SOLVED as UNTIL_SOLVED
from lpsmap_core.local.local_solver import SolverDescription as SolverDescription
from lpsmap_core.local.oracles import best_feasible as best_feasible
from lpsmap_core.local.vertices import Vertices as Vertices
from lpsmap_core.local.vertices import join_vertices as join_vertices
from lpsmap_core.local.vertices import structure_scores as structure_scores
from lpsmap_core.model.inputs import booleans as booleans
from lpsmap_core.model.inputs import broadcast as broadcast
from lpsmap_core.model.inputs import check_readable as check_readable
from lpsmap_core.model.inputs import checked_count as checked_count
from lpsmap_core.model.inputs import checked_flag as checked_flag
from lpsmap_core.model.inputs import checked_number as checked_number
from lpsmap_core.model.inputs import checked_shape as checked_shape
from lpsmap_core.model.inputs import kind_of as kind_of
from lpsmap_core.model.inputs import real_numbers as real_numbers
from lpsmap_core.model.inputs import truth_values as truth_values
from lpsmap_core.model.inputs import whole_numbers as whole_numbers
from lpsmap_core.model.lengths import check_unambiguous_lengths as check_unambiguous_lengths
from lpsmap_core.model.lengths import checked_lengths as checked_lengths
from lpsmap_core.model.linear_constraints import CountBounds as CountBounds
from lpsmap_core.model.linear_constraints import PartlyConstrained as PartlyConstrained
from lpsmap_core.model.linear_constraints import constraints_of as constraints_of
from lpsmap_core.model.memory_limit import MAX_MEMORY as MAX_MEMORY
from lpsmap_core.model.memory_limit import VIEW_BYTES as VIEW_BYTES
from lpsmap_core.model.memory_limit import MemoryLimitError as MemoryLimitError
from lpsmap_core.model.memory_limit import memory_limit as memory_limit
from lpsmap_core.model.memory_limit import reserve_memory as reserve_memory
from lpsmap_core.model.slots import declared_variables as declared_variables
from lpsmap_core.model.slots import flipped_slots as flipped_slots
from lpsmap_core.model.slots import label_of as label_of
from lpsmap_core.model.slots import name_of_factor as name_of_factor
from lpsmap_core.model.slots import parameters_of as parameters_of
from lpsmap_core.model.slots import placed_slots as placed_slots
from lpsmap_core.model.slots import row_values as row_values
from lpsmap_core.model.slots import row_view as row_view
from lpsmap_core.model.slots import set_label as set_label
from lpsmap_core.model.slots import slot_values as slot_values
from lpsmap_core.model.slots import slots_of as slots_of
from lpsmap_core.plugins.error_origin import error_with_origin as error_with_origin
from lpsmap_core.plugins.hookspecs import hookspec as hookspec
from lpsmap_core.plugins.hookspecs import subclasses as subclasses
from lpsmap_core.plugins.install_advice import install_advice as install_advice
from lpsmap_core.plugins.install_advice import installed_decoder as installed_decoder
from lpsmap_core.plugins.install_advice import missing_type_advice as missing_type_advice
from lpsmap_core.plugins.registry import DuplicateNameError as DuplicateNameError
from lpsmap_core.plugins.registry import Registry as Registry
from lpsmap_core.solution.contradictions import Contradictions as Contradictions
from lpsmap_core.solution.contradictions import ReducedContradictions as ReducedContradictions
from lpsmap_core.solution.contradictions import explain_contradictions as explain_contradictions
from lpsmap_core.solution.contradictions import reduced_contradictions as reduced_contradictions
from lpsmap_core.solution.dominant_scores import reduce_dominant_scores as reduce_dominant_scores
from lpsmap_core.solution.report import report_unsolved as report_unsolved
from lpsmap_core.solution.report import warn_unsolved as warn_unsolved
from lpsmap_core.solution.scored_graph import ScoredGraph as ScoredGraph
from lpsmap_core.solution.scored_graph import zero_unused_scores as zero_unused_scores
from lpsmap_core.solution.solution import DEFAULT_GAP as DEFAULT_GAP
from lpsmap_core.solution.solve import solve_laid_out as solve_laid_out
from lpsmap_core.solution.table_rendering import text_table as text_table
from lpsmap_jit import native as _native
from lpsmap_jit.announcements import is_quiet as is_quiet
from lpsmap_jit.arrays import BoolArray as BoolArray
from lpsmap_jit.arrays import ByteArray as ByteArray
from lpsmap_jit.arrays import FloatArray as FloatArray
from lpsmap_jit.arrays import FloatTable as FloatTable
from lpsmap_jit.arrays import IndexArray as IndexArray
from lpsmap_jit.arrays import IntArray as IntArray
from lpsmap_jit.by_address import by_address as by_address
from lpsmap_jit.by_address import record_at as _record_at
from lpsmap_jit.cached_property import cached_property as cached_property
from lpsmap_jit.callers import stacklevel as stacklevel
from lpsmap_jit.compile import summing_leaf as summing_leaf
from lpsmap_jit.ctrl_c import raised_by_ctrl_c as raised_by_ctrl_c
from lpsmap_jit.interrupts import Watch as Watch
from lpsmap_jit.interrupts import interruptible as interruptible
from lpsmap_jit.interrupts import out_of_time as out_of_time
from lpsmap_jit.interrupts import raise_interrupt as raise_interrupt
from lpsmap_jit.interrupts import stopped as stopped

floats_at_address = _native.floats
reader_of = _record_at

__all__ = [name for name in dir() if not name.startswith("_")]
