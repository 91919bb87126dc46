"""Validation of numbers and switches that users pass."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.memory_limit import reserve_memory
from lpsmap_jit.arrays import FloatArray, IntArray

__all__ = [
    "MAX_COUNT",
    "booleans",
    "broadcast",
    "check_readable",
    "checked_count",
    "checked_flag",
    "checked_number",
    "checked_shape",
    "count_or_flag",
    "finite_numbers",
    "checked_scores",
    "integer_array",
    "kind_of",
    "n_additionals",
    "real_numbers",
    "truth_values",
    "whole_numbers",
]

MAX_COUNT = 2**62
"""Larger than the count of any objects in memory, and exact as an integer and as a float."""

MAX_INT64 = 2**63 - 1
"""Largest number that kernels can count to."""


def check_readable(name: str, value: Any) -> None:
    """Reject arrays, of any library, without plain numbers in every entry.

    Parameters
    ----------
    name
        Name of the value in errors, after that of the factor type or method.
    value
        Any value; values other than arrays pass.

    Raises
    ------
    TypeError
        If it is a masked array, complex, sparse or otherwise not dense, or without data.
    """
    if type(value) is np.ndarray and value.dtype.kind in "fiub":
        return
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: got a masked array; expected an array with a number in every entry. Fill it, "
            "such as scores.filled(-np.inf), which forbids the masked entries."
        )
    if getattr(value, "is_meta", False):
        raise TypeError(
            f"{name}: got a meta tensor, which has no numbers; expected a tensor with data. First "
            "move the model to a device with memory, such as 'cpu'."
        )
    if getattr(value, "is_quantized", False) or getattr(value, "is_nested", False):
        kind = "quantized" if value.is_quantized else "nested"
        raise TypeError(
            f"{name}: got a {kind} tensor; expected a plain tensor. Use dequantize(), or "
            "to_padded_tensor() and lengths for rows of different lengths."
        )
    layout = getattr(value, "layout", None)
    if layout is not None and str(layout) != "torch.strided":
        raise TypeError(
            f"{name}: got a tensor of layout {layout}; expected a dense tensor. Use to_dense()."
        )
    if "complex" in str(getattr(value, "dtype", "")):
        raise TypeError(
            f"{name} has dtype {value.dtype}; expected real numbers. Pass their real part or "
            "their absolute value."
        )


def kind_of(value: Any) -> str:
    """Return the name of a `value` of a wrong type in errors, such as "an int"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' or name == 'ndarray' else 'a'} {name}"


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; one number is the size of one axis.

    Parameters
    ----------
    name
        Name of the shape in errors.
    shape
        Sizes, or one size.

    Raises
    ------
    TypeError
        If it does not consist of integers.
    ValueError
        If a size is negative.
    """
    try:
        sizes = tuple(map(operator.index, shape if np.iterable(shape) else (shape,)))
    except TypeError:
        raise TypeError(f"{name} is {shape!r}; expected integers, such as (3, 4).") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"{name} is {shape!r}; expected sizes of 0 or more.")
    return sizes


def real_numbers(name: str, value: Any) -> npt.NDArray[Any]:
    """Return numbers as a NumPy array of their own dtype.

    Parameters
    ----------
    name
        Name of the numbers in errors.
    value
        Numbers of any shape.

    Raises
    ------
    TypeError
        If `check_readable` rejects them, or if they are words, lists of different lengths, or
        tensors whose gradients would be lost.
    """
    if type(value) is np.ndarray and value.dtype.kind in "fiub":
        return value
    array = _array(name, value)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} {_seen(value, array)}; expected real numbers. Pass a NumPy array, or a torch "
            "tensor to TorchFactorGraph."
        )
    return array


def checked_scores(name: str, value: Any) -> Any:
    """Return arrays of scores, of any library, unchanged, and other numbers as an array.

    Raises
    ------
    TypeError
        If they are not real numbers.
    """
    if value is None:
        return None
    if hasattr(value, "shape"):
        check_readable(name, value)
        return value
    return real_numbers(name, value).astype(np.float64)


def n_additionals(name: str, additionals: Any, batch: tuple[int, ...]) -> int:
    """Return the number of additionals per factor, and ensure that they start with the batch."""
    if additionals is None:
        return 0
    shape = tuple(additionals.shape)
    if shape[: len(batch)] != batch:
        raise ValueError(
            f"{name}: additionals has shape {shape}; expected it to start with the batch shape "
            f"{batch}. Broadcast it first."
        )
    return math.prod(shape[len(batch) :])


def finite_numbers(
    name: str, value: Any, shape: tuple[int, ...], keep: npt.NDArray[np.bool_] | None = None
) -> FloatArray:
    """Return finite numbers broadcast to a shape, and 0 where `keep` is false.

    Raises
    ------
    TypeError
        If they are not real numbers.
    ValueError
        If they do not broadcast, or if a number is not finite where `keep` is true.
    """
    if isinstance(value, (int, float)) and -MAX_COUNT < value < MAX_COUNT:  # the common case
        return np.full(shape, float(value))
    array = real_numbers(name, value).astype(np.float64)
    numbers: FloatArray = broadcast(name, array, shape)
    if not np.isfinite(array).all():
        numbers = numbers if keep is None else np.where(keep, numbers, 0.0)
        if not np.isfinite(numbers).all():
            raise ValueError(f"{name} holds a value that is not finite; expected finite numbers.")
    return numbers


def broadcast(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an array broadcast to a shape, in C order.

    Parameters
    ----------
    name
        Name of the array in errors.
    array, shape
        The array, and the shape of the result.

    Raises
    ------
    ValueError
        If it does not broadcast.
    """
    try:
        seen = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {array.shape}; expected one that broadcasts to {shape}."
        ) from None
    if seen.size > array.size:
        reserve_memory(seen.nbytes, name)
    return np.ascontiguousarray(seen).reshape(shape)


def whole_numbers(name: str, value: Any) -> npt.NDArray[Any]:
    """Return whole numbers for counts; numbers beyond 2^62 become 2^62.

    Parameters
    ----------
    name
        Name of the numbers in errors.
    value
        Whole numbers of any shape.

    Raises
    ------
    TypeError
        If they are not real numbers: words, truth values, complex numbers.
    ValueError
        If a number is not finite. The caller must reject fractions.
    """
    array = _array(name, value)
    _check_integral(name, value, array)
    if array.dtype.kind == "O":
        clipped = [
            max(-MAX_COUNT, min(number, MAX_COUNT)) for number in array.flat
        ]  # beyond any dtype
        return np.array(clipped, dtype=np.int64).reshape(array.shape)
    most = MAX_COUNT if array.dtype.kind == "f" else min(MAX_COUNT, np.iinfo(array.dtype).max)
    counts: npt.NDArray[Any] = np.minimum(array, array.dtype.type(most))
    return counts if array.dtype.kind == "f" else counts.astype(np.int64)


def integer_array(name: str, value: npt.ArrayLike) -> IntArray:
    """Return whole numbers, of either sign, as an array of int64; an empty array becomes flat.

    Raises
    ------
    TypeError
        If they are not real numbers.
    ValueError
        If a number is a fraction, not finite, or beyond int64.
    """
    array = _array(name, value)
    if not array.size:
        return np.empty(0, dtype=np.int64)
    _check_integral(name, value, array)
    if array.dtype.kind != "i":
        exact = np.atleast_1d(array.astype(np.float64) if array.dtype.kind == "f" else array)
        fits = (exact >= -(2**63)) & (exact < 2**63)
        if array.dtype.kind == "f":
            fits &= exact == np.rint(exact)
        if not fits.all():
            wrong = exact[~fits][0]
            raise ValueError(f"{name} holds {wrong}; expected whole numbers that fit in int64.")
    return np.array(array, dtype=np.int64, order="C")


def booleans(name: str, value: Any, of: str) -> npt.NDArray[np.bool_]:
    """Return booleans as an array; numbers are not accepted.

    Parameters
    ----------
    name
        Name of the booleans in errors.
    value
        Booleans of any shape.
    of
        Meaning of true in errors, such as "a variable is negated".

    Raises
    ------
    TypeError
        If they are not booleans.
    """
    array = _array(name, value)
    if array.dtype != np.bool_:
        raise TypeError(f"{name} {_seen(value, array)}; expected booleans, true where {of}.")
    return array


def truth_values(name: str, value: Any) -> npt.NDArray[np.bool_]:
    """Return truth values as an array of booleans; zeros and ones are accepted, words are not.

    Parameters
    ----------
    name
        Name of the truth values in errors.
    value
        Truth values of any shape.

    Raises
    ------
    TypeError
        If they are not truth values.
    """
    if isinstance(value, bool):
        return np.array(value)
    array = _array(name, value)
    if array.dtype.kind not in "iub" or ((array != 0) & (array != 1)).any():
        raise TypeError(f"{name}: got {value!r}; expected True or False.")
    return array.astype(np.bool_)


def checked_flag(name: str, value: Any) -> bool:
    """Return one truth value.

    Parameters
    ----------
    name
        Name of the truth value in errors.
    value
        Any value; True, False, 0 and 1 pass, and arrays with one of these as their only entry.

    Raises
    ------
    TypeError
        If it is not a truth value, or is an array with axes.
    """
    if isinstance(value, bool):
        return value
    array = truth_values(name, value)
    if array.ndim:
        raise TypeError(f"{name}: got an array of shape {array.shape}; expected one True or False.")
    return bool(array)


def checked_count(name: str, value: Any, otherwise: str = "", least: int = 1) -> int:
    """Return one integer of at least `least`, as a Python integer.

    Parameters
    ----------
    name
        Name of the integer in errors.
    value
        Any value; integers pass, and arrays with an integer as their only entry.
    otherwise
        Other values that the caller accepts, for errors, such as ``", or None"``.
    least
        The smallest integer that passes.

    Raises
    ------
    TypeError
        If it is not an integer, or is a truth value, which is more often a mistake than a 1.
    ValueError
        If it is too small, or larger than a kernel can count.
    """
    expected = f"an integer of at least {least}{otherwise}"
    plain = _plain(value)
    whole: Any = None if isinstance(plain, bool) else plain
    try:
        count = operator.index(whole)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}; expected {expected}.") from None
    if count < least:
        raise ValueError(f"{name}: got {count}; expected {expected}.")
    if count > MAX_INT64:
        raise ValueError(f"{name}: got {count}; expected {expected}, and less than 2**63.")
    return count


def count_or_flag(name: str, value: Any) -> int:
    """Return one integer of at least 0, or a truth value as 0 or 1, by `checked_count`."""
    plain = _plain(value)
    return checked_count(name, int(plain) if isinstance(plain, bool) else plain, least=0)


def checked_number(name: str, value: Any, expected: str, accepts: Callable[[float], bool]) -> float:
    """Return one real number that is accepted, as a Python float.

    Parameters
    ----------
    name
        Name of the number in errors.
    value
        Any value; real numbers pass, and arrays with a real number as their only entry.
    expected
        Description of the accepted numbers for errors, such as ``"a positive number"``.
    accepts
        Returns whether a number is accepted.

    Raises
    ------
    TypeError
        If it is not a real number, or is a truth value.
    ValueError
        If it is not accepted.
    """
    plain = _plain(value)
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise TypeError(f"{name}: got {value!r}; expected {expected}.")
    try:
        number = float(plain)
    except OverflowError:
        number = np.nan
    if not accepts(number):
        raise ValueError(f"{name}: got {value}; expected {expected}.")
    return number


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return a readable value as an array of any dtype."""
    check_readable(name, value)
    if getattr(value, "requires_grad", False):
        raise TypeError(
            f"{name}: got a tensor that requires gradients, which would be lost here. Scores with "
            "gradients need lpsmap.TorchFactorGraph, of lpsmap-torch; otherwise pass "
            "tensor.detach()."
        )
    try:
        return np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: got {kind_of(value)} that is not an array of numbers ({error}). Pass a "
            "NumPy array. A TorchFactorGraph accepts torch tensors of every dtype, with or without "
            "gradients."
        ) from error


def _check_integral(name: str, value: Any, array: npt.NDArray[Any]) -> None:
    """Reject arrays that cannot hold whole numbers; Python integers may exceed all dtypes."""
    kind = array.dtype.kind
    if kind not in "fiu" and not (kind == "O" and all(type(x) is int for x in array.flat)):
        raise TypeError(f"{name} {_seen(value, array)}; expected whole numbers.")
    if kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} holds a value that is not finite; expected whole numbers.")


def _seen(value: Any, array: npt.NDArray[Any]) -> str:
    """Return the description of a value with a wrong dtype in errors."""
    return f"has dtype {array.dtype}" if hasattr(value, "dtype") else f"is {value!r:.60}"


def _plain(value: Any) -> Any:
    """Return the Python scalar of a NumPy scalar or of an array without axes; others unchanged."""
    if type(value) in (bool, int, float):
        return value
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
