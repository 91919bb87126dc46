"""Python programs that begin with numba in memory, for tests that start many of them.

To import numba and compile a first function takes most of a second of every process. A server, a
process of its own that knows nothing of our packages, does so once; each program is a fork of it,
which imports ours anew, in a folder and an environment of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

__all__ = ["Program", "Server"]


class Program:
    """A program that runs; its interface is that of `subprocess.Popen`."""

    returncode: int | None = None

    def __init__(self, server: socket.socket, *request: object) -> None:
        given, printed, errors, ended = (os.pipe() for _ in range(4))
        theirs = [given[0], printed[1], errors[1], ended[1]]
        socket.send_fds(server, [b"."], theirs)
        for pipe in theirs:
            os.close(pipe)
        self._printed, self._errors, self._ended = (
            open(pipe[0], encoding="utf-8")  # noqa: SIM115 - closed by communicate
            for pipe in (printed, errors, ended)
        )
        with open(given[1], "w", encoding="utf-8") as file:
            json.dump(request, file)
        self.pid = int(self._ended.readline())

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it prints and its errors, of little text, when it ends or is killed."""
        watchdog = threading.Timer(timeout or threading.TIMEOUT_MAX, self.kill)
        watchdog.start()
        with self._printed, self._errors, self._ended:
            said = self._printed.read(), self._errors.read()
            self.returncode = int(self._ended.read())
        watchdog.cancel()
        return said

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class Server:
    """What programs are forks of, where there are forks; elsewhere they start as usual."""

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            return
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def begin(
        self, code: str, folder: Path, environment: Mapping[str, str]
    ) -> Program | subprocess.Popen[str]:
        """Start a program as by ``python -W always -c``."""
        if hasattr(os, "fork"):
            return Program(self._socket, code, str(folder), dict(environment))
        return subprocess.Popen(
            [sys.executable, "-W", "always", "-c", code],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> None:
        """End it; programs that run go on."""
        if hasattr(os, "fork"):
            self._socket.close()
            self._process.wait()


# -------------------------------------------------------------------- within the server


def serve(requests: socket.socket) -> None:
    """Fork for every four pipes that come, until there is nobody to send any."""
    while True:
        word, pipes, _, _ = socket.recv_fds(requests, 1, 4)
        if not word:
            return
        if os.fork() == 0:
            requests.close()
            follow(*pipes)
        for pipe in pipes:
            os.close(pipe)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # what has ended meanwhile is forgotten


def follow(given: int, printed: int, errors: int, ended: int) -> NoReturn:
    """Run a program in a process of its own, and say which, and how it ended."""
    number = os.fork()
    if number == 0:
        os.close(ended)
        os.dup2(printed, 1)
        os.dup2(errors, 2)
        with open(given, encoding="utf-8") as file:
            execute(*json.load(file))
    os.write(ended, f"{number}\n".encode())
    _, status = os.waitpid(number, 0)
    os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def execute(code: str, folder: str, environment: dict[str, str]) -> NoReturn:
    """Run a program in this process, and end it."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.modules["numba.core.config"].reload_config()
    sys.argv, sys.path[0] = ["-c"], ""
    warnings.simplefilter("always")
    failed = False
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    except BaseException:
        failed = True
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(failed)


def warm() -> None:
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


if __name__ == "__main__":
    warm()
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
