"""Plugins: hooks, registry, file formats and factor types by name."""
