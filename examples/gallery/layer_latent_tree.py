"""
Latent trees
============

Every word has a sign, by which its modifiers refer to it, and the network predicts the colour of
its head. The heads are not given: ``LatentTree`` learns the trees that help to predict the colours.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap import plot
from lpsmap_torch.layers import LatentTree

torch.manual_seed(0)
n, size, n_colours, batch = 7, 8, 4, 32
unknown = torch.linalg.qr(torch.randn(size, size))[0]


def sentences():
    """Return the signs of words, their references to heads, colours, and the heads."""
    order = torch.argsort(torch.rand(batch, n))
    rank = torch.argsort(order)
    # an earlier word in a random order
    heads = order.gather(1, (torch.rand(batch, n) * rank).long())
    heads = torch.where(rank == 0, torch.arange(n), heads)
    signs = torch.randn(batch, n, size)
    said = signs.gather(1, heads[..., None].expand(-1, -1, size)) @ unknown
    said = torch.where((rank == 0)[..., None], torch.ones(size), said)
    return signs, said + 0.2 * torch.randn(said.shape), torch.randint(n_colours, (batch, n)), heads


# %%
# Row m, column h of the scores is the arc from head h to modifier m; the diagonal contains the
# root.

tree = LatentTree(single_root=True)
match, root = nn.Linear(size, size, bias=False), nn.Linear(size, 1)
optimizer = torch.optim.Adam([*match.parameters(), *root.parameters()], lr=0.02)
losses, right = [], []
for _ in range(80):
    signs, said, colours, heads = sentences()
    scores = torch.where(torch.eye(n).bool(), root(said), match(said) @ signs.mT)
    arcs = tree(scores)
    told = arcs @ nn.functional.one_hot(colours, n_colours).float()
    target = colours.gather(1, heads)
    loss = nn.functional.nll_loss((told + 1e-3).log().flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    right.append((arcs.argmax(-1) == heads).float().mean().item())

# %%
# Attachments are learned without supervision.

figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
ax.plot(losses, color="#999999", label="loss")
ax.plot(right, color="#0072b2", label="heads found")
ax.set(xlabel="step", ylim=(0, None))
ax.legend(frameon=False)

# %%
# The trees of a sentence; the width of arcs is their marginal.

found = tree.structures(scores[:1].detach())
plot.arcs(found[0], [f"word {i}" for i in range(n)])
