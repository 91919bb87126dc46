"""An engine in tensor operations: mini-batches that stay on their device.

If a few linear constraints describe the polytope of each factor, LP-SparseMAP is one projection per
component::

    min 1/2 ||mu - eta||^2   s.t.   0 <= mu <= 1,   low <= A mu <= high

Components of similar size are solved together, as a batch of dense matrices.
"""
