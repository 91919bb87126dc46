"""Many graphs, solved by the workers of an executor."""
