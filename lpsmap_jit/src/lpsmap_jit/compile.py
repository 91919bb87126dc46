"""The decorators that compile kernels.

Kernels are plain Python functions on flat arrays. With numba they are compiled on first use,
release the interpreter lock and are cached on disk; without it, or with ``LPSMAP_DISABLE_JIT=1`` or
numba's own ``NUMBA_DISABLE_JIT=1``, the same source runs undecorated. The first small calls run it
in this way, too, see `lpsmap_jit.tiers`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from lpsmap_jit.cache import KernelCache, PartCache, locked
from lpsmap_jit.cached_property import cached_property
from lpsmap_jit.deadlines import compiling
from lpsmap_jit.deferral import deferred
from lpsmap_jit.tiers import start_with

numba: Any
try:
    import numba

    from lpsmap_jit import linkable_kernels
except ImportError:  # numba does not support this Python yet
    numba = None


COMPILED: bool = (
    numba is not None
    and not numba.config.DISABLE_JIT
    and os.environ.get("LPSMAP_DISABLE_JIT", "0") in ("", "0")
)
"""Whether kernels can be compiled in this process."""

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function of NumPy arrays and numbers, without the GIL and cached on disk.

    Parameters
    ----------
    function
        A function in numba's nopython subset. It must not print, allocate per factor if avoidable,
        or rely on relaxed floating-point rules: ``fastmath`` is off except in `summing_leaf`.

    Returns
    -------
    callable
        The compiled dispatcher, or ``function`` itself if `COMPILED` is false.

    See Also
    --------
    leaf : for functions that allocate nothing.
    """
    return _compiled(function, counts=True)


def leaf(function: Function) -> Function:
    """Compile a kernel that allocates nothing and counts no references.

    Reference counting costs an atomic operation for every array that a kernel names, slices or
    unpacks: up to a third of the time of short kernels. Without it, the callers hold the memory.

    Parameters
    ----------
    function
        As in `kernel`. It creates only views of arrays, and calls leaves, or kernels that return
        numbers. Only leaves may take addresses of arrays and pass them to kernels. It must not
        return addresses, and may return arrays only to other leaves.

    Returns
    -------
    callable
        As in `kernel`.

    Raises
    ------
    TypeError
        During compilation, if it allocates an array, or calls a kernel other than a leaf that
        returns one, whose memory would never be freed; or if it returns an address.
    """
    return _compiled(function, counts=False)


def summing_leaf(function: Function) -> Function:
    """Compile a leaf that may reorder sums, which enables vector instructions.

    This is only for inner products, which take a quarter of the time: the exception to the rule of
    `kernel`. NaN and infinities are preserved.

    Parameters
    ----------
    function
        As in `leaf`. It must not call other kernels.

    Returns
    -------
    callable
        As in `kernel`.
    """
    return _compiled(function, counts=False, fastmath={"reassoc", "contract"})


def _compiled(
    function: Function, counts: bool, fastmath: set[str] | Literal[False] = False
) -> Function:
    if not COMPILED:
        return function
    # always explicit: numba inherits missing options from the calling kernel
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": fastmath,
        "_nrt": counts,
        "no_cfunc_wrapper": True,
    }
    dispatcher: Any = numba.njit(**options)(function)
    dispatcher.__class__, dispatcher.interpreted = Kernel, function
    part: Any = numba.njit(**options, pipeline_class=linkable_kernels.ForCallers)(function)
    source: Any = function
    dispatcher._cache, part._cache = KernelCache(source), PartCache(source)
    linkable_kernels.offer(part, dispatcher)
    _watch(dispatcher, counts)
    _watch(part, counts)
    return dispatcher  # type: ignore[no-any-return]


if COMPILED:
    from lpsmap_jit.numba_names import CPUDispatcher, NumbaError

    class Kernel(CPUDispatcher):  # type: ignore[misc]
        """A function that is compiled for each type of its arguments."""

        interpreted: Callable[..., Any]
        """The function in Python."""

        @cached_property
        def _was_cached(self) -> bool:
            return bool(self._cache.has_some(self.targetctx))

        def is_compiled(self) -> bool:
            """Return whether it is compiled in this process, or was cached on disk."""
            return bool(self.overloads) or self._was_cached

    start_with(Kernel)
else:
    start_with(None)


def _watch(dispatcher: Any, counts: bool) -> None:
    """Protect compilation from other processes and signals, and validate leaves."""
    compile_or_load, name = dispatcher.compile, dispatcher.py_func.__qualname__

    def locked_compile(signature: Any) -> Any:
        with compiling(), locked(dispatcher):
            try:
                with deferred():
                    return compile_or_load(signature)
            except NumbaError as error:
                if counts and TAKES_ADDRESS in str(error):
                    raise _address_taken(name) from error
                if not counts and any(words in str(error) for words in _MADE_AN_ARRAY):
                    raise TypeError(
                        f"leaf {name} allocates an array, by a NumPy function or by assigning a "
                        "slice to another; expected views only. Make it a kernel."
                    ) from error
                raise

    def add_checked(compiled: Any) -> None:
        if _holds(_is_address, compiled.signature.return_type):
            raise TypeError(
                f"{name} returns an address, which is valid only until it returns; expected arrays "
                "or numbers. Take the address in the leaf that uses it."
            )
        _check_calls(name, compiled.type_annotation, counts)
        add(compiled)  # it is cached on disk only afterwards

    add = dispatcher.add_overload
    dispatcher.compile, dispatcher.add_overload = locked_compile, add_checked


_MADE_AN_ARRAY = ("NRT required", "Only accept returning of array passed into the function")
"""Messages of numba about allocation."""

TAKES_ADDRESS = "takes an address, which keeps no array alive"
"""The message about kernels that take addresses."""


def _address_taken(name: str) -> TypeError:
    return TypeError(
        f"kernel {name} {TAKES_ADDRESS}: its arrays may be freed while the address is in use; "
        "expected a leaf, whose arrays are held by its callers. Create the arrays in a kernel, and "
        "pass them to a leaf that takes the address."
    )


def _check_calls(name: str, annotation: Any, counts: bool) -> None:
    """Raise if a kernel takes an address, or if an array passes between a kernel and a leaf."""
    typemap = getattr(annotation, "typemap", {})
    if counts and any(isinstance(kind, numba.types.ArrayCTypes) for kind in typemap.values()):
        raise _address_taken(name)
    for callee, kind in _calls(annotation):
        if callee.targetoptions.get("_nrt", True) != counts and _holds(_is_array, kind):
            other = callee.py_func.__qualname__
            raise TypeError(
                f"kernel {name} calls leaf {other}, which returns an array without a reference to "
                "its memory; expected numbers. Make that a kernel."
                if counts
                else f"leaf {name} calls {other}, which returns arrays that it may have allocated; "
                "expected leaves, or kernels that return numbers. Make it a leaf as well, or the "
                "caller a kernel."
            )


def _calls(annotation: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the compiled functions that a function calls, and their return types."""
    for call, signature in getattr(annotation, "calltypes", {}).items():
        if getattr(call, "op", None) == "call":
            callee = getattr(annotation.typemap[call.func.name], "dispatcher", None)
            if callee is not None:
                yield callee, signature.return_type


def _holds(is_one: Callable[[Any], bool], kind: Any) -> bool:
    """Return whether a type satisfies a predicate, or is a tuple with such a field."""
    if isinstance(kind, numba.types.BaseTuple):
        return any(_holds(is_one, field) for field in kind.types)
    return is_one(kind)


def _is_array(kind: Any) -> bool:
    return isinstance(kind, numba.types.Array)


def _is_address(kind: Any) -> bool:
    return getattr(kind, "is_address", False)


@leaf
def general_position(i: int, stream: int) -> float:
    """Return the i-th of fixed pseudo-random numbers in [-1, 1].

    The numbers of each `stream` are distinct: the steps are bijections of the integers below 2^31
    (sums, products with odd numbers, and shifts, as in hash functions).
    """
    mask = (1 << 31) - 1
    x = (0x5851F42D * (i + 1) + 0x14057B7F * (stream + 1)) & mask
    x ^= x >> 16
    x = (x * 0x7FEB352D) & mask
    x ^= x >> 15
    x = (x * 0x68E31DA5) & mask
    x ^= x >> 16
    return x * (2.0 / mask) - 1.0
