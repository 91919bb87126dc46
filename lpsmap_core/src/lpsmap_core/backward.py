"""Derivatives of the solution: the projection onto the directions that all faces share.

The Jacobian of the marginals in the scores is ``P``, the orthogonal projection onto the
eigenvalue-1 space of ``S`` (Niculae & Martins 2020, Proposition 3). The paper takes powers of
``S``; here ``P d = d - y`` for the y of least norm with ``(I - S) y = (I - S) d``, found by
conjugate gradients in far fewer products, every component at its own pace.

On a face the additionals follow the variables linearly, ``d nu = B^T C d mu`` with ``B`` the mixed
block of the local Jacobian, so that the same operator carries gradients from and to them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core.faces import FaceOperator
from lpsmap_core.state import PartState, sums

__all__ = ["multiply_jacobian"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TOLERANCE = 1e-13
"""``P d`` is found when the residual is this small, relative to ``||d||``."""

NOISE = 3.0
"""The residual is rounding below this multiple of what the local Jacobians lack of projections: the
more structures in an active set, the more.
"""

MAX_PRODUCTS = 2000


def multiply_jacobian(
    state: PartState, d: FloatArray, d_v: Sequence[FloatArray], chosen: BoolArray
) -> tuple[FloatArray, list[FloatArray]]:
    """Multiply the symmetric Jacobian of a part's solution with a vector.

    Parameters
    ----------
    state
        The solved part.
    d
        One number a variable of the part.
    d_v
        One number an additional of every bucket.
    chosen
        Components to treat; the results of others are zero.

    Returns
    -------
    out, out_v
        The product's entries for the variables and for every bucket's additionals.

    Warns
    -----
    RuntimeWarning
        If a component needs more than `MAX_PRODUCTS` products with ``S``.
    """
    state.complete_faces()
    operator = FaceOperator(state, chosen)
    component = state.part.component
    product = np.where(chosen[component], d, 0.0)
    if any(np.any(extra) for extra in d_v):
        operator.multiply_locally(d_v)
        product += operator.gather(operator.outputs)
    residual = np.zeros_like(product)
    operator.multiply(product, residual)
    # alone, a factor's Jacobian is P: nothing is left but rounding, which must not be reduced
    direct = state.part.direct[component]
    product[direct] -= residual[direct]
    residual[direct] = 0.0
    norms = np.sqrt(sums(component, product * product, len(chosen)))
    target = np.maximum(TOLERANCE * norms, NOISE * operator.defect())
    unfinished = operator.reduce(product, residual, target, MAX_PRODUCTS)
    if unfinished.any():
        warnings.warn(
            f"lpsmap: the backward pass of {unfinished.sum()} component(s) stopped after "
            f"{MAX_PRODUCTS} products, so that their gradients are approximate. Nearly parallel "
            "faces do this; solving with a smaller tol may separate them.",
            RuntimeWarning,
            stacklevel=3,
        )
    if any(v.size for v in state.v):
        operator.scatter(product)
        operator.multiply_locally(operator.no_v)
    return product, operator.outputs_v
