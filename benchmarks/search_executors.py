"""Measure the boxes per second of a global search with one and with several processes.

Synthetic sentences over three tags. On a shared machine, wall time means little: the processor time
per box, in this process and in the workers, gives the speed on idle cores, `--processes` of which
are shared by the workers and this process.

    python benchmarks/search_executors.py
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from multiprocessing import get_context

import numpy as np

from lpsmap_search import Corpus, global_search, sampled_sentences, verb_noun_adjective

OPTIONS = {"n_restarts": 1, "gap": 1e-3}


def drawn_corpus(n: int) -> Corpus:
    """Return synthetic sentences of at most eight words."""
    model, parameters = verb_noun_adjective()
    sentences = sampled_sentences(model, parameters, n, np.random.default_rng(0), max_words=8)
    return Corpus(model, [sentence.tags for sentence in sentences])


def processor_time(process: int) -> float:
    """Return the processor time of another process, on Linux."""
    return time.clock_gettime((~process << 3) | 2)  # as in clock_getcpuclockid


def started(n: int) -> tuple[Executor, list[int]]:
    """Return a pool with loaded kernels, and the ids of its processes."""
    pool = ProcessPoolExecutor(n, mp_context=get_context("spawn"))
    wait([pool.submit(time.sleep, 2.0) for _ in range(n)])
    global_search(drawn_corpus(5), max_nodes=2000, executor=pool, **OPTIONS)
    return pool, list(pool._processes)


def measured(corpus: Corpus, n_nodes: int, executor: Executor | None, workers: list[int]) -> dict:
    """Measure a search of a number of boxes: microseconds per box, boxes per second."""
    processes = [os.getpid(), *workers]
    begin, before = time.perf_counter(), [processor_time(process) for process in processes]
    found = global_search(corpus, max_nodes=n_nodes, executor=executor, **OPTIONS)
    seconds = time.perf_counter() - begin
    spent = [processor_time(process) - b for process, b in zip(processes, before, strict=True)]
    return {
        "nodes": found.n_nodes,
        "nodes_per_second": round(found.n_nodes / seconds),
        "this_process_us": round(1e6 * spent[0] / found.n_nodes, 1),
        "workers_us": round(1e6 * sum(spent[1:]) / found.n_nodes, 1),
    }


def main() -> None:
    """Print a line for each number of sentences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, nargs="+", default=[8, 20, 50])
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    pool, workers = started(options.processes)
    with pool:
        for n in options.sentences:
            corpus = drawn_corpus(n)
            alone = measured(corpus, options.nodes, None, [])
            spread = measured(corpus, options.nodes, pool, workers)
            total = spread["this_process_us"] + spread["workers_us"]
            result = {
                "sentences": n,
                "one": alone,
                "spread": spread,
                "speedup": spread["nodes_per_second"] / alone["nodes_per_second"],
                "speedup_on_idle_cores": options.processes * alone["this_process_us"] / total,
            }
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
