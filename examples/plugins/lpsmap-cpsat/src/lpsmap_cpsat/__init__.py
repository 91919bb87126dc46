"""A solver of whole graphs for lpsmap."""

from lpsmap_cpsat.solver import CpSatSolver

__all__ = ["CpSatSolver"]
