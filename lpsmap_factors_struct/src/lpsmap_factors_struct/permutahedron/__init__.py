"""The polytope of orderings: projections onto it, and mixtures of orderings."""
