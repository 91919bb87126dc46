"""Results of a solve: solutions, assignments, structures, plans and warnings."""
