"""SparseMAP and LP-SparseMAP: differentiable, sparse, structured inference in factor graphs."""

from lpsmap_core.conditional_gradient import ConditionalGradient, conditional_gradient
from lpsmap_core.distribution import Distribution, Distributions, Structure
from lpsmap_core.factor import FREE, LOWER, TIED, UPPER, Factor, LocalSolution
from lpsmap_core.graph import FactorGraph
from lpsmap_core.hookspecs import hookimpl, hookspec
from lpsmap_core.plan import Plan
from lpsmap_core.report import ConvergenceWarning
from lpsmap_core.solution import Solution, Status
from lpsmap_core.variables import Variables, stack
from lpsmap_core.warm_start import WarmStartCache

__version__ = "0.1.0"

__all__ = [
    "FREE",
    "LOWER",
    "TIED",
    "UPPER",
    "ConditionalGradient",
    "ConvergenceWarning",
    "Distribution",
    "Distributions",
    "Factor",
    "FactorGraph",
    "LocalSolution",
    "Plan",
    "Solution",
    "Status",
    "Structure",
    "Variables",
    "conditional_gradient",
    "WarmStartCache",
    "hookimpl",
    "hookspec",
    "stack",
]
