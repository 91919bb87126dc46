"""MAP oracles for batches of factors in array-API code, which run on any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class TensorOracle:
    """A MAP oracle that finds the best structures of a batch of factors in one call.

    Engines move the tables to the device of the scores once, and call `best` many times.

    Attributes
    ----------
    best
        ``best(eta_u, eta_v, *tables, *shared)`` gets ``(B, *event_shape)`` finite scores of the
        variables, (B, n_additionals) finite scores of the additionals, and the tables of these
        factors. It returns (B, W) integers, the entries of the best structure of each factor: k for
        slot k, counted in the flat event shape, K + j for additional j after all K slots, and -1
        for padding. An additional that counts twice is listed twice. The code uses the functions of
        ``array_namespace(eta_u)``; W must not depend on the scores, so that nothing waits for a
        device. Factors of several declarations share a call if `best` is the same object.
    tables
        NumPy arrays with a row for each factor of the declaration, such as lengths.
    shared
        NumPy arrays for all factors. Declarations share calls if they have the same ones.
    n_parts
        Number of parts of structures that are paths; 0 for others. The W entries are those of each
        part along the path, one part after the other, W / n_parts of each. Two structures of a
        factor that have the same entries in a part can exchange all parts before it. Engines then
        make several structures from one call.
    """

    best: Callable[..., Any]
    tables: tuple[npt.NDArray[np.generic], ...] = ()
    shared: tuple[npt.NDArray[np.generic], ...] = ()
    n_parts: int = 0
