"""A status line on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lpsmap_decode import SearchProgress


@contextmanager
def status_line(enabled: bool) -> Iterator[Callable[[SearchProgress], None]]:
    """Show a status line on standard error while the block runs.

    Parameters
    ----------
    enabled
        Whether to show it.

    Yields
    ------
    Callable
        A function to call with the progress of the search.

    Raises
    ------
    ModuleNotFoundError
        If rich is not installed.
    """
    if not enabled:
        yield lambda state: None
        return
    try:
        from rich import console, progress
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress=True needs rich, which is not installed. Install it with: pip install "
            "'lpsmap-search[progress]'"
        ) from error
    columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"))
    with progress.Progress(*columns, console=console.Console(stderr=True)) as line:
        task, begin = line.add_task("local search", total=None), SearchProgress()

        def show(state: SearchProgress) -> None:
            nonlocal begin
            if not begin.seconds:  # a resumed search includes nodes of earlier processes
                begin = SearchProgress(n_nodes=state.n_nodes, seconds=state.seconds)
            line.update(task, description=status_text(state, begin))

        yield show


def status_text(state: SearchProgress, begin: SearchProgress) -> str:
    """Return a status line, with the speed since the start.

    Parameters
    ----------
    state
        The current progress.
    begin
        The nodes and seconds at the start.
    """
    seconds = state.seconds - begin.seconds
    rate = (state.n_nodes - begin.n_nodes) / seconds if seconds > 0.0 else 0.0
    return (
        f"objective {state.score:.4f}  bound {state.bound:.4f}  gap {state.bound - state.score:.4f}"
        f"  {state.n_nodes:,} nodes  {rate:,.0f} nodes/s  {state.seconds:.1f} s"
    )
