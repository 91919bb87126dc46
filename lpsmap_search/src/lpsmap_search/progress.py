"""A line on the terminal that says how far a search is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lpsmap_core import SearchProgress

__all__ = ["shown"]


@contextmanager
def shown(wanted: bool) -> Iterator[Callable[[SearchProgress], None]]:
    """Show a line, on standard error, as long as the block runs.

    Parameters
    ----------
    wanted
        Whether to show it.

    Yields
    ------
    Callable
        What to call with how far the search is.

    Raises
    ------
    ModuleNotFoundError
        If rich is not installed.
    """
    if not wanted:
        yield lambda found: None
        return
    try:
        from rich import console, progress
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress: rich is not installed, which draws the line. Install it with: "
            "pip install 'lpsmap-search[progress]'"
        ) from error
    columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"))
    with progress.Progress(*columns, console=console.Console(stderr=True)) as line:
        task, begin = line.add_task("local search", total=None), SearchProgress()

        def show(found: SearchProgress) -> None:
            nonlocal begin
            if not begin.seconds:  # a search that is resumed has nodes of earlier processes
                begin = SearchProgress(n_nodes=found.n_nodes, seconds=found.seconds)
            line.update(task, description=described(found, begin))

        yield show


def described(found: SearchProgress, begin: SearchProgress) -> str:
    """Return how far a search is, with its speed since it began.

    Parameters
    ----------
    found
        How far it is.
    begin
        Its nodes and seconds then.
    """
    seconds = found.seconds - begin.seconds
    rate = (found.n_nodes - begin.n_nodes) / seconds if seconds > 0.0 else 0.0
    return (
        f"objective {found.score:.4f}  bound {found.bound:.4f}  gap {found.bound - found.score:.4f}"
        f"  {found.n_nodes:,} nodes  {rate:,.0f} nodes/s  {found.seconds:.1f} s"
    )
