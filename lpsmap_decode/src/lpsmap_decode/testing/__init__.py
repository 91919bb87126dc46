"""The conformance kit of file formats and of solvers of whole graphs: one check for each."""

from lpsmap_decode.testing.file_formats import check_format
from lpsmap_decode.testing.map_solvers import check_map_solver

__all__ = ["check_format", "check_map_solver"]
