"""Local solvers of chains: projections onto the flows of a chain, on forests and by networks."""
