"""Files that describe more than fits: refused with the estimate and the option, never a crash."""

from __future__ import annotations

import gzip
import io
import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lpsmap_core.plugins.registry import installed
from lpsmap_decode import FileFormatError, read_evidence, read_graph

ADDITIONAL = 2 * 10**9
"""Bytes that a command may take beyond those of its imports."""

IMPORTED = 6 * 10**9
"""Address space that imports and the threads of libraries reserve without using it."""

Make = Callable[[Path], Path]


def written(name: str, text: str) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return make


def model(*factors: dict[str, object], n: int = 25_000) -> str:
    return json.dumps({"variables": {"u": [0] * n}, "factors": list(factors)})


def with_arrays(folder: Path) -> Path:
    """A compressed member of a separate file of arrays."""
    with zipfile.ZipFile(folder / "t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.zeros(4 * 10**7))
        archive.writestr("t.npy", buffer.getvalue())
    path = folder / "arrays.json"
    path.write_text(
        json.dumps({"variables": {"u": {"array": "t"}}, "factors": [], "arrays": "t.npz"})
    )
    return path


PAIRS = {"type": "Pair", "over": ["u[:,None]", "u[None]"], "scores": 0.0}
ROWS = {"type": "Xor", "over": ["u"]}
REPEATED = {"type": "Xor", "over": [f"u[:,None][:,{[0] * 3000}]"]}

NEGATED = {
    "type": "Xor",
    "over": [{"index": [[i] for i in range(20_000)], "negated": [[False] * 20_000]}],
}

ARC = "ARBORESCENCE 1 1 255 0 1\n"
"""One arc of a tree of 254 words, whose other arcs are padding."""


def sequence(length: int) -> str:
    """A sequence whose first position has many states, and the others one."""
    n, n_scores = 2 * length - 1, 3 * length - 1
    sizes = [length, *[1] * (length - 1)]
    words = [n, *range(1, n + 1), length, *sizes, *[0] * n_scores]
    return f"SEQUENCE {' '.join(map(str, words))}\n"


BLOCKS = ", ".join(f'"{i}": []' for i in range(600_000))

HOSTILE: dict[str, Make] = {
    "broadcast views": written("pairs.json", model(PAIRS)),
    "compressed broadcast views": written("pairs.json.gz", model(PAIRS)),
    "many factors over one view": written("rows.json", model(*[ROWS] * 20_000)),
    "broadcast negations": written("negated.json", model(NEGATED)),
    "repeated indices": written("repeated.json", model(REPEATED, n=100_000)),
    "many empty blocks": written("blocks.json", f'{{"variables": {{{BLOCKS}}}, "factors": []}}'),
    "a compressed text": written("zeros.json.gz", model(n=3 * 10**8)),
    "nested lists": written("nested.json", '{"variables": {"u": ' + "[" * 10**6),
    "compressed arrays": with_arrays,
    "a network of many states": written("many.uai", "MARKOV\n1\n1000000000000\n0\n"),
    "a table of many entries": written("table.uai", "MARKOV\n3\n60000 60000 60000\n1\n3 0 1 2\n\n"),
    "a compressed network": written("zeros.uai.gz", "MARKOV\n" + "1 " * 2 * 10**8),
    "a graph of many variables": written("many.fg", "1000000000000\n0\n"),
    "padded trees": written("trees.fg", "1\n20000\n0\n" + ARC * 20_000),
    "padded sequences": written("padded.fg", "159\n2000\n" + "0\n" * 159 + sequence(80) * 2000),
    "many empty graphs": written("empty.fg", "0\n0\n" * 10**6),
    "a compressed graph": written("ones.fg.gz", "100000000\n0\n" + "1\n" * 10**8),
    "a formula of many variables": written("many.wcnf", "p wcnf 1000000000000 1 2\n1 1 0\n"),
    "a compressed formula": written("units.wcnf.gz", "1 1 0\n" * 10**8),
}


def limited(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command under a limit of its address space."""
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({IMPORTED + ADDITIONAL},) * 2)\n"
        "from lpsmap_core.command.entry import main\n"
        "main()"
    )
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_every_format_is_swept(tmp_path: Path) -> None:
    """A new format needs a hostile file here."""
    suffixes = {
        Path(make(tmp_path).name.removesuffix(".gz")).suffix
        for name, make in HOSTILE.items()
        if "compressed" not in name
    }
    assert suffixes == set(installed().formats) - {".asn"}


@pytest.mark.parametrize("name", [name for name in HOSTILE if "compressed" not in name])
def test_readers_refuse_before_they_allocate(name: str, tmp_path: Path) -> None:
    path = HOSTILE[name](tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileFormatError, match=str(path)) as refused:
        read_graph(path)
    assert "MemoryError" not in str(refused.value)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < ADDITIONAL


def test_the_error_has_the_estimate_and_the_option(tmp_path: Path) -> None:
    path = HOSTILE["broadcast views"](tmp_path)
    words = r"11\.3 GB; expected at most 1\.07 GB.*max_memory.*--max-memory"
    with pytest.raises(FileFormatError, match=words):
        read_graph(path)


def test_evidence_is_limited_too(tmp_path: Path) -> None:
    """The same state, observed again and again."""
    path = written("one.uai", "MARKOV\n1\n60000\n0\n")(tmp_path)
    pairs = written("one.uai.evid", "100000\n" + "0 0\n" * 100_000)(tmp_path)
    with pytest.raises(FileFormatError, match="observed states.*--max-memory"):
        read_evidence(pairs, read_graph(path), path)


def test_a_larger_limit_reads_a_larger_file(tmp_path: Path) -> None:
    path = written("rows.json", model(ROWS))(tmp_path)
    with pytest.raises(FileFormatError, match=r"--max-memory\.$"):
        read_graph(path, max_memory=10**5)
    assert read_graph(path, max_memory=10**8).graph.n_variables == 25_000


def test_views_that_repeat_are_estimated_exactly(tmp_path: Path) -> None:
    """A selection of a few rows of a large block is no repetition."""
    factor = {"type": "Xor", "over": [f"u[{list(range(1500))}]"]}
    assert (
        read_graph(written("few.json", model(factor, n=10**5))(tmp_path)).graph.n_variables == 10**5
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
@pytest.mark.parametrize("command", ["info", "solve", "convert", "decode"])
@pytest.mark.parametrize("name", HOSTILE)
def test_commands_end_with_an_error(command: str, name: str, tmp_path: Path) -> None:
    words = [command, HOSTILE[name](tmp_path)]
    if command == "convert":
        words.append(tmp_path / "out.json")
    if command == "decode":
        words += ["--workers", "1"]
    ended = limited(*words)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "MemoryError" not in ended.stderr + ended.stdout
