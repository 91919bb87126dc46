"""Factor graphs in files, and many of them: formats, a stream of solved graphs, commands."""

from lpsmap_decode.corpus.outcome import Outcome
from lpsmap_decode.corpus.solve_many import solve_many
from lpsmap_decode.formats.fg import FgFormat
from lpsmap_decode.formats.uai import (
    MarkovNetwork,
    UaiFormat,
    assignment_text,
    read_assignment,
    read_network,
    write_assignment,
)
from lpsmap_decode.formats.wcnf import WcnfFormat

__version__ = "0.1.0"

__all__ = [
    "FgFormat",
    "MarkovNetwork",
    "Outcome",
    "UaiFormat",
    "WcnfFormat",
    "assignment_text",
    "read_assignment",
    "read_network",
    "solve_many",
    "write_assignment",
]
