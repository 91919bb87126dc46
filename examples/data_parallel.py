"""Train a model with a structured layer by several processes.

Every process solves its share of a batch. The gradients are averaged, so the parameters equal those
of one process with the whole batch. ::

    python examples/data_parallel.py
    torchrun --nproc_per_node=2 examples/data_parallel.py

print the same losses, and the same sum of parameters. The processes share the cores: set
``OMP_NUM_THREADS`` and ``LPSMAP_THREADS`` to cores / processes.
"""

from __future__ import annotations

import os

import click
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lpsmap_torch.layers import LPSequenceAttention


class Aligner(nn.Module):
    """Classifies by alignment whether one sequence is a shuffle of the other."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.encode = nn.Linear(size, size)
        self.attention = LPSequenceAttention()
        self.compare = nn.Sequential(nn.Linear(2 * size, size), nn.ReLU(), nn.Linear(size, 1))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Return a logit for every pair (batch, m, size), (batch, n, size)."""
        weights = self.attention(self.encode(one) @ self.encode(other).mT / one.shape[-1] ** 0.5)
        compared: Tensor = self.compare(torch.cat([one, weights @ other], dim=-1))
        return compared.mean(dim=(1, 2))


def batch(step: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pairs of a step, equal in all processes."""
    generator = torch.Generator().manual_seed(step)
    one, noise = torch.randn(2, size, 6, 16, generator=generator)
    same = torch.arange(size) % 2 == 0
    order = torch.randperm(6, generator=generator)
    return one, torch.where(same[:, None, None], one[:, order], noise), same.float()


def start() -> tuple[int, int, torch.device]:
    """Join the process group, if any; return the rank, the number of processes and the device."""
    if "RANK" not in os.environ:  # not under torchrun
        return 0, 1, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return dist.get_rank(), dist.get_world_size(), torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return dist.get_rank(), dist.get_world_size(), device


@click.command(context_settings={"show_default": True})
@click.option("--steps", type=click.IntRange(min=1), default=20, help="Steps of training.")
@click.option("--size", type=click.IntRange(min=1), default=32, help="Pairs in a step, in all.")
def main(steps: int, size: int) -> None:
    """Train, and print the loss of the whole batch."""
    rank, processes, device = start()
    if size % processes:
        raise click.BadParameter(
            f"{size} is not a multiple of {processes} processes", param_hint="--size"
        )
    torch.manual_seed(0)
    model: nn.Module = Aligner().to(device)
    if processes > 1:
        model = DistributedDataParallel(model, [device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        mine = slice(rank * size // processes, (rank + 1) * size // processes)
        one, other, same = (x[mine].to(device) for x in batch(step, size))
        loss = nn.functional.binary_cross_entropy_with_logits(model(one, other), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        if processes > 1:
            dist.all_reduce(mean)
        if rank == 0 and (step + 1) % max(steps // 5, 1) == 0:
            click.echo(f"step {step + 1:3}  loss {mean.item() / processes:.5f}")
    if rank == 0:
        total = sum(p.detach().abs().sum().item() for p in model.parameters())
        click.echo(f"sum of parameters {total:.4f}")
    if processes > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
