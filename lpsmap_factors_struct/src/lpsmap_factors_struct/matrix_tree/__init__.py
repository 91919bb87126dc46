"""The matrix-tree theorem: sums over all non-projective dependency trees."""
