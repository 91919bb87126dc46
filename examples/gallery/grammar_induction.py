"""
A grammar with a certificate
============================

Which grammar explains five sentences over three tags best? Expectation maximisation converges to
one of many local optima. A global search finds the global optimum with a proof: the bound decreases
until it is within one percent of the likelihood.
"""

import matplotlib.pyplot as plt
import numpy as np

from lpsmap_search import (
    Corpus,
    TaggedSentence,
    figures,
    global_search,
    parse,
    restarts,
    verb_noun_adjective,
)

model, _ = verb_noun_adjective()
sentences = ["VA", "AANVV", "NV", "ANVN", "NVV"]
corpus = Corpus(model, sentences)
history = []
found = global_search(
    corpus, report=lambda p: history.append((p.seconds, p.score, p.bound)), gap=0.01
)
print(f"{found.objective:.5f} is the best up to {found.gap:.3f}, after {found.n_nodes} boxes")

# %%
# Objective and bound over time. The initial bound of 0 only says that probabilities are at most
# one.

figures.bounds(history)

# %%
# The results of ten restarts of Viterbi EM. The dashed line is the optimum.

ends = [restarts(corpus, n_restarts=1, seed=seed).objective for seed in range(10)]
figure, ax = plt.subplots(figsize=(5.5, 2.4), layout="constrained")
ax.plot(np.sort(ends), "o", color="#0072b2")
ax.axhline(found.objective, color="#d55e00", ls="--")
ax.set(xlabel="restart, the worst first", ylabel="log-likelihood", xticks=range(10))
ax.spines[["top", "right"]].set_visible(False)

# %%
# The best trees under the best grammar.

with np.errstate(divide="ignore"):
    trees = parse(model, sentences, np.log(found.parameters))
words = [TaggedSentence(tuple(tags), tuple(tags), None) for tags in sentences]
figures.trees(words, trees, columns=3)
plt.show()
