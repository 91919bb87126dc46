"""External solvers of whole graphs: selection, integer programs, and validation of answers."""
