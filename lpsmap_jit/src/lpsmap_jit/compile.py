"""The one place that decides how kernels are compiled.

Kernels are plain Python functions on flat arrays. With numba they are compiled on first use,
release the interpreter lock and are cached on disk; without it, or with ``LPSMAP_DISABLE_JIT=1`` or
numba's own ``NUMBA_DISABLE_JIT=1``, the same source runs undecorated. So it does in the first small
solves, see `lpsmap_jit.tiers`.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from lpsmap_jit.cache import CompilationNotice, keep_on_disk, locked
from lpsmap_jit.deadlines import compiling
from lpsmap_jit.deferral import Deferred
from lpsmap_jit.tiers import of_thread

numba: Any
try:
    import numba

    from lpsmap_jit import linkable_kernels
except ImportError:  # a Python newer than numba's wheels
    numba = None

__all__ = [
    "COMPILED",
    "CompilationNotice",
    "general_position",
    "interpreted_by",
    "kernel",
    "leaf",
    "summing_leaf",
]

COMPILED: bool = (
    numba is not None
    and not numba.config.DISABLE_JIT
    and os.environ.get("LPSMAP_DISABLE_JIT", "0") in ("", "0")
)
"""Whether kernels can be compiled in this process."""

if not COMPILED:
    type(of_thread).interprets = True

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function of NumPy arrays and numbers, lock-free at run time and cached on disk.

    Parameters
    ----------
    function
        A function in numba's nopython subset. It must not print, allocate per factor where that is
        avoidable, or rely on relaxed floating-point rules: ``fastmath`` stays off but for
        `summing_leaf`.

    Returns
    -------
    function
        The compiled dispatcher, or ``function`` itself where `COMPILED` is false.

    See Also
    --------
    leaf : for what allocates nothing.
    """
    return _compiled(function, counts=True)


def leaf(function: Function) -> Function:
    """Compile a kernel that allocates nothing, and so counts no references to memory.

    Counting costs an atomic operation for every array that a kernel names, slices or unpacks: up to
    a third of the time of short ones. Without it, memory is held by whoever called.

    Parameters
    ----------
    function
        As for `kernel`. It makes no array but views, and calls other leaves, or kernels that return
        numbers. It alone may take addresses of arrays, and hand them to kernels. It returns
        no addresses, and arrays to other leaves only.

    Returns
    -------
    function
        As of `kernel`.

    Raises
    ------
    TypeError
        While compiling, if it makes an array, or calls a kernel that returns one and is no leaf,
        whose memory would never be freed; or if it returns an address.
    """
    return _compiled(function, counts=False)


def summing_leaf(function: Function) -> Function:
    """Compile a leaf whose sums are taken in any order, which vector instructions need.

    For inner products, which take a quarter of the time so, and for nothing else: the exception to
    `kernel`'s rule. NaN and infinities stay what they are.

    Parameters
    ----------
    function
        As for `leaf`. It calls no other kernels.

    Returns
    -------
    function
        As of `kernel`.
    """
    return _compiled(function, counts=False, fastmath={"reassoc", "contract"})


def interpreted_by(python: Callable[..., Any]) -> Callable[[Function], Function]:
    """Let a kernel that works on addresses be another function where it is interpreted.

    Parameters
    ----------
    python
        A function of the same arguments. Where kernels are interpreted, solvers and records come as
        the objects that they are, instead of their addresses.

    Returns
    -------
    function
        A decorator, to stand above `kernel` or `leaf`.
    """

    def choose(compiled: Any) -> Any:
        if not COMPILED:
            return functools.update_wrapper(python, compiled)
        compiled.interpreted = python
        return compiled

    return choose


def _compiled(
    function: Function, counts: bool, fastmath: set[str] | Literal[False] = False
) -> Function:
    if not COMPILED:
        return function
    # said both ways: what is not said, numba takes from the kernel that is being compiled
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
    keep_on_disk(dispatcher)
    keep_on_disk(part, is_part=True)
    linkable_kernels.offer(part, dispatcher)
    _watch(dispatcher, counts)
    _watch(part, counts)
    return dispatcher  # type: ignore[no-any-return]


if COMPILED:
    from lpsmap_jit.numba_names import CPUDispatcher, NumbaError

    _call: Any = CPUDispatcher.__call__

    class Kernel(CPUDispatcher):  # type: ignore[misc]
        """A compiled function that Python calls interpreted where its thread does so."""

        interpreted: Callable[..., Any]

        def __call__(self, *args: Any) -> Any:
            if of_thread.interprets:
                of_thread.go_on()
                return self.interpreted(*args)
            return _call(self, *args)

        def is_compiled(self) -> bool:
            """Return whether this process has compiled it, or an earlier one did."""
            return bool(self.overloads) or self._cache.has_some()


def _watch(dispatcher: Any, counts: bool) -> None:
    """Let a dispatcher compile undisturbed by other processes and signals, and check leaves."""
    compile_or_load, name = dispatcher.compile, dispatcher.py_func.__qualname__

    def locked_compile(signature: Any) -> Any:
        with _one_thread, compiling(), locked(dispatcher):
            try:
                with Deferred():
                    return compile_or_load(signature)
            except NumbaError as error:
                if counts and TAKES_ADDRESS in str(error):
                    raise _address_taken(name) from error
                if not counts and any(words in str(error) for words in _MADE_AN_ARRAY):
                    raise TypeError(
                        f"leaf {name} makes an array, by a NumPy function or by "
                        "assigning to a slice from another; expected views only. Make it a kernel."
                    ) from error
                raise

    def add_checked(compiled: Any) -> None:
        if _holds(_is_address, compiled.signature.return_type):
            raise TypeError(
                f"{name} returns an address, which is valid only until it returns; expected arrays "
                "or numbers. Take the address in the leaf that uses it."
            )
        (_check_kernel if counts else _check_leaf)(name, compiled.type_annotation)
        add(compiled)  # before which it is not kept on disk

    add = dispatcher.add_overload
    dispatcher.compile, dispatcher.add_overload = locked_compile, add_checked


_one_thread = threading.RLock()  # taken first, so that threads cannot cross numba's lock and ours
_MADE_AN_ARRAY = ("NRT required", "Only accept returning of array passed into the function")
"""What numba says of it."""

TAKES_ADDRESS = "takes an address, which keeps no array alive"
"""What is said of kernels that do so."""


def _address_taken(name: str) -> TypeError:
    return TypeError(
        f"kernel {name} {TAKES_ADDRESS}: its arrays may be freed while the address is in use; "
        "expected a leaf, whose arrays its callers hold. Make the arrays in a kernel, and hand "
        "them to a leaf that takes the address."
    )


def _check_kernel(name: str, annotation: Any) -> None:
    """Raise if a kernel takes an array's address, or an array that a leaf did not count."""
    typemap = getattr(annotation, "typemap", {})
    if any(isinstance(kind, numba.types.ArrayCTypes) for kind in typemap.values()):
        raise _address_taken(name)
    for callee, kind in _calls(annotation):
        if not callee.targetoptions.get("_nrt", True) and _holds(_is_array, kind):
            raise TypeError(
                f"kernel {name} calls leaf {callee.py_func.__qualname__}, which returns an array "
                "without a reference to its memory; expected numbers. Make that a kernel."
            )


def _check_leaf(name: str, annotation: Any) -> None:
    """Raise if a leaf calls a kernel that hands it memory to free; loaded ones were checked."""
    for callee, kind in _calls(annotation):
        if callee.targetoptions.get("_nrt", True) and _holds(_is_array, kind):
            raise TypeError(
                f"leaf {name} calls {callee.py_func.__qualname__}, which returns arrays that it "
                "may have allocated; expected leaves, or kernels that return numbers. Make it a "
                "leaf, too, or the caller a kernel."
            )


def _calls(annotation: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the compiled functions that a function calls, and what types they return."""
    for call, signature in getattr(annotation, "calltypes", {}).items():
        if getattr(call, "op", None) == "call":
            callee = getattr(annotation.typemap[call.func.name], "dispatcher", None)
            if callee is not None:
                yield callee, signature.return_type


def _holds(is_one: Callable[[Any], bool], kind: Any) -> bool:
    """Return whether a type is of some kind, or a tuple that has such a field."""
    if isinstance(kind, numba.types.BaseTuple):
        return any(_holds(is_one, field) for field in kind.types)
    return is_one(kind)


def _is_array(kind: Any) -> bool:
    return isinstance(kind, numba.types.Array)


def _is_address(kind: Any) -> bool:
    return getattr(kind, "is_address", False)


@leaf
def general_position(i: int, stream: int) -> float:
    """Return the i-th of some fixed numbers in [-1, 1] between which no simple relation holds.

    Every `stream` has numbers of its own, and no two that are equal: the steps are bijections of
    the integers below 2^31 (sums, products with odd numbers, shifts, as in hash functions).
    """
    mask = (1 << 31) - 1
    x = (0x5851F42D * (i + 1) + 0x14057B7F * (stream + 1)) & mask
    x ^= x >> 16
    x = (x * 0x7FEB352D) & mask
    x ^= x >> 15
    x = (x * 0x68E31DA5) & mask
    x ^= x >> 16
    return x * (2.0 / mask) - 1.0
