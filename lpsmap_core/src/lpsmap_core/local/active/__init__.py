"""The active set: SparseMAP of one factor by its MAP oracle."""
