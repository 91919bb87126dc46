"""
Cookbook: a BiLSTM-CRF tagger
=============================

Find the names of people and places in sentences. A BiLSTM scores the tags of every word, a
conditional random field adds scores of transitions, and the best tagging is found by the Viterbi
algorithm.
"""

import random

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap import Sequence
from lpsmap_torch.losses import CRFLoss

random.seed(0)
torch.manual_seed(0)

# %%
# Names of one to three words, the same words for people and places. Only another word of the
# sentence tells them apart.

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
NAMES = ["jordan", "paris", "austin", "sydney", "chelsea", "lincoln"]
OTHERS = ["today", "we", "often", "really", "then", "again", "also"]
CLUES = {"PER": ["asked", "phoned"], "LOC": ["visited", "left"]}
vocabulary = {w: i for i, w in enumerate([*NAMES, *OTHERS, *sum(CLUES.values(), [])], start=1)}


def sentence():
    """Return the words and tags of a sentence."""
    kind = random.choice(list(CLUES))
    name = random.choices(NAMES, k=random.randint(1, 3))
    spoken = [(w, "O") for w in random.choices(OTHERS, k=random.randint(1, 4))]
    clue = [(random.choice(CLUES[kind]), "O")]
    entity = [(w, f"{'I' if i else 'B'}-{kind}") for i, w in enumerate(name)]
    parts = [clue, spoken, entity] if random.random() < 0.5 else [entity, spoken, clue]
    words, tags = zip(*sum(parts, []), strict=True)
    return [vocabulary[w] for w in words], [TAGS.index(tag) for tag in tags]


def batch(size):
    """Return padded words and tags, and the lengths."""
    drawn = [sentence() for _ in range(size)]
    words, tags = ([torch.tensor(x) for x in part] for part in zip(*drawn, strict=True))
    pad = nn.utils.rnn.pad_sequence
    lengths = torch.tensor([len(w) for w in words])
    return pad(words, batch_first=True), pad(tags, batch_first=True, padding_value=-100), lengths


# %%
# The loss takes the scores of the transitions as an argument of ``Sequence``, and so does
# ``decode``.


class Tagger(nn.Module):
    """Scores of tags and transitions."""

    def __init__(self, size=16):
        super().__init__()
        self.embed = nn.Embedding(1 + len(vocabulary), size)
        self.encode = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.read = nn.Linear(2 * size, len(TAGS))
        self.transitions = nn.Parameter(torch.zeros(len(TAGS), len(TAGS)))

    def forward(self, words, lengths):
        """Return the (batch, n, tags) scores."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(words), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = nn.utils.rnn.pad_packed_sequence(self.encode(packed)[0], batch_first=True)
        return self.read(states)


tagger, criterion = Tagger(), CRFLoss(Sequence)
optimizer = torch.optim.Adam(tagger.parameters(), lr=0.02)
losses, accuracies, whole = [], [], []
for _ in range(160):
    words, tags, lengths = batch(32)
    given = {"transitions": tagger.transitions, "lengths": lengths}
    scores, known = tagger(words, lengths), tags != -100
    best = criterion.decode(scores, **given).argmax(-1)
    loss = criterion(scores, tags, **given)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item() / lengths.float().mean().item())
    right = (best == tags) | ~known
    whole.append(right.all(1).float().mean().item())
    accuracies.append(right[known].float().mean().item())

# %%
# Every batch is new, and is decoded before its update. The tags outside of names are right early;
# whole sentences take longer, since the kind of a name depends on a word elsewhere.

print(f"{accuracies[-1]:.1%} of the tags, {whole[-1]:.1%} of the sentences")
figure, ax = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
ax.plot(losses, color="#999999", label="loss per word")
ax.plot(accuracies, color="#d55e00", label="right tags")
ax.plot(whole, color="#0072b2", label="right sentences")
ax.set(xlabel="update", ylim=(0, None))
ax.legend(frameon=False)

# %%
# The learned scores of transitions, from row to column.

table = tagger.transitions.detach()
limit = table.abs().max().item()
figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
image = ax.imshow(table.numpy(), cmap="RdBu", vmin=-limit, vmax=limit)
ax.set_xticks(range(len(TAGS)), TAGS, rotation=60)
ax.set_yticks(range(len(TAGS)), TAGS)
figure.colorbar(image, ax=ax)
