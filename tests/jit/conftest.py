"""What tests of kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forks import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server of Python programs that compile."""
    server = Server()
    yield server
    server.stop()
