"""Agreement among factors: the loop, its acceleration, and its derivatives."""
