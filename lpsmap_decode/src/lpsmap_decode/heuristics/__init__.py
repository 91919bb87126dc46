"""Heuristics that find assignments of one component: rows, propagation, and one idea a file."""
