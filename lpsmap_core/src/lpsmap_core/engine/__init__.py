"""Agreement among factors: the loop, what speeds it up, and its derivatives."""
