"""Exact search with proofs, file formats of factor graphs, and solving many graphs in parallel."""

from lpsmap_decode.corpus.outcome import Outcome
from lpsmap_decode.corpus.solve_many import solve_many
from lpsmap_decode.decoder import Decoder
from lpsmap_decode.evidence import Conditioned
from lpsmap_decode.executors import BatchExecutor
from lpsmap_decode.formats.compressed_text import file_bytes, write_text
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.fg import FgFormat
from lpsmap_decode.formats.file_format import FileFormat, FileFormatError, NamedGraph
from lpsmap_decode.formats.files import read_evidence, read_graph, write_graph
from lpsmap_decode.formats.json_format import JsonFormat
from lpsmap_decode.formats.uai import (
    MarkovNetwork,
    UaiFormat,
    assignment_text,
    read_assignment,
    read_network,
    write_assignment,
)
from lpsmap_decode.formats.wcnf import WcnfFormat
from lpsmap_decode.redundant_factors import count_redundant
from lpsmap_decode.results.assignment import Assignment
from lpsmap_decode.results.assignment_score import score_assignment
from lpsmap_decode.results.search_limits import SearchProgress
from lpsmap_decode.search import (
    Evaluation,
    NodeBatch,
    Search,
    SearchResult,
    SearchState,
    Space,
    Unfinished,
)
from lpsmap_decode.solvers.highs import HighsSolver
from lpsmap_decode.solvers.map_solver import Answer, MapSolver, Program, SolverLimits
from lpsmap_decode.solvers.maxsat import MaxSatSolver
from lpsmap_dynamic import Tables

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Assignment",
    "BatchExecutor",
    "Conditioned",
    "Decoder",
    "Unfinished",
    "FgFormat",
    "FileFormat",
    "FileFormatError",
    "HighsSolver",
    "JsonFormat",
    "Evaluation",
    "MapSolver",
    "MarkovNetwork",
    "MaxSatSolver",
    "NamedGraph",
    "NodeBatch",
    "Outcome",
    "Program",
    "Search",
    "SearchResult",
    "SearchProgress",
    "SearchState",
    "SolverLimits",
    "Space",
    "Tables",
    "UaiFormat",
    "WcnfFormat",
    "assignment_text",
    "count_redundant",
    "factor_named",
    "file_bytes",
    "read_assignment",
    "read_evidence",
    "read_graph",
    "read_network",
    "score_assignment",
    "solve_many",
    "write_assignment",
    "write_graph",
    "write_text",
]
