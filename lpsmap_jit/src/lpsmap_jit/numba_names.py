"""All undocumented and extension names of numba and llvmlite.

Any release may change them, so the supported releases are limited to tested ones. The assumptions
of the modules that import this one are tested in ``tests/jit/test_numba.py``, one test each. This
module must be imported only when kernels are compiled, since numba is optional.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Any

TRIED = "0.61 to 0.68"
"""Tested releases of numba, as in ``pyproject.toml``."""


def _find(module: str, name: str | None = None) -> Any:
    """Return a module, or a name in it; numba has no type annotations."""
    try:
        found = import_module(module)
        return found if name is None else getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"lpsmap: got numba {version('numba')}, which has no {name or 'module'} in {module}; "
            f'expected a release from {TRIED}. Install one, as by pip install "numba<0.69".'
        ) from error


# compilation and its results
Compiler = _find("numba.core.compiler", "Compiler")
CompileResult = _find("numba.core.compiler", "CompileResult")
compile_result = _find("numba.core.compiler", "compile_result")
CodeLibrary = _find("numba.core.codegen", "JITCodeLibrary")
CPUDispatcher = _find("numba.core.registry", "CPUDispatcher")
NumbaError = _find("numba.core.errors", "NumbaError")

# caching
CacheFormat = _find("numba.core.caching", "CompileResultCacheImpl")
CacheLocator = _find("numba.core.caching", "_CacheLocator")
dumps = _find("numba.core.serialize", "dumps")

# extension
types = _find("numba.core.types")
cgutils = _find("numba.core.cgutils")
extending = _find("numba.extending")
Intrinsic = _find("numba.core.extending", "_Intrinsic")
templates = _find("numba.core.typing.templates")
imputils = _find("numba.core.imputils")
from_dtype = _find("numba.np.numpy_support", "from_dtype")

# intermediate code
ir = _find("llvmlite.ir")
llvm = _find("llvmlite.binding")
add_symbol = _find("llvmlite.binding", "add_symbol")
