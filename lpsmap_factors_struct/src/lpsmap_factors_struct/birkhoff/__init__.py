"""The local solver of matchings: active sets, or projections onto their polytope if these grow."""
