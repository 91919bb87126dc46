"""Layers in many processes: data loaders' workers, and data parallel training."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from environments import ROOT
from solved_items import SolvedItems


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_eight_workers(context: str) -> None:
    """After this process has solved with threads of its own."""
    items = SolvedItems()
    expected = torch.stack([items[i] for i in range(len(items))])
    items.layers[1](torch.randn(256, 8, 8))
    loader = DataLoader(
        items, batch_size=2, num_workers=8, multiprocessing_context=context, timeout=1200
    )
    found = torch.cat(list(loader))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def printed(*command: str) -> list[float]:
    """Return the numbers that the example prints."""
    example = str(ROOT / "examples" / "data_parallel.py")
    done = subprocess.run(
        [sys.executable, *command, example, "--steps", "5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [float(x) for x in re.findall(r"\d+\.\d+", done.stdout)]


@pytest.mark.slow
def test_two_processes_train_as_one() -> None:
    """The losses of whole batches, and the parameters in the end, by gloo under torchrun."""
    alone = printed()
    together = printed("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    assert len(alone) == 6
    assert together[:-1] == pytest.approx(alone[:-1], abs=1e-4)
    assert together[-1] == pytest.approx(alone[-1], abs=1e-2)
