"""JAX adapter: the solution of a factor graph as a pure function of arrays, with gradients."""

from lpsmap_jax.loss import sparse_map_loss
from lpsmap_jax.marginals import sparse_map

__version__ = "0.1.0"

__all__ = ["sparse_map", "sparse_map_loss"]
