"""SparseMAP and LP-SparseMAP: differentiable, sparse, structured inference in factor graphs."""

from types import ModuleType as _ModuleType

from lpsmap_core.engine.compiled import CompiledEngine as CompiledEngine
from lpsmap_core.engine.options import ALGORITHM_1 as ALGORITHM_1
from lpsmap_core.engine.options import Options as Options
from lpsmap_core.engine.protocol import Backend as Backend
from lpsmap_core.engine.protocol import Engine as Engine
from lpsmap_core.engine.protocol import SolvedGraph as SolvedGraph
from lpsmap_core.engine.starts import Start as Start
from lpsmap_core.engine.status import Status as Status
from lpsmap_core.face_codes import boxed_solution as boxed_solution
from lpsmap_core.graph import FactorGraph as FactorGraph
from lpsmap_core.kernels.records import FREE as FREE
from lpsmap_core.kernels.records import LOWER as LOWER
from lpsmap_core.kernels.records import TIED as TIED
from lpsmap_core.kernels.records import TIGHT as TIGHT
from lpsmap_core.kernels.records import UNSOLVED as UNSOLVED
from lpsmap_core.kernels.records import UPPER as UPPER
from lpsmap_core.kernels.records import Direction as Direction
from lpsmap_core.kernels.records import Factors as Factors
from lpsmap_core.kernels.records import LocalScores as LocalScores
from lpsmap_core.kernels.records import LocalSolution as LocalSolution
from lpsmap_core.kernels.records import Product as Product
from lpsmap_core.kernels.records import Scores as Scores
from lpsmap_core.kernels.records import Structures as Structures
from lpsmap_core.kernels.records import largest_arity as largest_arity
from lpsmap_core.local.local_solver import LocalSolver as LocalSolver
from lpsmap_core.model.factor import Factor as Factor
from lpsmap_core.model.linear_constraints import LinearConstraints as LinearConstraints
from lpsmap_core.model.linear_constraints import bounded_sums as bounded_sums
from lpsmap_core.model.tensor_oracle import TensorOracle as TensorOracle
from lpsmap_core.model.variables import Variables as Variables
from lpsmap_core.model.variables import as_variables as as_variables
from lpsmap_core.model.variables import stack as stack
from lpsmap_core.plugins.hookspecs import hookimpl as hookimpl
from lpsmap_core.plugins.registry import installed as installed
from lpsmap_core.plugins.registry import registered as registered
from lpsmap_core.solution.distribution import Distribution as Distribution
from lpsmap_core.solution.distribution import Distributions as Distributions
from lpsmap_core.solution.distribution import Structure as Structure
from lpsmap_core.solution.plan import Plan as Plan
from lpsmap_core.solution.report import ConvergenceWarning as ConvergenceWarning
from lpsmap_core.solution.solution import Solution as Solution
from lpsmap_jit.cache import CompilationNotice as CompilationNotice
from lpsmap_jit.compile import kernel as kernel
from lpsmap_jit.compile import leaf as leaf
from lpsmap_jit.ctrl_c import ended_by_ctrl_c as ended_by_ctrl_c
from lpsmap_jit.deadlines import Deadline as Deadline
from lpsmap_jit.interrupts import interrupted as interrupted

__version__ = "0.1.0"

__all__ = [n for n in dir() if n[0] != "_" and not isinstance(globals()[n], _ModuleType)]
