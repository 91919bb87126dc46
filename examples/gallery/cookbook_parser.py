"""
Cookbook: a dependency parser, from CoNLL-U to UAS
==================================================

Given the trees of a treebank, learn to parse new sentences. A BiLSTM scores every arc, the loss is
that of SparseMAP over projective trees with one root, and the best trees are decoded.
"""

import random
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap import plot
from lpsmap_search import padded_heads, read_conllu
from lpsmap_torch.layers import LatentTree
from lpsmap_torch.losses import SparseMAPLoss

random.seed(0)
torch.manual_seed(0)

# %%
# A small treebank
# ----------------
#
# Use your own file here. This one has toy sentences: the phrase after "of" belongs to the noun
# before it, that after "with" to the verb.

WORDS = {
    "DET": ["a", "the"],
    "ADJ": ["big", "old", "red"],
    "NOUN": ["cat", "dog", "owl", "king", "hat"],
    "VERB": ["saw", "met"],
}


def sentence():
    """Return the words of a sentence with their tags, and their heads, from 1; 0 is the root."""
    tagged, heads = [], []

    def add(tag, word=None):
        tagged.append((word or random.choice(WORDS[tag]), tag))
        heads.append(0)
        return len(heads)

    def phrase():
        modifiers = [add("DET"), *(add("ADJ") for _ in range(random.randint(0, 2)))]
        noun = add("NOUN")
        for modifier in modifiers:
            heads[modifier - 1] = noun
        return noun

    def phrases():
        noun = phrase()
        prepositions = random.choices(["of", "with"], k=random.randint(0, 2))
        return noun, [(noun, word, add("ADP", word), phrase()) for word in prepositions]

    subject, after_subject = phrases()
    verb = add("VERB")
    last, after_object = phrases()
    heads[subject - 1] = heads[last - 1] = verb
    for first, attached in ((subject, after_subject), (last, after_object)):
        noun = first
        for _, word, preposition, other in attached:
            head = noun if word == "of" else first if first == subject else verb
            heads[other - 1], heads[preposition - 1] = head, other
            noun = other
    return tagged, heads


def conllu(size):
    """Return sentences as CoNLL-U."""
    blocks = []
    for tagged, heads in (sentence() for _ in range(size)):
        rows = zip(range(1, 1 + len(heads)), tagged, heads, strict=True)
        lines = [f"{i}\t{w}\t_\t{tag}\t_\t_\t{head}\t_\t_\t_" for i, (w, tag), head in rows]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "toy.conllu"
    path.write_text(conllu(300), encoding="utf-8")
    treebank = list(read_conllu(path))

train, test = treebank[:240], treebank[240:]
vocabulary = {w: i for i, w in enumerate(sorted({w for s in train for w in s.words}), start=1)}


def batch(sentences):
    """Return padded words and heads, and the lengths."""
    words = [torch.tensor([vocabulary.get(w, 0) for w in s.words]) for s in sentences]
    heads, lengths = map(torch.from_numpy, padded_heads(sentences))
    return nn.utils.rnn.pad_sequence(words, batch_first=True), heads, lengths


# %%
# The parser
# ----------
#
# Row m, column h of the scores is the arc from head h to modifier m. The diagonal has the root,
# which is -1 among the heads, as in the treebank.


class Parser(nn.Module):
    """Scores arcs by a biaffine function of the states of a BiLSTM (Dozat & Manning 2017)."""

    def __init__(self, size=32):
        super().__init__()
        self.embed = nn.Embedding(1 + len(vocabulary), size)
        self.encode = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.modifier, self.head = nn.Linear(2 * size, size), nn.Linear(2 * size, size)
        self.root = nn.Linear(2 * size, 1)

    def forward(self, words, lengths):
        """Return the (batch, n, n) scores."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(words), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = nn.utils.rnn.pad_packed_sequence(self.encode(packed)[0], batch_first=True)
        arcs = self.modifier(states) @ self.head(states).mT
        diagonal = torch.eye(words.shape[1], dtype=torch.bool)
        return torch.where(diagonal, self.root(states), arcs)


parser = Parser()
criterion = SparseMAPLoss(LatentTree(projective=True, single_root=True))
optimizer = torch.optim.Adam(parser.parameters(), lr=5e-3)
test_words, test_heads, test_lengths = batch(test)


def parse():
    """Return the heads of the best trees of the test sentences."""
    with torch.no_grad():
        trees = criterion.decode(parser(test_words, test_lengths), lengths=test_lengths)
    heads = trees.argmax(-1)
    return torch.where(heads == torch.arange(heads.shape[1]), -1, heads)


known = test_heads != -100
losses, scores = [], []
for _ in range(5):
    random.shuffle(train)
    for k in range(0, len(train), 24):
        words, heads, lengths = batch(train[k : k + 24])
        loss = criterion(parser(words, lengths), heads, lengths=lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() / lengths.float().mean().item())
        if len(losses) % 2:
            scores.append((parse() == test_heads)[known].float().mean().item())

# %%
# What is seen
# ------------
#
# UAS is the share of test words with the right head. The loss becomes exactly zero for sentences
# whose tree has a margin over all others.

print(f"UAS {scores[-1]:.1%} after {len(losses)} updates")
figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
ax.plot(losses, color="#999999", label="loss per word")
ax.plot(range(0, len(losses), 2), scores, color="#0072b2", label="UAS of the test sentences")
ax.set(xlabel="update", ylim=(0, 1.02))
ax.legend(frameon=False)

# %%
# A test sentence with its trees.

shown = max(range(len(test)), key=lambda i: len(test[i]))
n = len(test[shown])
with torch.no_grad():
    found = parser(test_words[shown : shown + 1, :n], torch.tensor([n]))
plot.arcs(criterion.factors.structures(found)[0], test[shown].words)
