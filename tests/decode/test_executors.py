"""Executors that are replaced or shut down while their workers are busy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = """
import os
import struct
import time

from lpsmap_decode import BatchExecutor

if __name__ == "__main__":
    workers = BatchExecutor(1)
    submit = workers.executor.submit
    futures = [submit(time.sleep, 60), submit(len, b"x" * 10_000_000)]
    {partly}
    time.sleep(0.5)
    workers.renew()
    futures.append(workers.executor.submit(time.sleep, 60))
    {partly}
    time.sleep(0.5)
    workers.close(finished=False)
    print("ended", flush=True)
"""

PARTLY_SENT = (
    "os.write(workers.executor._result_queue._writer.fileno(), struct.pack('!i', 1000) + b'x')"
)


@pytest.mark.parametrize("partly", ["pass", PARTLY_SENT], ids=["busy", "sends a result"])
def test_busy_workers_are_ended(partly: str, tmp_path: Path) -> None:
    """The process itself ends, too; half a result is that of a worker that was killed."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED.format(partly=partly))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
