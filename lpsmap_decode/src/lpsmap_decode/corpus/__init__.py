"""Solving many graphs with an executor."""
