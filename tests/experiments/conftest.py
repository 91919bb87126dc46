"""Makes the experiments importable, and small data sets for them."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.sparse import csr_matrix

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.runs import Runner  # noqa: E402
from valency.expressions import evaluate, generate  # noqa: E402


def treebank(rng: np.random.Generator, n_sentences: int) -> str:
    """Return sentences whose verbs are roots, and whose nouns hang from them, in CoNLL-U."""
    lines = []
    for _ in range(n_sentences):
        n = int(rng.integers(2, 8))
        verb = int(rng.integers(1, n + 1))
        for i in range(1, n + 1):
            tag, head, relation = ("VERB", 0, "root") if i == verb else ("NOUN", verb, "nsubj:x")
            word = f"{tag.lower()}{rng.integers(5)}"
            lines.append(f"{i}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    return "\n".join(lines) + "\n"


def operators(n_expressions: int) -> str:
    """Return expressions of ListOps in the format of the test file."""
    found = generate(n_expressions, seed=1, max_tokens=12)
    return "".join(f"{evaluate(one)}\t{' '.join(one)}\n" for one in found)


def labels(rng: np.random.Generator, path: Path) -> None:
    """Write 60 examples of 4 labels, each shown by a feature, in the format of the data sets."""
    x = rng.standard_normal((60, 4))
    parts = {}
    for name, matrix in (("X", csr_matrix(x)), ("Y", csr_matrix((x > 0.5).astype(np.uint8)))):
        parts |= {f"{name}_{key}": getattr(matrix, key) for key in ("data", "indices", "indptr")}
        parts[f"{name}_shape"] = np.array(matrix.shape)
    np.savez(path, train_idx=np.arange(40), test_idx=np.arange(40, 60), **parts)


def sentence_pairs(rng: np.random.Generator, n_pairs: int) -> str:
    """Return pairs in the format of the data sets; a word that is not shared tells the class."""
    lines = ["label\tpremise\thypothesis"]
    for _ in range(n_pairs):
        words = [f"w{rng.integers(9)}" for _ in range(int(rng.integers(3, 9)))]
        label = str(rng.choice(["entailment", "neutral", "contradiction"]))
        some = rng.permutation(words)[: int(rng.integers(2, 6))]
        lines.append(f"{label}\t{' '.join(words)} .\t{' '.join(some)} {label[:2]} .")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small data sets, laid out as the real ones."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    for language in ("en_ewt", "vi_vtb"):
        for part in ("train", "dev", "test"):
            path = folder / "ud" / language / f"{part}.conllu.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(treebank(rng, 30).encode()))
    (folder / "listops").mkdir()
    path = folder / "listops" / "test_d20s.tsv.gz"
    path.write_bytes(gzip.compress(operators(20).encode()))
    (folder / "nli").mkdir()
    for name in ("snli_dev", "snli_test", "cadsnli_train", "mnli20k_train", "mnli20k_val"):
        path = folder / "nli" / f"{name}.tsv.gz"
        path.write_bytes(gzip.compress(sentence_pairs(rng, 24).encode()))
    (folder / "multilabel").mkdir()
    labels(rng, folder / "multilabel" / "emotions.npz")
    return folder


@pytest.fixture
def runner(data: Path, tmp_path: Path) -> Runner:
    """A runner of toy rows."""
    return Runner(data, tmp_path, "toy", Console(quiet=True))
