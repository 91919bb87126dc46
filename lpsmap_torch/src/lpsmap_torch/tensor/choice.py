"""The choice between engines on tensors and core's engine."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lpsmap_core import Options
from lpsmap_core.api import AUTO, Part
from lpsmap_torch.tensor.engine import AutomaticTensorEngine, FixedTensorEngine, TensorEngine
from lpsmap_torch.tensors import is_transformed

__all__ = ["ENGINES", "engine_on", "tensor_engine"]

ENGINES = {engine.name: engine for engine in (TensorEngine, FixedTensorEngine)}

WITHOUT_FLOAT64 = ("mps", "meta")
"""Types of devices that cannot compute in float64, or not at all."""


def engine_on(device: str, name: str) -> TensorEngine | None:
    """Return the engine for scores on a device, or None for core's engine or another.

    ``"auto"`` takes core's engine on the CPU, which is faster there, and `AutomaticTensorEngine`
    elsewhere.

    Parameters
    ----------
    device
        The type of the device, such as ``"cuda"``.
    name
        The name of the requested engine.
    """
    if device in WITHOUT_FLOAT64:
        return None
    if name == AUTO:
        return None if device == "cpu" else AutomaticTensorEngine()
    return ENGINES[name]() if name in ENGINES else None


def tensor_engine(
    name: str, scores: Sequence[Tensor], part: Part, options: Options
) -> TensorEngine | None:
    """Return the engine that solves a part on the device of its scores, or None.

    It solves the components that it serves, and leaves the others to core's engine.

    Parameters
    ----------
    name
        The name of the requested engine.
    scores
        The scores of variables and additionals.
    part, options
        The graph, and the options of the solve.
    """
    if len({block.device for block in scores}) != 1:
        return None
    engine = engine_on(scores[0].device.type, name)
    if engine is None or options.trace or engine.refuses(part, options) is not None:
        return None  # core solves the graph, or reports the reason
    if is_transformed(scores[0]):  # function transforms have no concrete numbers to check or copy
        engine = FixedTensorEngine()
        return engine if engine.serves(part).all() else None
    return engine if engine.serves(part).any() else None
