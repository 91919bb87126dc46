"""A factor of two methods trains inside a network; the paper's listings run as printed."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from lpsmap import Factor, TorchFactorGraph, stack

FloatArray = npt.NDArray[np.float64]


class Intervals(Factor):
    """One contiguous run of variables is on; the additional is paid for a run of one."""

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, int]:
        sums = np.concatenate([[0.0], np.cumsum(eta_u)])
        runs = combinations(range(len(eta_u) + 1), 2)
        return max(
            runs, key=lambda r: float(sums[r[1]] - sums[r[0]] + eta_v[0] * (r[1] - r[0] == 1))
        )

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        m = np.zeros(self.event_shape)
        m[y[0] : y[1]] = 1.0
        return m, np.array([float(y[1] - y[0] == 1)])


def test_a_factor_of_two_methods_trains_in_a_network() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 6, 5)
    runs = [(i % 4, i % 4 + 1 + i % 3) for i in range(8)]
    target = torch.zeros(8, 6)
    for row, (first, last) in zip(target, runs, strict=True):
        row[first:last] = 1.0
    target[:, ::2] = 1 - target[:, ::2]  # even slots are negated below
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(30, 32), torch.nn.Tanh(), torch.nn.Linear(32, 6)
    )
    torch.nn.init.zeros_(network[-1].weight)  # type: ignore[arg-type]
    single = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([*network.parameters(), single], lr=0.01)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        graph = TorchFactorGraph()
        u = graph.variable_from(network(x))
        slots = stack([~u[:, i] if i % 2 == 0 else u[:, i] for i in range(6)])
        graph.add(Intervals(slots, single.expand(8, 1)))
        assert graph.solve().ok
        loss = (u.value - target).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None for p in network.parameters())
        assert single.grad is not None
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], losses
    assert single.item() != 0.0


LISTING_1 = """
import torch
from lpsmap import TorchFactorGraph, Xor, AtMostOne

def main():
    m, n = 3, 5

    eta = torch.randn(m, n, requires_grad=True)

    fg = TorchFactorGraph()
    u = fg.variable_from(eta)

    for i in range(m):
        fg.add(Xor(u[i, :]))

    for j in range(n):
        fg.add(AtMostOne(u[:, j])) # some columns may be 0

    fg.solve()
    print(u.value)

    u.value[0, -1].backward()
    print(eta.grad)

if __name__ == '__main__':
    main()
"""

LISTING_2 = """
import torch
from lpsmap import TorchFactorGraph, DepTree, Budget

def main(n=5, constrain=False):

    print(f"n={n}, constrain={constrain}")

    torch.manual_seed(4)

    x = torch.randn(n, n, requires_grad=True)

    fg = TorchFactorGraph()
    u = fg.variable_from(x)
    fg.add(DepTree(u, packed=True, projective=True))

    if constrain:
        for k in range(n):

            # don't constrain the diagonal (root arc)
            ix = list(range(k)) + list(range(k + 1, n))

            fg.add(Budget(u[ix, k], budget=2))

    fg.solve()
    print(u.value)

    u.value[1, -1].backward()
    print(x.grad)

if __name__ == '__main__':
    main(constrain=False)
    main(constrain=True)
"""


@pytest.mark.parametrize("listing", [LISTING_1, LISTING_2])
def test_the_papers_listings(listing: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    exec(compile(listing, "listing", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.count("tensor(") == 2 * listing.count("    main(")


def test_listing_1_is_a_matching() -> None:
    torch.manual_seed(0)
    space: dict[str, Any] = {"__name__": "listing"}
    exec(compile(LISTING_1.replace("print(u.value)", "return u.value"), "listing", "exec"), space)
    value = space["main"]()
    torch.testing.assert_close(value.sum(dim=1), torch.ones(3))
    assert (value.sum(dim=0) <= 1 + 1e-5).all()


def test_listing_2_bounds_the_dependents_of_every_word() -> None:
    space: dict[str, Any] = {"__name__": "listing"}
    exec(compile(LISTING_2.replace("print(u.value)", "return u.value"), "listing", "exec"), space)
    for constrain in (False, True):
        value = space["main"](constrain=constrain)
        torch.testing.assert_close(value.sum(dim=1), torch.ones(5))
        dependents = value.sum(dim=0) - value.diagonal()
        assert not constrain or (dependents <= 2 + 1e-5).all()
