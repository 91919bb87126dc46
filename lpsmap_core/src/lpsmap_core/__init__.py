"""SparseMAP and LP-SparseMAP: differentiable, sparse, structured inference in factor graphs."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from lpsmap_core.engine.backends import Backend
from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import ALGORITHM_1, Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.starts import Start
from lpsmap_core.engine.status import Status
from lpsmap_core.file_format import FileFormat, FileFormatError, NamedGraph
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
from lpsmap_core.local.local_solver import LocalSolver
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear_constraints import LinearConstraints
from lpsmap_core.model.sums import bounded_sums
from lpsmap_core.model.tensor_oracle import TensorOracle
from lpsmap_core.model.variables import Variables, as_variables, stack
from lpsmap_core.plugins.hookspecs import hookimpl
from lpsmap_core.plugins.packs import moved_names as _moved_names
from lpsmap_core.plugins.registry import installed, registered
from lpsmap_core.projections.face_codes import boxed_solution
from lpsmap_core.solution.decoder import Decoder
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

if not _TYPE_CHECKING:  # a type checker would take every name for one of this module
    __getattr__ = _moved_names(__name__)

__all__ = [
    "ALGORITHM_1",
    "FREE",
    "LOWER",
    "TIED",
    "TIGHT",
    "UPPER",
    "Answer",
    "Backend",
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
    "LinearConstraints",
    "LocalScores",
    "LocalSolution",
    "LocalSolver",
    "MapSolver",
    "NamedGraph",
    "Options",
    "Plan",
    "Product",
    "Program",
    "Scores",
    "Solution",
    "SolvedGraph",
    "SolverLimits",
    "Start",
    "Status",
    "Structure",
    "Structures",
    "TensorOracle",
    "Variables",
    "as_variables",
    "bounded_sums",
    "boxed_solution",
    "ended_by_ctrl_c",
    "hookimpl",
    "installed",
    "interrupted",
    "kernel",
    "largest_arity",
    "leaf",
    "registered",
    "stack",
]
