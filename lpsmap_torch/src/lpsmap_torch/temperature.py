"""Temperatures: positive numbers or tensors by which scores are divided."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from lpsmap_core.api import check_readable, checked_number, kind_of
from lpsmap_torch.tensors import broadcasts, is_transformed

Temperature: TypeAlias = float | Tensor
"""A positive number, or a floating-point tensor of them, which may be a parameter."""

EXPECTED = "a positive number, or a floating-point tensor of positive numbers"


class TemperatureMixin(nn.Module):
    """A module with a temperature: a number, or a tensor that is a parameter or a buffer.

    It can be replaced at any time, except that a parameter stays one. A tensor that is not a
    parameter becomes a buffer, so that it is moved and saved with the module.
    """

    temperature: Temperature

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "temperature":
            value = checked_temperature(f"{type(self).__name__}: temperature", value)
            if not isinstance(value, Tensor) and name in self._buffers:
                delattr(self, name)  # torch does not replace a buffer by a number
            known = name in self._parameters or name in self._buffers
            new = isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and not known
            if new and not hasattr(type(self), name):  # torch's parametrizations are properties
                vars(self).pop(name, None)
                self.register_buffer(name, value, getattr(value, "persistent", True))
                return
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        """Return the arguments for `repr`, with the temperature if it is not 1."""
        words = [super().extra_repr()]
        if not is_one(self.temperature):
            words.append(f"temperature={shown(self.temperature)}")
        return ", ".join(filter(None, words))


def shown(value: Any) -> str:
    """Return an argument for `repr`, which may be a tensor."""
    if not isinstance(value, Tensor):
        return repr(value)
    kind = "parameter" if isinstance(value, nn.Parameter) else "tensor"
    return f"<{kind} of shape {tuple(value.shape)}>"


def checked_temperature(name: str, temperature: Any) -> Temperature:
    """Validate the type of a temperature, and the value of a number."""
    if not isinstance(temperature, Tensor):
        return checked_number(name, temperature, EXPECTED, lambda t: 0.0 < t < math.inf)
    if not temperature.is_floating_point():
        got = f"{kind_of(temperature)} of dtype {temperature.dtype}"
        raise TypeError(f"{name}: got {got}; expected {EXPECTED}. Use temperature.float().")
    return temperature


def check_values(name: str, temperature: Tensor) -> None:
    """Validate the values of a tensor if that neither breaks a trace nor waits for a device.

    Scores divided by other values become NaN, see `divided`.
    """
    if torch.compiler.is_compiling():
        return
    check_readable(name, temperature)
    plain = type(temperature) in (Tensor, nn.Parameter) and not is_transformed(temperature)
    if not plain or temperature.device.type != "cpu":
        return
    wrong = temperature.detach()[~_are_valid(temperature.detach())]
    if wrong.numel():
        raise ValueError(f"{name}: got {wrong[0]:g}; expected {EXPECTED}.")


def of_batch(
    name: str, temperature: Temperature, batch: tuple[int, ...], *, reads: bool = True
) -> Temperature:
    """Return a temperature that broadcasts to the batch; one element applies to all instances.

    Scores on the meta device have a temperature without values, which is not read.
    """
    if not isinstance(temperature, Tensor):
        return temperature
    if reads:
        check_values(name, temperature)
    if temperature.numel() == 1:
        return temperature.reshape(())
    shape = tuple(temperature.shape)
    if not broadcasts(shape, batch):
        raise ValueError(
            f"{name} has shape {shape}; expected one element, or a shape that broadcasts to "
            f"{batch}, one for every instance of the batch."
        )
    return temperature


def is_one(temperature: Temperature) -> bool:
    """Return whether a temperature is the number 1, by which nothing is divided."""
    return not isinstance(temperature, Tensor) and temperature == 1.0


def divided(scores: Tensor, temperature: Temperature) -> Tensor:
    """Return scores divided by a temperature, in double precision if the device has it.

    Half and single precision could overflow, even by scores that serve as masks. Infinite scores
    and NaN are returned as they are, so that the gradient of the temperature is finite. Values of a
    tensor that are not positive give NaN.
    """
    scores = scores.to(torch.float32 if scores.device.type == "mps" else torch.float64)
    if not isinstance(temperature, Tensor):
        return scores / temperature
    finite = torch.isfinite(scores)
    divisor = temperature.to(scores)
    divisor = torch.where(_are_valid(divisor), divisor, torch.nan)
    return torch.where(finite, scores.masked_fill(~finite, 0.0) / divisor, scores)


def _are_valid(temperature: Tensor) -> Tensor:
    return (temperature > 0.0) & (temperature < torch.inf)
