"""Validation of numbers and switches that users pass.

Each function takes the `name` of a `value` in errors, such as "Budget: budget" or "solve: tol". It
raises a TypeError for a value of a wrong kind, and a ValueError for one that is out of range.
"""

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

MAX_COUNT = 2**62
"""Larger than the count of any objects in memory, and exact as an integer and as a float."""

MAX_INT64 = 2**63 - 1
"""Largest number that kernels can count to."""

UNREADABLE: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (
        lambda value: isinstance(value, np.ma.MaskedArray),
        "{name}: got a masked array; expected an array with a number in every entry. Fill it, such "
        "as scores.filled(-np.inf), which forbids the masked entries.",
    ),
    (
        lambda value: getattr(value, "is_meta", False),
        "{name}: got a meta tensor, which has no numbers; expected a tensor with data. First move "
        "the model to a device with memory, such as 'cpu'.",
    ),
    (
        lambda value: getattr(value, "is_quantized", False),
        "{name}: got a quantized tensor; expected a plain tensor. Use dequantize().",
    ),
    (
        lambda value: getattr(value, "is_nested", False),
        "{name}: got a nested tensor; expected a plain tensor. Use to_padded_tensor(), and lengths "
        "for rows of different lengths.",
    ),
    (
        lambda value: str(getattr(value, "layout", None) or "torch.strided") != "torch.strided",
        "{name}: got a tensor of layout {value.layout}; expected a dense tensor. Use to_dense().",
    ),
    (
        lambda value: "complex" in str(getattr(value, "dtype", "")),
        "{name} has dtype {value.dtype}; expected real numbers. Pass their real part or their "
        "absolute value.",
    ),
)
"""Arrays, of any library, without plain numbers in every entry, with what the error says."""


def check_readable(name: str, value: Any) -> None:
    """Reject a `value` that is `UNREADABLE`; raises a TypeError. `name` is its name there."""
    if type(value) is np.ndarray and value.dtype.kind in "fiub":
        return
    for is_unreadable, words in UNREADABLE:
        if is_unreadable(value):
            raise TypeError(words.format(name=name, value=value))


def kind_of(value: Any) -> str:
    """Return the name of a `value` of a wrong type in errors, such as "an int"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' or name == 'ndarray' else 'a'} {name}"


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a `shape` as a tuple; one number is the size of one axis.

    Raises
    ------
    TypeError
        If it does not consist of integers; `name` is its name in errors.
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


# -------------------------------------------------------------------- arrays


def real_numbers(name: str, value: Any) -> npt.NDArray[Any]:
    """Return a `value` of numbers as a NumPy array of their own dtype.

    Raises
    ------
    TypeError
        If `check_readable` rejects it, or if it holds words, lists of different lengths, or tensors
        whose gradients would be lost; `name` is its name in errors.
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
    """Return arrays of real numbers, of any library, unchanged, and other numbers as an array."""
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
    """Return real numbers broadcast to a shape; finite ones, and 0 where `keep` is false."""
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
    """Return an `array` broadcast to a `shape`, in C order.

    Raises
    ------
    ValueError
        If it does not broadcast; `name` is its name in errors.
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


def copied(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of an array.

    Entries that the array repeats, because it was broadcast, are stored once; the copy is then
    read-only.
    """
    once = stored(array).copy()
    return once if once.shape == array.shape else np.broadcast_to(once, array.shape)


def stored(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view of the entries of an array without those that it repeats by broadcasting."""
    axes = zip(array.strides, array.shape, strict=True)
    return array[tuple(slice(1 if stride == 0 and n > 1 else None) for stride, n in axes)]


def whole_numbers(name: str, value: Any) -> npt.NDArray[Any]:
    """Return a `value` of whole numbers for counts; numbers beyond 2^62 become 2^62.

    Raises
    ------
    TypeError
        If they are words, truth values or complex numbers; `name` is their name in errors.
    ValueError
        If a number is not finite. The caller must reject fractions.
    """
    array = _array(name, value)
    _check_integral(name, value, array)
    if array.dtype.kind == "O":  # beyond any dtype
        clipped = [max(-MAX_COUNT, min(number, MAX_COUNT)) for number in array.flat]
        return np.array(clipped, dtype=np.int64).reshape(array.shape)
    most = MAX_COUNT if array.dtype.kind == "f" else min(MAX_COUNT, np.iinfo(array.dtype).max)
    counts: npt.NDArray[Any] = np.minimum(array, array.dtype.type(most))
    return counts if array.dtype.kind == "f" else counts.astype(np.int64)


def integer_array(name: str, value: npt.ArrayLike) -> IntArray:
    """Return exact whole numbers, of either sign, as int64; an empty array becomes flat."""
    array = _array(name, value)
    if not array.size:
        return np.empty(0, dtype=np.int64)
    _check_integral(name, value, array)
    exact = np.atleast_1d(array.astype(np.float64) if array.dtype.kind == "f" else array)
    fits = (exact >= -(2**63)) & (exact < 2**63)
    if array.dtype.kind == "f":
        fits &= exact == np.rint(exact)
    if not fits.all():
        wrong = exact[~fits][0]
        raise ValueError(f"{name} holds {wrong}; expected whole numbers that fit in int64.")
    return np.array(array, dtype=np.int64, order="C")


def booleans(name: str, mask: Any, of: str) -> npt.NDArray[np.bool_]:
    """Return a mask as an array of booleans; numbers are not accepted.

    Parameters
    ----------
    name, mask
        The mask, and its name in errors.
    of
        What is true, in errors, such as "a variable takes part".

    Raises
    ------
    TypeError
        If it does not hold booleans.
    """
    array = _array(name, mask)
    if array.dtype != np.bool_:
        raise TypeError(
            f"{name} {_seen(mask, array)}; expected booleans, true where {of}. Use mask != 0 for "
            "ones and zeros."
        )
    return array


def truth_values(name: str, value: Any) -> npt.NDArray[np.bool_]:
    """Return a `value` of truth values as booleans; zeros and ones are accepted, words are not.

    Raises
    ------
    TypeError
        If they are not truth values; `name` is their name in errors.
    """
    if isinstance(value, bool):
        return np.array(value)
    array = _array(name, value)
    if array.dtype.kind not in "iub" or ((array != 0) & (array != 1)).any():
        raise TypeError(f"{name}: got {value!r}; expected True or False.")
    return array.astype(np.bool_)


# -------------------------------------------------------------------- single numbers


def checked_flag(name: str, value: Any) -> bool:
    """Return a `value` that is True, False, 0 or 1, or an array without axes of one of these.

    Raises
    ------
    TypeError
        If it is not a truth value, or is an array with axes; `name` is its name in errors.
    """
    if isinstance(value, bool):
        return value
    array = truth_values(name, value)
    if array.ndim:
        raise TypeError(f"{name}: got an array of shape {array.shape}; expected one True or False.")
    return bool(array)


def checked_count(name: str, value: Any, otherwise: str = "", least: int = 1) -> int:
    """Return a `value` that is an integer of at least `least`, or an array of one, as an integer.

    Parameters
    ----------
    name, value
        The value, and its name in errors.
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
    """Return a `value` that is an accepted real number, or an array of one, as a float.

    Parameters
    ----------
    name, value
        The value, and its name in errors.
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
