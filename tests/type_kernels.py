"""Call every verb of every factor type, and print what each compiles, stalls at and announces.

``python tests/type_kernels.py [TYPE...]`` prints a line of JSON for each verb: ``compiled``, the
number of functions; ``stalls``, those that took over two seconds; and ``announced``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any

os.environ |= {"LPSMAP_COMPILE_AFTER": "0", "LPSMAP_QUIET": "0"}

from numba.core.event import install_recorder

import sweep_cases
from sweep_cases import Case
from sweep_verbs import VERBS

SIZE, SEED, SECONDS = 3, 0, 5.0
LATE = 0.5
"""Seconds by which an announcement may be late on a busy machine."""


def stalls_of(events: Iterable[tuple[float, Any]]) -> list[str]:
    """Return the functions whose compilation, with that of all they call, took over two seconds."""
    running, found = [], []
    for at, event in events:
        if event.is_start:
            function = event.data["dispatcher"].py_func
            running.append((at, f"{function.__module__}.{function.__qualname__}"))
        else:
            begin, name = running.pop()
            if not running and at - begin > 2.0 + LATE:
                found.append(name)
    return found


def main(kinds: list[str]) -> None:
    """Print a line for each verb."""
    warnings.simplefilter("ignore")
    announced: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: announced.append(str(record.args[0]))  # type: ignore
    logging.getLogger("lpsmap").addHandler(handler)
    for kind in kinds or sweep_cases.kinds():
        for verb, prepared in VERBS.items():
            announced.clear()
            with install_recorder("numba:compile") as recorder:
                prepared(Case(kind, SIZE, SEED), SECONDS)()
            found = {"type": kind, "verb": verb, "compiled": len(recorder.buffer) // 2}
            found |= {"stalls": stalls_of(recorder.buffer), "announced": list(announced)}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
