"""Assignment problems in DIMACS files, for lpsmap."""

from lpsmap_assignment.dimacs import Arcs, AssignmentFormat, read_arcs

__all__ = ["Arcs", "AssignmentFormat", "read_arcs"]
