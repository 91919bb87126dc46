"""What users pass as numbers and as switches, read or refused in words."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import FloatArray, IntArray

__all__ = [
    "MOST",
    "booleans",
    "broadcast",
    "check_readable",
    "checked_count",
    "checked_flag",
    "checked_number",
    "checked_shape",
    "count_or_flag",
    "finite_numbers",
    "given_scores",
    "integer_array",
    "kind_of",
    "n_additionals",
    "real_numbers",
    "refuse_beyond_memory",
    "truth_values",
    "whole_numbers",
]

MOST = 2**62
"""More than anything that can be counted in memory, and exact as an integer and as a float."""

MOST_COUNTED = 2**63 - 1
"""What kernels can count to."""


def check_readable(name: str, value: Any) -> None:
    """Refuse arrays, of whatever library, without plain numbers in every entry.

    Parameters
    ----------
    name
        What the message calls them, with the factor type or the method in front.
    value
        Anything; what is no array passes.

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
            "such as scores.filled(-np.inf), which forbids what is masked."
        )
    if getattr(value, "is_meta", False):
        raise TypeError(
            f"{name}: got a meta tensor, which has no numbers; expected a tensor with data. Move "
            "the model to a device that has it first."
        )
    if getattr(value, "is_quantized", False) or getattr(value, "is_nested", False):
        kind = "quantized" if value.is_quantized else "nested"
        raise TypeError(
            f"{name}: got a {kind} tensor; expected a plain one. Use dequantize(), or "
            "to_padded_tensor() and lengths for rows of different lengths."
        )
    layout = getattr(value, "layout", None)
    if layout is not None and str(layout) != "torch.strided":
        raise TypeError(
            f"{name}: got a tensor of layout {layout}; expected a dense one. Use to_dense()."
        )
    if "complex" in str(getattr(value, "dtype", "")):
        raise TypeError(
            f"{name} has dtype {value.dtype}; expected real numbers. Take their real part or "
            "their absolute value."
        )


def kind_of(value: Any) -> str:
    """Return what an error calls a `value` of a type that it should not have: "an int"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' or name == 'ndarray' else 'a'} {name}"


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; one number is that of one axis.

    Parameters
    ----------
    name
        What an error calls it.
    shape
        Sizes, or one size.

    Raises
    ------
    TypeError
        If it does not consist of integers.
    ValueError
        If one is negative.
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
        What an error calls them.
    value
        Numbers of any shape.

    Raises
    ------
    TypeError
        If they are not real numbers, as `check_readable` has it or because they are words, lists of
        different lengths, or tensors whose gradients would be lost.
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


def given_scores(name: str, value: Any) -> Any:
    """Return arrays of scores as they are, of any library; what else holds numbers as an array.

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
    """Return how many additionals each factor has, once their leading axes are the batch."""
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
    """Return finite numbers broadcast to a shape; 0 where they are not kept.

    Raises
    ------
    TypeError
        If they are not real numbers.
    ValueError
        If they do not broadcast, or one that is kept is not finite.
    """
    if isinstance(value, (int, float)) and -MOST < value < MOST:  # most parameters are one number
        return np.full(shape, float(value))
    read = real_numbers(name, value).astype(np.float64)
    numbers: FloatArray = broadcast(name, read, shape)
    if not np.isfinite(read).all():
        numbers = numbers if keep is None else np.where(keep, numbers, 0.0)
        if not np.isfinite(numbers).all():
            raise ValueError(f"{name} holds a value that is not finite; expected finite numbers.")
    return numbers


def broadcast(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an array broadcast to a shape, in C order.

    Parameters
    ----------
    name
        What an error calls it.
    array, shape
        The array, and the shape that it gets.

    Raises
    ------
    ValueError
        If it does not broadcast.
    """
    try:
        return np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {array.shape}; expected one that broadcasts to {shape}."
        ) from None


def whole_numbers(name: str, value: Any) -> npt.NDArray[Any]:
    """Return numbers that count something; those beyond 2^62 as 2^62.

    Parameters
    ----------
    name
        What an error calls them.
    value
        Whole numbers of any shape.

    Raises
    ------
    TypeError
        If they are not numbers: words, truth values, complex numbers.
    ValueError
        If one is not finite. Fractions are left to the caller, who can name their place.
    """
    array = _array(name, value)
    _check_integral(name, value, array)
    if array.dtype.kind == "O":
        inside = [max(-MOST, min(number, MOST)) for number in array.flat]  # beyond any dtype
        return np.array(inside, dtype=np.int64).reshape(array.shape)
    cut: npt.NDArray[Any] = np.minimum(array, array.dtype.type(min(MOST, _largest(array.dtype))))
    return cut if array.dtype.kind == "f" else cut.astype(np.int64)


def integer_array(name: str, value: npt.ArrayLike) -> IntArray:
    """Return whole numbers, of either sign, as an array of int64; no numbers as a flat one.

    Raises
    ------
    TypeError
        If they are no numbers.
    ValueError
        If one is a fraction, not finite, or beyond int64.
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
    """Return booleans as an array; numbers are none.

    Parameters
    ----------
    name
        What an error calls them.
    value
        Booleans of any shape.
    of
        What is true where they are, for the error.

    Raises
    ------
    TypeError
        If they are anything else.
    """
    array = _array(name, value)
    if array.dtype != np.bool_:
        raise TypeError(f"{name} {_seen(value, array)}; expected booleans, true where {of}.")
    return array


def truth_values(name: str, value: Any) -> npt.NDArray[np.bool_]:
    """Return truth values as an array of booleans; zeros and ones are such, words are not.

    Parameters
    ----------
    name
        What an error calls them.
    value
        Truth values of any shape.

    Raises
    ------
    TypeError
        If they are anything else.
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
        What an error calls it.
    value
        Anything; True, False, 0 and 1 pass, and arrays that hold one of these.

    Raises
    ------
    TypeError
        If it is none, or several.
    """
    if isinstance(value, bool):
        return value
    array = truth_values(name, value)
    if array.ndim:
        raise TypeError(f"{name}: got an array of shape {array.shape}; expected one True or False.")
    return bool(array)


def checked_count(name: str, given: Any, otherwise: str = "", least: int = 1) -> int:
    """Return one integer of at least `least`, as Python's own.

    Parameters
    ----------
    name
        What an error calls it.
    given
        Anything; integers pass, and arrays that hold one.
    otherwise
        What else the caller accepts, for the error, such as ``", or None"``.
    least
        The smallest integer that passes.

    Raises
    ------
    TypeError
        If it is none, or a truth value, which is more often a slip than a 1.
    ValueError
        If it is too small, or larger than a kernel can count.
    """
    expected = f"an integer of at least {least}{otherwise}"
    plain = _plain(given)
    whole: Any = None if isinstance(plain, bool) else plain
    try:
        found = operator.index(whole)
    except TypeError:
        raise TypeError(f"{name}: got {given!r}; expected {expected}.") from None
    if found < least:
        raise ValueError(f"{name}: got {found}; expected {expected}.")
    if found > MOST_COUNTED:
        raise ValueError(f"{name}: got {found}; expected {expected}, and less than 2**63.")
    return found


def refuse_beyond_memory(name: str, number: int, bytes_each: int) -> None:
    """Refuse a number of things that this machine has no memory for.

    Parameters
    ----------
    name
        What an error calls the number.
    number
        How many there are to be.
    bytes_each
        How much memory one of them takes.

    Raises
    ------
    ValueError
        If they take more than all of it.
    """
    memory = _memory()
    if number * bytes_each > memory:
        raise ValueError(
            f"{name}: got {number}, for which {number * bytes_each / 2**30:.3g} GiB of memory are "
            f"needed; expected at most {memory // bytes_each} on this machine."
        )


def _memory() -> int:
    """Return how many bytes of memory there are; where that is not known, a guess."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 35


def count_or_flag(name: str, given: Any) -> int:
    """Return one integer of at least 0, or a truth value as 0 or 1; else as `checked_count`."""
    plain = _plain(given)
    return checked_count(name, int(plain) if isinstance(plain, bool) else plain, least=0)


def checked_number(name: str, given: Any, expected: str, accepts: Callable[[float], bool]) -> float:
    """Return one real number that is accepted, as Python's own.

    Parameters
    ----------
    name
        What an error calls it.
    given
        Anything; real numbers pass, and arrays that hold one.
    expected
        What is accepted, for the error, such as ``"a positive number"``.
    accepts
        Returns whether a number is accepted.

    Raises
    ------
    TypeError
        If it is none, or a truth value.
    ValueError
        If it is not accepted.
    """
    plain = _plain(given)
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise TypeError(f"{name}: got {given!r}; expected {expected}.")
    try:
        found = float(plain)
    except OverflowError:
        found = np.nan
    if not accepts(found):
        raise ValueError(f"{name}: got {given}; expected {expected}.")
    return found


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return a readable value as an array of whatever dtype."""
    check_readable(name, value)
    if getattr(value, "requires_grad", False):
        raise TypeError(
            f"{name}: got a tensor that requires gradients, which would be lost here. Scores with "
            "gradients belong into a TorchFactorGraph (pip install lpsmap-torch); otherwise pass "
            "tensor.detach()."
        )
    try:
        return np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: got {kind_of(value)} that is no array of numbers ({error}). Pass a "
            "NumPy array; torch tensors of every dtype, and with gradients, are read by a "
            "TorchFactorGraph."
        ) from error


def _check_integral(name: str, value: Any, array: npt.NDArray[Any]) -> None:
    """Refuse what can hold no whole numbers; Python's integers may be larger than any dtype."""
    kind = array.dtype.kind
    if kind not in "fiu" and not (kind == "O" and all(type(x) is int for x in array.flat)):
        raise TypeError(f"{name} {_seen(value, array)}; expected whole numbers.")
    if kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} holds a value that is not finite; expected whole numbers.")


def _seen(value: Any, array: npt.NDArray[Any]) -> str:
    """Return what is wrong with a value, which is as an array of another dtype than it should."""
    return f"has dtype {array.dtype}" if hasattr(value, "dtype") else f"is {value!r:.60}"


def _plain(given: Any) -> Any:
    """Return a scalar of Python for one of NumPy's or an array or tensor that holds just one."""
    if type(given) in (bool, int, float):
        return given
    return given.item() if hasattr(given, "item") and np.ndim(given) == 0 else given


def _largest(dtype: np.dtype[Any]) -> int:
    return MOST if dtype.kind == "f" else int(np.iinfo(dtype).max)
