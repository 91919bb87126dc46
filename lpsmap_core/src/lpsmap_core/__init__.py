"""SparseMAP and LP-SparseMAP: differentiable, sparse, structured inference in factor graphs."""

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import ALGORITHM_1, Options
from lpsmap_core.engine.protocol import Backend, Engine, SolvedGraph
from lpsmap_core.engine.starts import Start
from lpsmap_core.engine.status import Status
from lpsmap_core.face_codes import boxed_solution
from lpsmap_core.graph import FactorGraph
from lpsmap_core.kernels.records import (
    FREE,
    LOWER,
    TIED,
    TIGHT,
    UNSOLVED,
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
from lpsmap_core.model.linear_constraints import LinearConstraints, bounded_sums
from lpsmap_core.model.tensor_oracle import TensorOracle
from lpsmap_core.model.variables import Variables, as_variables, stack
from lpsmap_core.plugins.hookspecs import hookimpl
from lpsmap_core.plugins.registry import installed, registered
from lpsmap_core.solution.distribution import Distribution, Distributions, Structure
from lpsmap_core.solution.plan import Plan
from lpsmap_core.solution.report import ConvergenceWarning
from lpsmap_core.solution.solution import Solution
from lpsmap_jit.cache import CompilationNotice
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.ctrl_c import ended_by_ctrl_c
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.interrupts import interrupted

__version__ = "0.1.0"

__all__ = [
    "ALGORITHM_1",
    "Backend",
    "CompilationNotice",
    "CompiledEngine",
    "ConvergenceWarning",
    "Deadline",
    "Direction",
    "Distribution",
    "Distributions",
    "Engine",
    "FREE",
    "Factor",
    "FactorGraph",
    "Factors",
    "LOWER",
    "LinearConstraints",
    "LocalScores",
    "LocalSolution",
    "LocalSolver",
    "Options",
    "Plan",
    "Product",
    "Scores",
    "Solution",
    "SolvedGraph",
    "Start",
    "Status",
    "Structure",
    "Structures",
    "TIED",
    "TIGHT",
    "TensorOracle",
    "UNSOLVED",
    "UPPER",
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
