"""Executors that are replaced or shut down while their workers are busy."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED = """
import os
import struct
import time

from lpsmap_decode import BatchExecutor

if __name__ == "__main__":
    workers = BatchExecutor(1)
    pool = workers.executor
    futures = [pool.submit(time.sleep, 60), pool.submit(len, b"x" * 10_000_000)]
    {partly}
    time.sleep(0.5)
    workers.{verb}
    print("ended", flush=True)
    workers.close(finished=False)
"""

PARTLY_SENT = "os.write(pool._result_queue._writer.fileno(), struct.pack('!i', 1000) + b'x')"


@pytest.mark.parametrize("partly", ["pass", PARTLY_SENT], ids=["busy", "sends a result"])
@pytest.mark.parametrize("verb", ["close(finished=False)", "renew()"])
def test_busy_workers_are_ended(partly: str, verb: str, tmp_path) -> None:
    """The process itself ends, too; half a result is that of a worker that was killed."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED.format(partly=partly, verb=verb))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
