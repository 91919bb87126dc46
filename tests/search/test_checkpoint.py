"""Searches that are killed and go on from their files; files that are refused."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import FIVE, OPTIMUM
from forks import Server
from lpsmap_decode import Search, SearchProgress
from lpsmap_search import (
    Certified,
    Corpus,
    CountConstraint,
    DependencyModelWithValence,
    HiddenMarkovModel,
    global_search,
)
from lpsmap_search.checkpoint import Checkpoint, subject_of
from lpsmap_search.lagrangian_space import LagrangianSpace
from searching import Searching, eight

MODEL = DependencyModelWithValence("VNA")
CORPUS = Corpus(MODEL, FIVE)


def asked() -> CountConstraint:
    return CountConstraint(np.array([name == "root V" for name in MODEL.names]) * 1.0, 2.0)


def same(found: Certified, expected: Certified) -> bool:
    return (
        (found.objective, found.bound, found.n_nodes, found.proved)
        == (expected.objective, expected.bound, expected.n_nodes, expected.proved)
    ) and bool((found.counts == expected.counts).all())


# -------------------------------------------------------------------- going on


@pytest.mark.compiled
def test_a_search_in_pieces_is_the_search_in_one(tmp_path: Path) -> None:
    """Node for node: not one is lost, and not one is looked at twice."""
    path, whole, seconds = tmp_path / "five", global_search(CORPUS), 0.0
    for most in range(300, 10_000, 300):
        found = global_search(CORPUS, checkpoint=path, max_nodes=most)
        assert [file.name for file in tmp_path.iterdir()] == ["five"]
        assert found.seconds > seconds
        seconds = found.seconds
        if found.proved:
            break
        assert found.n_nodes == most
        assert found.objective <= OPTIMUM + 1e-9 <= found.bound + 2e-9
    # 300 is no multiple of the batches, which therefore differ; the answer does not
    assert found.objective == whole.objective
    assert found.bound - whole.bound == pytest.approx(0.0, abs=0.01 * abs(OPTIMUM))
    again = global_search(CORPUS, checkpoint=path)
    assert same(again, found)


@pytest.mark.compiled
def test_killed_and_resumed(tmp_path: Path, warm_server: Server) -> None:
    check_kills(warm_server, tmp_path, 1, 1_000)


@pytest.mark.slow
@pytest.mark.compiled
def test_killed_20_times_and_resumed(tmp_path: Path, warm_server: Server) -> None:
    check_kills(warm_server, tmp_path, 20, 1_500)


def check_kills(server: Server, folder: Path, n: int, most: int) -> None:
    """Kill searches after up to `most` boxes each; the last ends as if there had been no other."""
    rng, path, whole = np.random.default_rng(n), folder / "eight", global_search(eight())
    options: dict[str, Any] = {"checkpoint": str(path), "checkpoint_interval": 0.0}
    first, seconds = [], []
    for _ in range(n):
        with Searching(server, **options, sleep=0.01) as child:
            first.append(child.searched(0))
            child.searched(first[-1] + int(rng.integers(1, most)))
            time.sleep(0.03 * rng.random())
            child.kill()
        seconds.append(saved(path)["seconds"])
    with Searching(server, **options) as child:
        first.append(child.searched(0))
        found = child.result()
    assert first == sorted(first) and first[0] == 0 < first[-1]
    assert seconds == sorted(seconds)
    assert (found["objective"], found["bound"]) == (whole.objective, whole.bound)
    assert found["n_nodes"] == whole.n_nodes > first[-1]
    assert found["seconds"] > seconds[-1]
    assert found["proved"] and not found["interrupted"]


def saved(path: Path) -> dict[str, Any]:
    """Return a checkpoint's header: it can be read without this package, and without pickles."""
    with np.load(path, allow_pickle=False) as arrays:
        header: dict[str, Any] = json.loads(arrays["header"].tobytes())
        assert len(arrays["bounds"]) == len(arrays["box_bounds"])
    return header


@pytest.mark.compiled
def test_every_exit_writes(tmp_path: Path) -> None:
    def interrupt(found: SearchProgress) -> None:
        raise KeyboardInterrupt

    def fail(found: SearchProgress) -> None:
        if found.n_nodes > 200:
            raise ArithmeticError

    path = tmp_path / "five"
    for options in ({"max_time": 0.0}, {"max_nodes": 100}, {"report": interrupt}):
        found = global_search(CORPUS, checkpoint=path, **options)
        header = saved(path)
        assert header["n_nodes"] == found.n_nodes
        assert (header["score"], header["bound"]) == (found.objective, found.bound)
    assert found.interrupted and found.n_nodes == 100
    with pytest.raises(ArithmeticError):
        global_search(CORPUS, checkpoint=path, report=fail)
    assert 200 < saved(path)["n_nodes"] < 1000
    assert global_search(CORPUS, checkpoint=path).objective == pytest.approx(OPTIMUM, rel=1e-13)


def test_it_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Checkpoint.write

    def counted(self: Checkpoint, space: Any, state: Any) -> None:
        written.append(state.found.n_nodes)
        write(self, space, state)

    monkeypatch.setattr(Checkpoint, "write", counted)
    found = global_search(CORPUS, max_nodes=500, checkpoint=tmp_path / "a")
    assert written == [0, found.n_nodes]
    written.clear()
    global_search(
        CORPUS,
        max_nodes=500,
        checkpoint=tmp_path / "b",
        checkpoint_interval=0.0,
        report=lambda found: time.sleep(0.01),
    )
    assert len(written) > 2
    assert written == sorted(written)


def test_constraints_go_on(tmp_path: Path) -> None:
    options: dict[str, Any] = {"constraint": asked(), "gap": 0.05}
    whole = global_search(CORPUS, **options, max_nodes=640)
    for most in (320, 640):
        found = global_search(CORPUS, **options, checkpoint=tmp_path / "a", max_nodes=most)
    assert found.n_nodes == whole.n_nodes and found.objective == whole.objective
    assert found.bound == pytest.approx(whole.bound, abs=0.5)


def test_a_corpus_of_one_word_goes_on(tmp_path: Path) -> None:
    corpus = Corpus(DependencyModelWithValence("a"), ["a"])
    for _ in range(2):
        found = global_search(corpus, checkpoint=tmp_path / "one")
        assert (found.proved, found.objective, found.bound, found.n_nodes) == (True, 0.0, 0.0, 0)


# -------------------------------------------------------------------- what is refused


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A search that stopped early."""
    global_search(CORPUS, checkpoint=tmp_path / "five", max_nodes=100)
    return tmp_path / "five"


def checkpoint(path: Path, gap: float = 0.01) -> Checkpoint:
    return Checkpoint(path, subject_of(CORPUS, None, "lagrangian"), gap)


def test_damage_is_seen(path: Path) -> None:
    """Whatever byte is another, and wherever the file ends."""
    rng, content, space = np.random.default_rng(0), path.read_bytes(), LagrangianSpace(CORPUS, 0.01)
    expected = pickle.dumps(checkpoint(path).read(space))
    n_refused = 0
    ends = [*range(0, len(content), len(content) // 20), len(content) - 1]
    damaged = [content[:end] for end in ends]
    places = [*rng.integers(len(content), size=200), *range(len(content) - 300, len(content))]
    for place in places:
        damaged.append(content[:place] + bytes([content[place] ^ 0x14]) + content[place + 1 :])
    for one in damaged:
        path.write_bytes(one)
        try:
            assert pickle.dumps(checkpoint(path).read(space)) == expected
        except ValueError as error:
            assert "is damaged, or not a checkpoint" in str(error)
            n_refused += 1
    assert n_refused > 300


@pytest.mark.parametrize(
    "content", [b"", b"VNA\n", pickle.dumps([1, 2])], ids=["none", "text", "pickle"]
)
def test_other_files_are_refused_and_stay(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint: .*five is damaged, or not a checkpoint"):
        global_search(CORPUS, checkpoint=path)
    assert path.read_bytes() == content


def test_a_large_file_that_is_no_checkpoint_is_not_read_whole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**29)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="is damaged, or not a checkpoint"):
            checkpoint(path).read(LagrangianSpace(CORPUS, 0.01))
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


class Trap:
    """Says so if it is unpickled."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return setattr, (Trap, "sprung", True)


def test_no_pickle_is_read(path: Path) -> None:
    with np.load(path) as arrays:
        content = dict(arrays)
    content["box_bounds"] = np.array([Trap()], dtype=object)
    with path.open("wb") as file:
        np.savez(file, **content)
    with pytest.raises(ValueError, match="is damaged, or not a checkpoint"):
        global_search(CORPUS, checkpoint=path)
    assert not Trap.sprung


def changed(path: Path, **header: Any) -> None:
    """Change the header of a checkpoint."""
    with np.load(path) as arrays:
        content = dict(arrays)
    text = json.dumps(json.loads(content["header"].tobytes()) | header)
    content["header"] = np.frombuffer(text.encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **content)


def test_newer_files_are_refused(path: Path) -> None:
    changed(path, version=2, subject={}, new="field")
    with pytest.raises(
        ValueError, match=r"has format 2; expected at most 1\. It was written by a newer"
    ):
        global_search(CORPUS, checkpoint=path)


@pytest.mark.parametrize(
    "fields",
    [{"subject": None}, {"subject": "x"}, {"subject": [1]}, {"gap": None}, {"gap": "wide"}],
    ids=str,
)
def test_fields_of_other_types_are_damage(path: Path, fields: dict[str, Any]) -> None:
    changed(path, **fields)
    with pytest.raises(ValueError, match="is damaged, or not a checkpoint"):
        global_search(CORPUS, checkpoint=path, gap=0.0)


@pytest.mark.parametrize(
    ("corpus", "options", "message"),
    [
        (Corpus(MODEL, FIVE[:-1]), {}, "belongs to another corpus"),
        (Corpus(MODEL, [*FIVE, "NVV"]), {}, "belongs to another corpus"),
        (Corpus(DependencyModelWithValence("VNB"), ["VB"]), {}, "belongs to another corpus"),
        (Corpus(HiddenMarkovModel(2, "VNA"), FIVE), {}, "belongs to another corpus"),
        (CORPUS, {"constraint": asked()}, "belongs to another constraint"),
    ],
)
def test_checkpoints_of_other_searches_are_refused(
    path: Path, corpus: Corpus, options: dict[str, Any], message: str
) -> None:
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        global_search(corpus, checkpoint=path, **options)
    assert path.read_bytes() == before


def test_another_relaxation_is_refused(path: Path) -> None:
    changed(path, subject=subject_of(CORPUS, None, "chord")._asdict())
    with pytest.raises(ValueError, match="belongs to another relaxation"):
        global_search(CORPUS, checkpoint=path)


@pytest.mark.compiled
def test_only_a_wider_gap_goes_on(tmp_path: Path) -> None:
    """Boxes that were good enough for the gap are not in the file."""
    path = tmp_path / "five"
    found = global_search(CORPUS, checkpoint=path, gap=0.1)
    assert found.proved
    with pytest.raises(ValueError, match=r"gap: got 0\.01; expected at least 0\.1"):
        global_search(CORPUS, checkpoint=path, gap=0.01)
    wider = global_search(CORPUS, checkpoint=path, gap=0.2)
    assert wider.proved and wider.n_nodes == found.n_nodes
    path.unlink()
    global_search(CORPUS, checkpoint=path, gap=0.1, max_nodes=1)
    assert global_search(CORPUS, checkpoint=path, gap=0.01).proved  # none was left behind yet


@pytest.mark.parametrize("name", [".", "no/folder", "file/below"])
def test_paths_that_cannot_be_written_are_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="checkpoint: .*Choose another path"):
        global_search(CORPUS, checkpoint=tmp_path / name, n_restarts=10**9)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_warned_about(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; the older file stays, and the search goes on."""
    before = path.read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lpsmap_search.checkpoint.os.fsync", full)
    options: dict[str, Any] = {"max_nodes": 500, "checkpoint": path, "checkpoint_interval": 0.0}
    with pytest.warns(RuntimeWarning, match="five could not be written: .*No space left") as seen:
        found = global_search(CORPUS, **options)
    assert len(seen) == 1 and found.n_nodes == 500
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["five"]
    monkeypatch.undo()
    assert global_search(CORPUS, **options).n_nodes == 500


def test_a_folder_that_vanishes_is_warned_about(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def remove(found: SearchProgress) -> None:
        if found.n_nodes > 100:
            shutil.rmtree(folder, ignore_errors=True)

    with pytest.warns(RuntimeWarning, match="could not be written"):
        found = global_search(CORPUS, checkpoint=folder / "five", max_nodes=500, report=remove)
    assert found.n_nodes == 500 and found.bound >= OPTIMUM - 1e-9


def test_states_survive(tmp_path: Path) -> None:
    """Also with batches that are out, which count as open."""
    space = LagrangianSpace(CORPUS, 0.01)
    search: Search[Any, Any] = Search(space.root(), 0.01, (-40.0, np.ones(45)), bound=0.0)
    search.run(space, max_nodes=200)
    out = search.take(7)
    state = search.state()
    file = checkpoint(tmp_path / "a")
    file.write(space, state)
    read = file.read(space)
    assert read is not None
    assert read.found.score == state.found.score and read.found.bound == state.found.bound
    assert read.bounds == list(state.bounds) and read.given_up == state.given_up
    assert len(read.nodes) == len(state.nodes) > len(out) == 7
    assert {node.bounds.tobytes() for node in out.nodes} <= {
        node.bounds.tobytes() for node in read.nodes
    }
    for one, other in zip(read.nodes, state.nodes, strict=True):
        assert (one.bounds == other.bounds).all() and (one.multipliers == other.multipliers).all()
        assert one.bounds.base is None and one.bounds.flags.c_contiguous
    with zipfile.ZipFile(tmp_path / "a") as archive:
        assert archive.testzip() is None
    assert math.isfinite(read.found.bound)
