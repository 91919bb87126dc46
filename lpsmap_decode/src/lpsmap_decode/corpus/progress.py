"""A progress bar on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lpsmap_decode.corpus.outcome import Outcome


@contextmanager
def progress_bar(enabled: bool, total: int | None) -> Iterator[Callable[[Outcome], None]]:
    """Show a progress bar on standard error; yield a function to call with every outcome."""
    if not enabled:
        yield lambda outcome: None
        return
    try:
        from rich import console, progress
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress=True needs rich, which is not installed. Install it with: pip install "
            "'lpsmap-decode[progress]'"
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
