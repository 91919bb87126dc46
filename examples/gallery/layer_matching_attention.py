"""
Attention by matchings
======================

Every row is a column under an unknown linear map and noise, in another order. A network that
reconstructs each row from the columns it attends to must learn the matching. With
``MatchingAttention``, no column is used for two rows.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import MatchingAttention

torch.manual_seed(0)
n, size, batch = 7, 6, 16
unknown = torch.linalg.qr(torch.randn(size, size))[0]


def examples():
    """Return columns, the permuted rows, and the permutation."""
    columns = torch.randn(batch, n, size)
    order = torch.argsort(torch.rand(batch, n))
    rows = columns.gather(1, order[..., None].expand(-1, -1, size)) @ unknown
    return rows + 0.3 * torch.randn(rows.shape), columns, order


def train(attention):
    """Return the losses of training with an attention, and the last batch's weights."""
    torch.manual_seed(1)
    match, read = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
    optimizer = torch.optim.Adam([*match.parameters(), *read.parameters()], lr=0.02)
    losses = []
    for _ in range(200):
        rows, columns, order = examples()
        weights = attention(2.0 * match(rows) @ columns.mT)
        loss = (read(weights @ columns) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weights.detach(), order


# %%
# The layer replaces ``softmax``.

curves = {
    "softmax": train(nn.Softmax(dim=-1)),
    "matching": train(MatchingAttention(max_inner_iter=20)),
}
figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
for (name, (losses, weights, order)), color, ax in zip(
    curves.items(), ["#999999", "#0072b2"], axes[1:], strict=True
):
    axes[0].plot(losses, color=color, label=name)
    ax.imshow(weights[0].numpy(), cmap="Blues", vmin=0, vmax=1)
    ax.plot(order[0].tolist(), range(n), "o", color="#d55e00", markerfacecolor="none", markersize=9)
    ax.set(title=name, xlabel="columns", ylabel="rows")
axes[0].set(xlabel="step", ylabel="loss", ylim=(0, None))
axes[0].legend(frameon=False)
