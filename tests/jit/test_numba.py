"""What is taken for granted of numba beyond its documented API: after a release, what broke.

Each check says what is assumed, and by which module of ``lpsmap_jit``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lpsmap_core
from lpsmap_core import kernel, leaf

pytestmark = pytest.mark.compiled

ASSUMPTIONS: dict[str, Callable[[], object]] = {}


def assumed(words: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def note(check: Callable[[], object]) -> Callable[[], object]:
        ASSUMPTIONS[words] = check
        return check

    return note


def twice(x: float) -> float:
    return 2.0 * x


def total(x: Any) -> float:
    result = 0.0
    for number in x[1:]:
        result += number
    return result


def of_floats() -> Any:
    import numba

    return numba.types.Array(numba.types.float64, 1, "C")


def compiled(**options: Any) -> Any:
    """Return a dispatcher of `total` that is compiled for floats."""
    import numba

    dispatcher = numba.njit(nogil=True, **options)(total)
    dispatcher.compile((of_floats(),))
    return dispatcher


# -------------------------------------------------------------------- what is assumed


@assumed("compile.py: with the option _nrt off, compiled code counts no references")
def _() -> None:
    (counts,) = compiled().inspect_llvm().values()
    (counts_not,) = compiled(_nrt=False).inspect_llvm().values()
    call = r"call void @NRT_(in|de)cref"
    assert re.search(call, counts)
    assert not re.search(call, counts_not)


@assumed("compile.py: with the option no_cfunc_wrapper, no wrapper for C is made")
def _() -> None:
    assert "define" in "".join(compiled(no_cfunc_wrapper=True).inspect_llvm().values())
    assert not any("cfunc" in x for x in compiled(no_cfunc_wrapper=True).inspect_llvm().values())
    assert any("cfunc" in x for x in compiled().inspect_llvm().values())


@assumed("compile.py: a dispatcher may be given a class of ours, and an instance's own compile")
def _() -> None:
    from lpsmap_jit.numba_names import CPUDispatcher

    class Ours(CPUDispatcher):  # type: ignore[misc]
        def __call__(self, *arguments: Any) -> Any:
            return "ours", CPUDispatcher.__call__(self, *arguments)

    import numba

    dispatcher, asked = numba.njit(twice), []
    assert type(dispatcher) is CPUDispatcher
    dispatcher.__class__, compile_or_load = Ours, dispatcher.compile

    def compile_for(signature: Any) -> Any:
        asked.append(signature)
        return compile_or_load(signature)

    dispatcher.compile = compile_for
    assert dispatcher(1.5) == dispatcher(1.5) == ("ours", 3.0)
    assert len(asked) == 1


@assumed("compile.py: what is compiled says what it calls, of which types")
def _() -> None:
    (made,) = compiled().overloads.values()
    calls = made.type_annotation.calltypes
    assert any(getattr(call, "op", None) == "getiter" for call in calls)
    assert made.signature.return_type.name == "float64"


@assumed("cache.py: a dispatcher asks its _cache for a signature, and hands it what it compiles")
def _() -> None:
    asked: list[tuple[str, Any]] = []

    class Cache:
        def load_overload(self, signature: Any, target: Any) -> None:
            asked.append(("load", signature))
            assert target.codegen().magic_tuple()

        def save_overload(self, signature: Any, made: Any) -> None:
            asked.append(("save", signature))

    import numba

    dispatcher = numba.njit(twice)
    dispatcher._cache = Cache()
    assert dispatcher(2.0) == 4.0
    assert asked == [("load", (numba.float64,)), ("save", (numba.float64,))]


@assumed("cache.py: numba's format finds a folder for a source, and results reduce and rebuild")
def _() -> None:
    import numba

    from lpsmap_jit.numba_names import CacheFormat, CompileResult, dumps

    found = CacheFormat(twice)
    assert Path(found.locator.get_cache_path()).is_absolute()
    dispatcher = numba.njit(twice)
    dispatcher(1.0)
    (made,) = dispatcher.overloads.values()
    assert found.check_cachable(made)
    assert dumps(made._reduce())
    again = CompileResult._rebuild(dispatcher.targetctx, *made._reduce())
    assert again.signature == made.signature


@assumed("baselines.py: a target is a triple, a processor and features, some of which are on")
def _() -> None:
    triple, processor, features = compiled().targetctx.codegen().magic_tuple()
    assert "-" in triple
    assert processor
    assert all(feature[0] in "+-" for feature in features.split(",") if feature)


@assumed("linkable_kernels.py: a library hands on its module, and need not be made machine code of")
def _() -> None:
    from lpsmap_jit.numba_names import CodeLibrary, llvm

    (made,) = compiled().overloads.values()
    assert isinstance(made.library, CodeLibrary)
    names = ("_optimize_final_module", "_finalize_final_module", "_get_module_for_linking")
    needed = (*names, "_finalize_dynamic_globals", "_ensure_finalized")
    assert [name for name in needed if not hasattr(CodeLibrary, name)] == []
    code = made.library._final_module
    assert isinstance(code, llvm.ModuleRef)
    again = llvm.parse_bitcode(code.as_bitcode())
    assert [f.name for f in again.functions] == [f.name for f in code.functions]


@assumed("linkable_kernels.py: a kernel takes in the part of another, whose constants come with it")
def _() -> None:
    @leaf
    def third(x):
        return x / 3.0

    @kernel
    def sixth(x):
        return 0.5 * third(x)

    assert sixth(6.0) == 1.0
    assert not third.overloads


@assumed("by_address.py: arrays have these fields, strides in bytes")
def _() -> None:
    import numba

    (made,) = compiled().overloads.values()
    model = made.target_context.data_model_manager.lookup(of_floats())
    assert model._fields == (
        *("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides"),
    )
    read = numba.njit(lambda x: x.strides[0])
    assert read(np.zeros(3)) == 8


@assumed("by_address.py: a named tuple's type knows its class and the types of its fields")
def _() -> None:
    from lpsmap_jit.numba_names import types

    class Pair(NamedTuple):
        x: float
        n: int

    kind = types.BaseTuple.from_types([types.float64, types.int64], Pair)
    assert (kind.instance_class, kind.fields) == (Pair, Pair._fields)
    assert tuple(kind.types) == (types.float64, types.int64)


@assumed("by_address.py: an intrinsic function may be given a class of ours")
def _() -> None:
    from lpsmap_jit.numba_names import Intrinsic, extending

    def same(typing_context: Any, value: Any) -> Any:
        return value(value), lambda context, builder, signature, values: values[0]

    found = extending.intrinsic(same)
    assert type(found) is Intrinsic


@assumed("native.py: a kernel called by its address takes its arguments after where it returns")
def _() -> None:
    import numba

    (made,) = compiled().overloads.values()
    call = made.target_context.call_conv
    kind = call.get_function_type(numba.types.none, [numba.float64])
    assert [str(argument) for argument in kind.args] == [
        "i8**",
        "{i8*, i32, i8*, i8*, i32}**",
        "double",
    ]
    assert callable(call.return_status_propagate)


@assumed("interrupts.py: code finds what was added as a symbol")
def _() -> None:
    from lpsmap_jit.numba_names import add_symbol, llvm

    add_symbol("lpsmap_test", 8)
    assert llvm.address_of_symbol("lpsmap_test") == 8


# -------------------------------------------------------------------- tests


@pytest.mark.parametrize("words", ASSUMPTIONS)
def test_numba_is_as_assumed(words: str) -> None:
    ASSUMPTIONS[words]()


def test_a_name_that_is_gone_is_an_error_in_words() -> None:
    from lpsmap_jit import numba_names

    for module, name in (("numba.core.compiler", "Gone"), ("numba.gone", None)):
        with pytest.raises(RuntimeError, match=r"got numba .* expected a release from 0\.61 to"):
            numba_names._find(module, name)


def test_releases_are_limited_to_those_that_were_tried() -> None:
    import numba

    from lpsmap_jit import numba_names

    (wanted,) = (x for x in requires("lpsmap-jit") or () if x.startswith("numba"))
    least, most = re.findall(r"[<>]=?0\.(\d+)", wanted.replace(",", " "))
    assert sorted(map(int, (least, most))) == [61, 69]
    assert numba_names.TRIED == "0.61 to 0.68"
    assert 61 <= int(numba.__version__.split(".")[1]) < 69


def test_names_of_numba_are_in_one_module() -> None:
    """Documented ones aside: ``numba.njit``, its ``config`` and its version."""
    folder = Path(lpsmap_core.__file__).parents[2]
    private = re.compile(r"numba\.(core|np|misc|extending)\b|import.*llvmlite|llvmlite\.")
    found = [
        path.name
        for package in folder.parent.glob("lpsmap_*")
        for path in (package / "src").rglob("*.py")
        if private.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["numba_names.py"]
