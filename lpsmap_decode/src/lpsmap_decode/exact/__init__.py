"""From a relaxed solution to an optimal assignment: bounds, rounding, search."""
