"""From a relaxed solution to the best assignment: bounds, rounding, search."""
