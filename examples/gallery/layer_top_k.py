"""
The k best
==========

A regression on twenty features, three of which are relevant. ``TopK`` is a gate that selects three:
a sparse mixture of subsets, and finally a single one.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import TopK

torch.manual_seed(0)
n, k, size = 20, 3, 64
count = torch.tensor([3, 8, 17])
slopes = torch.tensor([2.0, -1.5, 1.0])

# %%
# The scores of the gate are parameters. They start nearly equal, so that all features have some
# weight.

scores = nn.Parameter(0.01 * torch.randn(n))
gate, read = TopK(k), nn.Linear(n, 1)
optimizer = torch.optim.Adam([scores, *read.parameters()], lr=0.03)
losses, gates, n_subsets = [], [], []
for _ in range(150):
    x = torch.randn(size, n)
    y = x[:, count] @ slopes + 0.1 * torch.randn(size)
    passed = gate(scores)
    loss = (read(passed * x)[:, 0] - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    gates.append(passed.detach())
    n_subsets.append(len(gate.structures(scores.detach())[0]))

# %%
# In the end, only the relevant features pass the gate.

figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
axes[0].plot(losses, color="#0072b2", label="loss")
axes[0].plot(n_subsets, color="#999999", label="subsets in the mixture")
axes[0].set(xlabel="step", ylim=(0, None))
axes[0].legend(frameon=False)
axes[1].imshow(torch.stack(gates).T.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
axes[1].set(title="the gate", xlabel="step", ylabel="feature", yticks=count.tolist())
