"""What a solution is not: an object that can be pickled, and a tuple."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Refusals"]


class Refusals:
    """The operations that a solution refuses, with what to write instead."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Solution holds addresses of the process that solved it, and cannot be pickled or "
            "copied; expected its arrays (values, additionals, status), or the graph. Solve the "
            "graph again after loading it."
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a Solution is no tuple; expected solution.objective, solution.values and "
            "solution.status. With calls of AD3, use PFactorGraph.solve_lp_map_ad3()."
        )
