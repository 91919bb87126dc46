"""Files of any format: byte order marks, devices, pipes, and files that are too large."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from lpsmap_decode import FileFormatError
from lpsmap_decode.formats import compressed_text
from lpsmap_decode.formats.compressed_text import file_bytes
from lpsmap_decode.formats.files import read_evidence, read_graph

MARK = "\ufeff"

TEXTS = {
    "m.uai": "MARKOV 1 2 1 1 0 2 0.5 1.5\n",
    "m.fg": "2\n1\n0.5\n-1\nXOR 2 1 2\n",
    "m.wcnf": "p wcnf 2 1 9\n9 1 2 0\n",
    "m.json": json.dumps({"variables": {"u": [1.0, 2.0]}, "factors": []}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_byte_order_mark_counts_for_nothing(tmp_path: Path, name: str) -> None:
    scores = []
    for mark in ("", MARK):
        (tmp_path / name).write_text(mark + TEXTS[name], encoding="utf-8")
        scores.append(read_graph(tmp_path / name).graph.flat_scores())
    np.testing.assert_array_equal(*scores)


def test_evidence_with_a_byte_order_mark(tmp_path: Path) -> None:
    for name, text in (("m.uai", "1 0 1\n"), ("m.json", '{"u[0]": 1}')):
        (tmp_path / name).write_text(TEXTS[name], encoding="utf-8")
        evidence = tmp_path / f"evidence.{name}"
        evidence.write_text(MARK + text, encoding="utf-8")
        named = read_graph(tmp_path / name)
        assert len(read_evidence(evidence, named, tmp_path / name)) == 1


def test_utf_16_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "m.fg").write_text(TEXTS["m.fg"], encoding="utf-16")
    with pytest.raises(FileFormatError, match="is a text in UTF-16; expected UTF-8"):
        read_graph(tmp_path / "m.fg")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a system without /dev")
def test_a_device_is_refused_unread() -> None:
    with pytest.raises(FileFormatError, match="/dev/zero: is a device; expected a text file"):
        file_bytes(Path("/dev/zero"))


def test_large_files_and_pipes_are_read_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_text, "MAX_BYTES", 1000)
    path = tmp_path / "m.fg"
    path.write_bytes(b"1 " * 600)
    with pytest.raises(FileFormatError, match="has more than 1000 bytes"):
        file_bytes(path)
    if not hasattr(os, "mkfifo"):
        return
    pipe = tmp_path / "pipe.fg"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(TEXTS["m.fg"]))
    writer.start()
    assert read_graph(pipe).graph.n_variables == 2
    writer.join()
