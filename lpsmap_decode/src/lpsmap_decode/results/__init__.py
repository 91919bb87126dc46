"""Limits and results of searches for the best assignments."""
