"""SparseMAP and LP-SparseMAP: differentiable, sparse, structured inference in factor graphs."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from lpsmap_core.engine.choice import find_engines_by
from lpsmap_core.engine.options import ALGORITHM_1
from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.status import Status
from lpsmap_core.engine.warm_start import WarmStartCache
from lpsmap_core.graph import FactorGraph
from lpsmap_core.kernels.records import (
    FREE,
    LOWER,
    TIED,
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
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inference import Beliefs, Found, Inference, LogPartition
from lpsmap_core.model.variables import Variables, as_variables, stack
from lpsmap_core.plugins.hookspecs import hookimpl, hookspec
from lpsmap_core.plugins.packs import refuse_moved_name as _refuse_moved_name
from lpsmap_core.plugins.registry import decoder_for, engine_named, installed_engines
from lpsmap_core.solution.assignment import Assignment
from lpsmap_core.solution.decoder import SearchProgress, set_decoder_finder
from lpsmap_core.solution.distribution import Distribution, Distributions, Structure
from lpsmap_core.solution.gibbs import GibbsDistributions
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
    "UPPER",
    "Assignment",
    "Beliefs",
    "CompilationNotice",
    "ConvergenceWarning",
    "Deadline",
    "Direction",
    "Distribution",
    "Distributions",
    "Engine",
    "Factor",
    "FactorGraph",
    "Factors",
    "Found",
    "GibbsDistributions",
    "Inference",
    "LocalScores",
    "LocalSolution",
    "LogPartition",
    "Plan",
    "Product",
    "Scores",
    "SearchProgress",
    "Solution",
    "SolvedGraph",
    "Status",
    "Structure",
    "Structures",
    "Variables",
    "WarmStartCache",
    "as_variables",
    "ended_by_ctrl_c",
    "hookimpl",
    "hookspec",
    "interrupted",
    "kernel",
    "largest_arity",
    "leaf",
    "stack",
]
