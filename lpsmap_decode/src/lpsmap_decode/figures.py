"""Plots of solves and searches: residuals, and scores with their bounds.

Needs matplotlib: ``pip install "lpsmap-decode[plot]"``. Every function draws into the given axes,
or into a new figure, and returns the axes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lpsmap_core import Solution

try:
    import matplotlib.pyplot as plt
    from matplotlib.backends.backend_agg import FigureCanvasAgg
except ImportError as error:
    raise ImportError(
        'lpsmap_decode.figures needs matplotlib; install it with: pip install "lpsmap-decode[plot]"'
    ) from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_picture", "convergence", "search"]

COLOURS = ("#0072b2", "#d55e00")
"""Colours that most colour-blind readers can distinguish (Okabe & Ito 2008)."""


def check_picture(path: Path) -> None:
    """Validate that the format of a plot file is supported.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ValueError
        If matplotlib does not support its suffix.
    """
    known = sorted(FigureCanvasAgg.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise ValueError(
            f"{path}: got the suffix {path.suffix!r}; expected one of "
            f"{', '.join(f'.{name}' for name in known)}."
        )


def convergence(solution: Solution, ax: Axes | None = None, most: int = 50) -> Axes:
    """Plot the residuals of a solve with ``trace=True``.

    Each component has a thin line; the maximum is bold.

    Parameters
    ----------
    solution
        The solution.
    ax
        The axes to draw into; None for a new figure.
    most
        The maximum number of components with separate lines.

    Raises
    ------
    ValueError
        If the solution has no trace.
    """
    if solution.trace is None:
        raise ValueError(
            "convergence: the solution has no trace; solve with graph.solve(trace=True)."
        )
    ax = _axes(ax)
    iterations = 1 + np.arange(len(solution.trace))
    smallest = 1e-16  # a residual of zero has no place on a logarithmic axis
    for k, name in enumerate(["primal: copies disagree", "dual: means move"]):
        residual = np.maximum(solution.trace[:, k], smallest)
        ax.plot(iterations, residual[:, :most], color=COLOURS[k], lw=0.6, alpha=0.35)
        ax.plot(iterations, residual.max(axis=1, initial=smallest), color=COLOURS[k], label=name)
    ax.set_yscale("log")
    ax.set_xlabel("iteration")
    ax.set_ylabel("residual")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def search(history: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Plot the best score and the bound of an exact search.

    Parameters
    ----------
    history
        Rows of seconds, best score, and bound. Numbers that are not finite leave a gap.
    ax
        The axes to draw into; None for a new figure.
    """
    rows = np.asarray(history, dtype=np.float64).reshape(-1, 3)
    seconds, score, bound = np.where(np.isfinite(rows), rows, np.nan).T
    ax = _axes(ax)
    ax.fill_between(seconds, score, bound, step="post", color="0.9", label="gap", lw=0)
    ax.step(seconds, bound, where="post", color=COLOURS[1], label="bound")
    ax.step(seconds, score, where="post", color=COLOURS[0], label="best score", marker=".")
    gap = (bound[-1] - score[-1]) / (abs(score[-1]) or abs(bound[-1]) or 1.0)
    words = f"gap {100.0 * gap:.2g} %" if gap > 1e-6 else "no gap"
    ax.set_title(f"best score {score[-1]:.6g}, {words}", fontsize=10)
    ax.set_xlabel("seconds")
    ax.set_ylabel("score")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(figsize=(5.0, 3.0), layout="constrained")[1] if ax is None else ax
