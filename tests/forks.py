"""Python programs that begin with numba in memory, for tests that start many of them.

To import numba and compile a first function takes most of a second of every process, and our
packages and the kernels of a first solve take another one. A server, a process of its own, does so
once; each program is a fork of it, in a folder and an environment of its own, and ends as any
interpreter does. A cold server knows nothing of our packages, which every program imports anew; a
warm one has solved a graph.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

__all__ = ["Program", "Server", "without"]


class Program:
    """A program that runs; its interface is that of `subprocess.Popen`.

    Attributes
    ----------
    processor_time
        Seconds that it has used of processors, once it has ended.
    """

    returncode: int | None = None
    processor_time: float

    def __init__(
        self, server: socket.socket, *request: object, stdout: IO[str] | None = None
    ) -> None:
        given, printed, errors, ended = (os.pipe() for _ in range(4))
        theirs = [given[0], stdout.fileno() if stdout else printed[1], errors[1], ended[1]]
        socket.send_fds(server, [b"."], theirs)
        for pipe in (given[0], printed[1], errors[1], ended[1]):
            os.close(pipe)
        self.stdout, self.stderr, self._ended = (
            open(pipe[0], encoding="utf-8")  # noqa: SIM115 - closed by __exit__
            for pipe in (printed, errors, ended)
        )
        with open(given[1], "w", encoding="utf-8") as file:
            json.dump(request, file)
        self.pid = int(self._ended.readline())

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait()
        for pipe in (self.stdout, self.stderr, self._ended):
            pipe.close()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it prints and its errors, of little text, when it ends or is killed."""
        watchdog = threading.Timer(timeout or threading.TIMEOUT_MAX, self.kill)
        watchdog.start()
        with self:
            said = self.stdout.read(), self.stderr.read()
        watchdog.cancel()
        return said

    def wait(self) -> int:
        """Return how it ended."""
        if self.returncode is None:
            code, seconds = self._ended.read().split()
            self.returncode, self.processor_time = int(code), float(seconds)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.send_signal(signal.SIGKILL)


class Server:
    """What programs are forks of, where there are forks; elsewhere they start as usual.

    Parameters
    ----------
    warm
        Whether it begins with our packages and a solve.
    """

    def __init__(self, warm: bool = False) -> None:
        self._options = [] if warm else ["-W", "always"]
        if not hasattr(os, "fork"):
            return
        self._socket, theirs = socket.socketpair()
        with theirs:
            words = [str(theirs.fileno()), "warm" if warm else "cold"]
            self._process = subprocess.Popen(
                [sys.executable, *self._options, __file__, *words],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONUNBUFFERED": ""},
            )

    def begin(
        self,
        code: str,
        folder: Path,
        environment: Mapping[str, str],
        arguments: Sequence[object] = (),
        stdout: IO[str] | None = None,
    ) -> Program | subprocess.Popen[str]:
        """Start a program as by ``python -c``; of a cold server ``python -W always -c``.

        Parameters
        ----------
        stdout
            Where it prints; None for a pipe.
        """
        arguments = [str(argument) for argument in arguments]
        if hasattr(os, "fork"):
            request = code, str(folder), dict(environment), arguments
            return Program(self._socket, *request, stdout=stdout)
        return subprocess.Popen(
            [sys.executable, *self._options, "-c", code, *arguments],
            cwd=folder,
            env=environment,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, code: str, *arguments: object, stdout: IO[str] | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program here, and return what it printed, its errors and how it ended."""
        variables = {**os.environ, **environment}
        program = self.begin(code, Path.cwd(), variables, arguments, stdout)
        said, errors = program.communicate()
        return subprocess.CompletedProcess([code], program.returncode or 0, said, errors)

    def stop(self) -> None:
        """End it; programs that run go on."""
        if hasattr(os, "fork"):
            self._socket.close()
            self._process.wait()


def without(stream: str) -> str:
    """Return code by which a program goes on as one that began with a stream closed."""
    closed = f"import os, sys\nos.close(sys.{stream}.fileno())\n"
    return closed + f"sys.{stream} = sys.__{stream}__ = None\n"


# -------------------------------------------------------------------- within the server


def serve(requests: socket.socket) -> None:
    """Fork for every four pipes that come, until there is nobody to send any.

    In a fork this returns once its program is to end.
    """
    while True:
        word, pipes, _, _ = socket.recv_fds(requests, 1, 4)
        if not word:
            return
        if os.fork() == 0:
            requests.close()
            follow(*pipes)
            return
        for pipe in pipes:
            os.close(pipe)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # what has ended meanwhile is forgotten


def follow(given: int, printed: int, errors: int, ended: int) -> None:
    """Run a program in a process of its own; in this one, say which, and how it ended."""
    number = os.fork()
    if number == 0:
        os.close(ended)
        os.dup2(printed, 1)
        os.dup2(errors, 2)
        for pipe in (printed, errors):
            os.close(pipe)
        with open(given, encoding="utf-8") as file:
            request = json.load(file)
        execute(*request)
        return
    for pipe in (given, printed, errors):
        os.close(pipe)
    os.write(ended, f"{number}\n".encode())
    _, status, usage = os.wait4(number, 0)
    words = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    os.write(ended, " ".join(map(str, words)).encode())
    os._exit(0)


def execute(code: str, folder: str, environment: dict[str, str], arguments: list[str]) -> None:
    """Run a program in this process."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.modules["numba.core.config"].reload_config()
    sys.argv, sys.path[0] = ["-c", *arguments], ""
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


def compile_once() -> None:
    """Let numba do what it does once in a process, for the first functions that are compiled."""
    import numba
    import numpy as np

    @numba.njit
    def twice(x: float) -> float:
        return 2.0 * x

    @numba.njit
    def total(x: np.ndarray) -> float:
        found = 0.0
        for i in range(len(x)):
            found += twice(x[i])
        return found

    total(np.ones(3))


def solve_once() -> None:
    """Import our packages, and load the kernels of most solves; without a thread, for forks."""
    import numpy as np

    from lpsmap import AtMostOne, FactorGraph, Xor

    for module in ("lpsmap_core.command.cli", "lpsmap_search"):
        importlib.import_module(module)

    graph = FactorGraph()
    u = graph.variable_from(np.eye(3, 4))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.solve(threads=1).vjp(np.ones(12))


if __name__ == "__main__":
    compile_once()
    number, kind = sys.argv[1:]
    if kind == "warm":
        solve_once()
    with socket.socket(fileno=int(number)) as given:
        serve(given)
