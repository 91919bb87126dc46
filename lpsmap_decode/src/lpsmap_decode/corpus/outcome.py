"""The outcome of one problem of many, in a form that can be sent between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lpsmap_core.api import FloatArray

Values = Mapping[int | str, FloatArray]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one problem.

    Attributes
    ----------
    index
        The problem's position among all.
    status
        A word for every part of its graph, which are its components and, last, its variables in no
        factor, if any. For a relaxation, the name of its `Status`; for an exact search,
        ``"PROVED"``, ``"FOUND"``, ``"NOT_FOUND"`` or ``"INFEASIBLE"``.
    score
        (n_parts,) objectives, or scores of the assignment. Their sum is the score of all values.
    bound
        (n_parts,) upper bounds on the score of any assignment after an exact search; else None.
    ok
        Whether every part is solved, or proved optimal by an exact search.
    seconds
        Duration of building and solving.
    extracted
        The result of `extract`, if given.
    error
        The exception that the problem raised, or None.
    traceback
        The traceback of the exception, as text.
    """

    index: int
    status: tuple[str, ...] = ()
    score: FloatArray = field(default_factory=lambda: np.empty(0))
    bound: FloatArray | None = None
    ok: bool = False
    seconds: float = 0.0
    extracted: Any = None
    error: BaseException | None = None
    traceback: str = ""
    solved_values: Values | None = field(default=None, repr=False)

    @property
    def values(self) -> Values:
        """The values of the variables, by name or by the number of their `variable_from`.

        Raises
        ------
        RuntimeError
            If the problem failed; its error is the cause.
        """
        if self.solved_values is None:
            raise RuntimeError(
                f"problem {self.index} has no values: {type(self.error).__name__}: {self.error}. "
                "Check outcome.error first."
            ) from self.error
        return self.solved_values
