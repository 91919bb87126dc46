"""SparseMAP and LP-SparseMAP: differentiable, sparse, structured inference in factor graphs."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from lpsmap_core.engine.backends import Backend
from lpsmap_core.engine.choice import find_engines_by
from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import ALGORITHM_1, Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.status import Status
from lpsmap_core.engine.warm_start import WarmStartCache
from lpsmap_core.graph import FactorGraph
from lpsmap_core.kernels.records import (
    FREE,
    LOWER,
    TIED,
    TIGHT,
    UPPER,
    Direction,
    Factors,
    LocalScores,
    LocalSolution,
    Product,
    Scores,
    Structures,
    largest_arity,
)
from lpsmap_core.local.protocol import LocalSolver
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inference import Beliefs, Found, Inference, LogPartition
from lpsmap_core.model.linear import LinearConstraints
from lpsmap_core.model.sums import bounded_sums
from lpsmap_core.model.tensor_oracle import TensorOracle
from lpsmap_core.model.variables import Variables, as_variables, stack
from lpsmap_core.plugins.formats import FileFormat, FileFormatError, NamedGraph
from lpsmap_core.plugins.hookspecs import hookimpl, hookspec
from lpsmap_core.plugins.packs import refuse_moved_name as _refuse_moved_name
from lpsmap_core.plugins.registry import (
    decoder_for,
    engine_named,
    installed,
    installed_engines,
    registered,
)
from lpsmap_core.projections.faces import boxed_solution
from lpsmap_core.solution.assignment import Assignment
from lpsmap_core.solution.decoder import Decoder, SearchProgress, set_decoder_finder
from lpsmap_core.solution.distribution import Distribution, Distributions, Structure
from lpsmap_core.solution.map_solver import Answer, MapSolver, Program, SolverLimits
from lpsmap_core.solution.plan import Plan
from lpsmap_core.solution.report import ConvergenceWarning
from lpsmap_core.solution.solution import Solution
from lpsmap_jit.compile import CompilationNotice, kernel, leaf
from lpsmap_jit.ctrl_c import ended_by_ctrl_c
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.interrupts import interrupted

__version__ = "0.1.0"

find_engines_by(engine_named, installed_engines)
set_decoder_finder(decoder_for)

if not _TYPE_CHECKING:  # a type checker would take every name for one of this module
    __getattr__ = _refuse_moved_name

__all__ = [
    "ALGORITHM_1",
    "FREE",
    "LOWER",
    "TIED",
    "TIGHT",
    "UPPER",
    "Answer",
    "Assignment",
    "Backend",
    "Beliefs",
    "CompilationNotice",
    "CompiledEngine",
    "ConvergenceWarning",
    "Deadline",
    "Decoder",
    "Direction",
    "Distribution",
    "Distributions",
    "Engine",
    "Factor",
    "FactorGraph",
    "Factors",
    "FileFormat",
    "FileFormatError",
    "Found",
    "Inference",
    "LinearConstraints",
    "LocalScores",
    "LocalSolution",
    "LocalSolver",
    "LogPartition",
    "MapSolver",
    "NamedGraph",
    "Options",
    "Plan",
    "Product",
    "Program",
    "Scores",
    "SearchProgress",
    "Solution",
    "SolvedGraph",
    "SolverLimits",
    "Status",
    "Structure",
    "Structures",
    "TensorOracle",
    "Variables",
    "WarmStartCache",
    "as_variables",
    "bounded_sums",
    "boxed_solution",
    "ended_by_ctrl_c",
    "hookimpl",
    "hookspec",
    "installed",
    "interrupted",
    "kernel",
    "largest_arity",
    "leaf",
    "registered",
    "stack",
]
