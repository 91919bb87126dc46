"""Milliseconds of a pass over 200 sentences: the best structures, and the expected counts.

Sentences over 13 tags with 1,240 words, sampled so that short ones repeat as in texts.

    python benchmarks/search_speed.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from lpsmap_search import (
    Corpus,
    DependencyModelWithValence,
    expected_counts,
    viterbi,
)
from lpsmap_search.sparse_counts import SparseCounts

N_TAGS, N_SENTENCES, N_WORDS = 13, 200, 1240


def drawn_corpus(rng: np.random.Generator) -> Corpus:
    """Return sentences of 1 to 10 words with a given total number of words."""
    lengths = rng.integers(1, 11, N_SENTENCES)
    while lengths.sum() != N_WORDS:
        one, step = rng.integers(N_SENTENCES), 1 if lengths.sum() < N_WORDS else -1
        lengths[one] = np.clip(lengths[one] + step, 1, 10)
    frequency = 1.0 / np.arange(1, N_TAGS + 1)
    tags = [f"T{i}" for i in range(N_TAGS)]
    return Corpus(
        DependencyModelWithValence(tags),
        [rng.choice(tags, n, p=frequency / frequency.sum()).tolist() for n in lengths],
    )


def milliseconds(call: Callable[[], object], repetitions: int) -> float:
    """Return the minimum processor time of a call, in milliseconds."""
    call()
    times = []
    for _ in range(repetitions):
        begin = time.process_time()
        for _ in range(5):
            call()
        times.append((time.process_time() - begin) / 5)
    return 1e3 * min(times)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    repetitions = parser.parse_args().repetitions
    rng = np.random.default_rng(0)
    corpus = drawn_corpus(rng)
    model = corpus.model
    scores = np.log(model.normalised(rng.exponential(size=model.n_parameters)))
    n_edges = len(corpus.derivations.first_use) - 1
    print(
        f"{corpus.n_sentences} sentences, {len(corpus.sentences)} different, {n_edges} hyperedges"
    )
    best = milliseconds(lambda: viterbi(corpus, scores), repetitions)
    print(f"best structures  {best:7.3f} ms")
    sums = milliseconds(lambda: expected_counts(corpus, scores), repetitions)
    print(f"expected counts  {sums:7.3f} ms, {sums / best:.2f} times as long")
    steps = SparseCounts(corpus)
    print(f"sparse counts    {milliseconds(lambda: steps(scores), 5):7.3f} ms")


if __name__ == "__main__":
    main()
