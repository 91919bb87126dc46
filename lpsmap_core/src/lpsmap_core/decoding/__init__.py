"""From a graph to one assignment: bounds, rounding, search."""
