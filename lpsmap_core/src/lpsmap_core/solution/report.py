"""Reports of unsolved components: a warning, or an error if no component has finite scores."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from lpsmap_core.engine.status import Status
from lpsmap_core.solution.contradictions import declared, explain_contradictions
from lpsmap_core.solution.solution import Solution
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.callers import stacklevel

logger = logging.getLogger("lpsmap")

Shapes = Sequence[tuple[int, ...]]


class ConvergenceWarning(UserWarning):
    """Some components of a graph were not solved.

    The message gives the reasons without numbers. It is the same at every step of a training loop,
    so that Python's default filter shows it once for every line that solves. The numbers are in
    `details`, and are logged by the logger ``lpsmap`` at level INFO.

    Parameters
    ----------
    words
        The message.
    details
        The components, and their residuals.
    """

    def __init__(self, words: str = "", details: str = "") -> None:
        super().__init__(words)
        self.details = details


def report_unsolved(solution: Solution, shapes: Callable[[], Shapes], refuses: bool) -> None:
    """Warn once about all components that were not solved.

    Parameters
    ----------
    solution
        The solution.
    shapes
        Returns the shapes of the blocks of the variables' scores.
    refuses
        Whether it is an error that no component has finite scores.

    Raises
    ------
    ValueError
        If no component has finite scores, and `refuses`.
    """
    if solution.ok and solution.layout.part.whole:
        return
    free, scores = solution.free, solution.scores
    if free.size:
        free = free[np.isnan(solution.values[free])]
    if solution.ok and not free.size:
        return
    failed = solution.failed
    statuses = solution.status[failed]
    all_failed = failed.size == len(solution.status)
    if refuses and all_failed and all(s is Status.NON_FINITE for s in statuses):
        raise ValueError(non_finite_message(scores, shapes()))
    words, details = [], []
    if free.size:
        words.append("Variables in no factor have scores that are NaN or +inf, and NaN values.")
        details.append(f"{free.size} such variables: {_place(free[0], scores, shapes())}.")
    if failed.size:
        words.append("Components were not solved; Solution.failed has their numbers.")
        details.append(f"{failed.size} of {len(solution.status)} components were not solved.")
    for status in (status for status in Status if (statuses == status).any()):
        which = failed[statuses == status]
        numbers = ", ".join(map(str, which[:10])) + (", ..." if len(which) > 10 else "")
        words.append(f"{status.name}: {status.value}")
        details.append(
            f"Component {numbers}: {status.name}. Residuals up to "
            f"{np.nanmax(solution.primal_residual[which]):.1e} (primal), "
            f"{np.nanmax(solution.dual_residual[which]):.1e} (dual)."
        )
    known = declared(solution.layout, dict(islice(solution.solved.contradictions().items(), 1)))
    if known:
        details.append(explain_contradictions(known, solution.factors))
    warn_unsolved(words, details)


def warn_unsolved(words: Sequence[str], details: Sequence[str]) -> None:
    """Warn about the user's line by a message without numbers, and log the numbers.

    Python's warning filters treat messages that differ in a number as different.

    Parameters
    ----------
    words
        The sentences of a `ConvergenceWarning`.
    details
        Sentences with the numbers.
    """
    logger.info("%s", " ".join(details))
    message = ConvergenceWarning("lpsmap: " + " ".join(words), " ".join(details))
    warnings.warn(message, stacklevel=stacklevel())


def log(solution: Solution) -> None:
    """Log the outcome of a solve, to standard error if the application has installed no handler."""
    words = (
        f"{solution!r}; outer iterations: most {solution.iterations.max(initial=0)}; "
        f"largest residuals: {solution.primal_residual.max(initial=0.0):.2e} primal, "
        f"{solution.dual_residual.max(initial=0.0):.2e} dual"
    )
    if logger.hasHandlers():
        logger.info("%s", words)
    elif logger.level <= logging.INFO:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        handler.handle(logger.makeRecord(logger.name, logging.INFO, "", 0, words, (), None))


def non_finite_message(scores: FloatArray, shapes: Shapes) -> str:
    """Return the message of the error that no component has finite scores."""
    wrong = np.flatnonzero(np.isnan(scores) | (scores == np.inf))
    if not wrong.size:
        return (
            "additionals: every component has a score that is NaN or +inf; expected finite "
            "numbers, or -inf to forbid. Fix the scores of the additionals."
        )
    return (
        f"scores: {_place(wrong[0], scores, shapes)}, and no component has finite scores; "
        "expected finite numbers, or -inf to forbid. Fix the scores."
    )


def _place(variable: int, scores: FloatArray, shapes: Shapes) -> str:
    """Return the block and the index of a variable's score."""
    starts = np.concatenate([[0], np.cumsum([math.prod(shape) for shape in shapes])])
    number = int(np.searchsorted(starts, variable, side="right")) - 1
    at = np.unravel_index(variable - starts[number], shapes[number])
    return f"variable block {number} holds {scores[variable]} at {[int(i) for i in at]}"
