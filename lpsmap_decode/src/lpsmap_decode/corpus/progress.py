"""A bar on the terminal that says how many problems are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lpsmap_decode.corpus.outcome import Outcome

__all__ = ["shown"]


@contextmanager
def shown(wanted: bool, total: int | None) -> Iterator[Callable[[Outcome], None]]:
    """Show a bar, on standard error, as long as the block runs.

    Parameters
    ----------
    wanted
        Whether to show it.
    total
        How many problems there are, if that is known.

    Yields
    ------
    Callable
        What to call with every outcome.

    Raises
    ------
    ModuleNotFoundError
        If rich is not installed.
    """
    if not wanted:
        yield lambda outcome: None
        return
    try:
        from rich import console, progress
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress: rich is not installed, which draws the bar. Install it with: "
            "pip install 'lpsmap-decode[progress]'"
        ) from error
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[failed]}"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True)) as bar:
        task, failed = bar.add_task("solved", total=total, failed=""), 0

        def advance(outcome: Outcome) -> None:
            nonlocal failed
            failed += outcome.error is not None
            bar.update(task, advance=1, failed=f"{failed} failed" if failed else "")

        yield advance
