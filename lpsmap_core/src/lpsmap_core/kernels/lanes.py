"""Four numbers at once, in vector instructions, for rows that are too short for the compiler's own.

A loop that the compiler makes vectors of begins with tests and ends with what is left over: of ten
numbers or fewer, these take more time than they save. Rows that end in zeros need neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.kernels.compile import COMPILED, interpreted_by, leaf

__all__ = ["LANES", "subtract_lanes"]

LANES = 4
"""Numbers at once."""

_subtract: Any

if COMPILED:
    from lpsmap_core.kernels.numba_names import intrinsic, ir, types

    _VECTOR = ir.VectorType(ir.DoubleType(), LANES)
    _FIRST = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

    @intrinsic  # type: ignore[untyped-decorator]
    def _subtract(typing_context: Any, x: Any, target: Any, source: Any, share: Any) -> Any:
        """Do what `subtract_lanes` does."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, values[0])
            there, here = (
                builder.bitcast(builder.gep(array.data, [at]), _VECTOR.as_pointer())
                for at in values[1:3]
            )
            nothing = ir.Constant(_VECTOR, ir.Undefined)
            share = builder.insert_element(nothing, values[3], ir.IntType(32)(0))
            shares = builder.shuffle_vector(share, nothing, _FIRST)
            part = builder.fmul(shares, builder.load(here, align=8))
            builder.store(builder.fsub(builder.load(there, align=8), part), there, align=8)
            return context.get_dummy_value()

        return types.void(x, types.uint64, types.uint64, types.float64), generate

else:
    _subtract = None


def _subtract_in_python(x: FloatArray, target: int, source: int, share: float) -> None:
    x[target : target + LANES] -= share * x[source : source + LANES]


@interpreted_by(_subtract_in_python)
@leaf
def subtract_lanes(x: FloatArray, target: np.uint64, source: np.uint64, share: float) -> None:
    """Subtract a share of `LANES` numbers from others, which are not among them.

    Nothing looks whether the array has as many: its rows end in room for them.
    """
    _subtract(x, target, source, share)
