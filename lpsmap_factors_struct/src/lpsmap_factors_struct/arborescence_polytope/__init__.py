"""The polytope of arborescences, non-projective dependency trees: projection and derivative."""
