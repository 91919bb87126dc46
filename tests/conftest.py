"""Settings of all tests."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from environments import PLUGINS, ROOT, WHEELS, build
from forks import Server

FOLDERS = dict(WHEELS)
collect_ignore = []

# core and packs need neither torch nor JAX; what does is not even imported
if not importlib.util.find_spec("torch"):
    del FOLDERS["lpsmap_torch"]
    collect_ignore += ["adapter", "examples/test_listops.py", "experiments"]
if not importlib.util.find_spec("jax"):
    del FOLDERS["lpsmap_jax"]
    collect_ignore += ["jax_adapter"]

UNCOMPILED = os.environ.get("LPSMAP_DISABLE_JIT", "0") not in ("", "0")

# Tests are of compiled kernels; interpreted ones are tested where a test asks for them.
os.environ.setdefault("LPSMAP_COMPILE_AFTER", "0")

# How long compilation takes is the machine's; announcements are tested where a test asks for them.
os.environ.setdefault("LPSMAP_QUIET", "1")

# Tensors of tests are small: torch's other threads would do little but wait, and use processors so.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Workers and the children of tests import numba and torch: seconds each, where no bytecode is kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same draws in every run: a failure is the code's, and repeats. Fewer where kernels are slow.
hypothesis.settings.register_profile(
    "lpsmap", deadline=None, derandomize=True, max_examples=10 if UNCOMPILED else 50
)
hypothesis.settings.load_profile("lpsmap")


def pytest_configure(config: pytest.Config) -> None:
    # Shells let what they start in the background ignore Ctrl-C, which many tests send.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A folder of a package's name also counts as found, as an empty namespace without an origin.
    specs = {folder: importlib.util.find_spec(name) for folder, name in FOLDERS.items()}
    missing = [folder for folder, spec in specs.items() if spec is None or spec.origin is None]
    if missing:
        pytest.exit(
            f"not installed: {', '.join(missing)}. Run `make test`, or "
            f"`pip install {' '.join(f'-e ./{folder}' for folder in missing)}`.",
            returncode=4,
        )


def pytest_collection_finish() -> None:
    """Keep collections of garbage, which some tests ask for, from what modules hold for good."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that draws the same numbers in every run."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def draws() -> int:
    """How many random draws a test makes: fewer where kernels are not compiled."""
    return 20 if UNCOMPILED else 200


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server of Python programs that import our packages."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def warm_server() -> Iterator[Server]:
    """A server of Python programs that have solved a graph."""
    server = Server(warm=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdists and wheels of our distributions and of the example plugins."""
    folder = tmp_path_factory.mktemp("distributions")
    for source in [*WHEELS, *(f"examples/plugins/{name}" for name in PLUGINS)]:
        build(ROOT / source, folder)
    return folder
