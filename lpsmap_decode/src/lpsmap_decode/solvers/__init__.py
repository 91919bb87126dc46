"""Solvers of whole graphs: which one is taken, what it is handed, what its answers prove."""
