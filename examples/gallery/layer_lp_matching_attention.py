"""
Attention by rows and columns that agree
========================================

What is the size of the intersection of two bags of words? Softmax attention may attend to the same
word repeatedly. ``LPMatchingAttention`` uses every word at most once. Bags have different sizes:
lengths define their padding.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import LPMatchingAttention

n_words, size, m, n = 8, 64, 5, 7


def bags(generator):
    """Return two bags of words, their sizes, and the number of common words."""
    one = torch.randint(n_words, (size, m), generator=generator)
    other = torch.randint(n_words, (size, n), generator=generator)
    lengths = torch.randint(1, m + 1, (size, 2), generator=generator)
    counts = [
        nn.functional.one_hot(bag, n_words).where(
            (torch.arange(bag.shape[1]) < ends[:, None])[..., None], 0
        )
        for bag, ends in zip((one, other), lengths.T, strict=True)
    ]
    common = torch.minimum(counts[0].sum(1), counts[1].sum(1)).sum(1)
    return one, other, lengths, common.float()


class Counter(nn.Module):
    """Sums the similarity of words that attend to each other."""

    def __init__(self, matching: bool):
        super().__init__()
        self.matching = LPMatchingAttention() if matching else None
        self.score = nn.Parameter(0.1 * torch.randn(n_words, n_words))
        self.alike = nn.Parameter(0.1 * torch.randn(n_words, n_words))

    def weights(self, scores, lengths):
        """Return the attention."""
        if self.matching is not None:
            return self.matching(scores, lengths=lengths)
        rows, columns = lengths[:, :1, None], lengths[:, 1:, None]
        padding = torch.arange(n) >= columns
        return scores.masked_fill(padding, -1e9).softmax(-1) * (torch.arange(m)[:, None] < rows)

    def forward(self, one, other, lengths):
        """Return the counts, and the weights."""
        pairs = one[:, :, None], other[:, None, :]
        weights = self.weights(self.score[pairs], lengths)
        return (weights * self.alike[pairs]).sum((1, 2)), weights


def train(matching):
    """Return the errors of training, and the last batch with its weights."""
    torch.manual_seed(0)
    model, generator = Counter(matching), torch.Generator().manual_seed(0)
    optimizer, errors = torch.optim.Adam(model.parameters(), lr=0.05), []
    for _ in range(150):
        *given, common = bags(generator)
        found, weights = model(*given)
        loss = (found - common).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append((found - common).abs().mean().item())
    return errors, given, weights.detach()


# %%
# Both learn which words are similar. Only one of them can count.

figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
for matching, color, ax in ((False, "#999999", axes[1]), (True, "#0072b2", axes[2])):
    errors, (one, other, lengths), weights = train(matching)
    name = "LP-matching" if matching else "softmax"
    axes[0].plot(errors, color=color, label=name)
    shown = int(lengths.sum(1).argmax())
    rows, columns = lengths[shown].tolist()
    ax.imshow(weights[shown, :rows, :columns].numpy(), cmap="Blues", vmin=0, vmax=1)
    ax.set(title=name)
    ax.set_xticks(range(columns), other[shown, :columns].tolist())
    ax.set_yticks(range(rows), one[shown, :rows].tolist())
axes[0].set(xlabel="step", ylabel="error of the count", ylim=(0, None))
axes[0].legend(frameon=False)
