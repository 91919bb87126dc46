"""A search in a process of its own, which tests interrupt and kill; and how its workers die.

``python searching.py '{"max_time": 3}'`` searches with these options of `global_search`. It says
"ready" before the call, then the number of boxes whenever there is a report, and at last what came
of it in JSON. ``sleep`` are seconds that every report takes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora import EIGHT
from lpsmap_decode import Evaluation, SearchProgress
from lpsmap_search import Certified, Corpus, DependencyModelWithValence, global_search
from lpsmap_search.lagrangian_space import Box, LagrangianSpace

if TYPE_CHECKING:
    from forks import Server

__all__ = ["AtOnce", "Deadly", "Failing", "Searching", "eight"]


def eight() -> Corpus:
    """Return the corpus of eight."""
    return Corpus(DependencyModelWithValence("VNA"), EIGHT)


class Searching:
    """A child that searches, in a process group of its own; a context manager.

    Parameters
    ----------
    server
        What starts it.
    options
        Of the search.
    """

    def __init__(self, server: Server, **options: Any) -> None:
        code = f"import os, runpy; os.setsid(); runpy.run_path({__file__!r}, run_name='__main__')"
        folder = Path(__file__).parent
        self.process = server.begin(code, folder, os.environ, [json.dumps(options)])

    def __enter__(self) -> Searching:
        return self

    def __exit__(self, *error: object) -> None:
        with self.process:
            self.kill()

    def word(self, seconds: float = 120.0) -> str:
        """Return the next line; nothing if it does not come in time, or there is none."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(seconds, self.process.kill)
        watchdog.start()
        found: str = self.process.stdout.readline().strip()
        watchdog.cancel()
        return found

    def searched(self, least: int) -> int:
        """Return the number of boxes as soon as it says that there are so many."""
        while True:
            word = self.word()
            assert word, "it has ended, or says nothing"
            if word != "ready" and int(word) >= least:
                return int(word)

    def result(self) -> dict[str, Any]:
        """Return what came of it, once it has ended."""
        assert self.process.stdout is not None
        last = self.process.stdout.read().strip().splitlines()[-1]
        assert self.process.wait() == 0
        found: dict[str, Any] = json.loads(last)
        return found

    def kill(self) -> None:
        """Kill it, without its group."""
        self.process.kill()
        self.process.wait()

    def leaves_nothing(self, seconds: float = 20.0) -> bool:
        """Whether no process of the group is left, soon after it ended."""
        self.process.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        os.killpg(self.process.pid, signal.SIGKILL)
        return False


class Failing(LagrangianSpace):
    """Fails once the search is under way."""

    def evaluate(self, nodes: Sequence[Box], score: float) -> list[Evaluation[Box, Any]]:
        """Evaluate the boxes, or fail."""
        if len(nodes) > 8:
            raise RuntimeError("no bound")
        return super().evaluate(nodes, score)


class AtOnce(Executor):
    """Does the work in `submit`, as other processes would: nothing is known of its workers."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return what is done already."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Deadly(Executor):
    """Kills workers of another executor.

    Parameters
    ----------
    executor
        Of processes.
    tombs
        A folder with a file for each worker that was killed.
    most
        How many are killed.
    """

    def __init__(self, executor: Executor, tombs: Path, most: int) -> None:
        self._executor, self._tombs, self._most = executor, tombs, most
        self._max_workers = 2

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit work that may be deadly."""
        return self._executor.submit(_die_or, self._tombs, self._most, fn, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut the other executor down."""
        self._executor.shutdown(wait, cancel_futures=cancel_futures)


def _die_or(tombs: Path, most: int, fn: Callable[..., Any], *args: Any) -> Any:
    if fn is not int and len(list(tombs.iterdir())) < most:
        (tombs / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return fn(*args)


def main() -> None:
    """Search, and say how it goes."""
    options = json.loads(sys.argv[1])
    pause = options.pop("sleep", 0.0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs may ignore it
    corpus = eight()
    global_search(corpus, max_nodes=1, n_restarts=1)  # kernels are loaded

    def report(found: SearchProgress) -> None:
        print(found.n_nodes, flush=True)
        time.sleep(pause)

    print("ready", flush=True)
    found = global_search(corpus, report=report, **options)
    print(_json(found), flush=True)


def _json(found: Certified) -> str:
    names = ("objective", "bound", "n_nodes", "seconds", "proved", "interrupted")
    return json.dumps({name: getattr(found, name) for name in names})


if __name__ == "__main__":
    main()
