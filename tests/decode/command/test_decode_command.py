"""The command ``lpsmap decode``: many files, by processes, gone on with after an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from forks import Server
from lpsmap_core.command import cli
from lpsmap_decode.command import decode_files as module
from lpsmap_decode.corpus.journal import Journal, JournalError

LPSMAP = [sys.executable, "-c", "from lpsmap_core.command.cli import main; main()"]


def coin(state: int) -> str:
    """Return a model of one variable whose best state is `state`."""
    return f"MARKOV 1 2 1 1 0 2 {2 - state} {1 + state}"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for i in range(5):
        (tmp_path / f"m{i}.uai").write_text(coin(i % 2))
    (tmp_path / "m2.uai").write_text("MARKOV 1")
    return tmp_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process do the work, which starts at once."""
    monkeypatch.setattr(module, "_executor", lambda *_: nullcontext())


def decode(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["decode", *map(str, arguments)])


def lines_of(text: str) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()]
    found = {Path(line["path"]).name: line for line in lines}
    assert len(found) == len(lines)
    return found


def test_every_file_has_its_line(models: Path, here: None) -> None:
    result = decode(models / "m*.uai", "--workers", 1)
    assert result.exit_code == 1
    assert "4 solved, 1 failed" in result.stderr
    found = lines_of(result.stdout)
    assert sorted(found) == [f"m{i}.uai" for i in range(5)]
    assert "m2.uai: line 1" in found.pop("m2.uai")["error"]
    for name, line in found.items():
        assert line["status"] == ["PROVED"]
        assert line["variables"]["x0"].index(1.0) == int(name[1]) % 2


def test_what_is_done_is_not_done_again(models: Path, here: None) -> None:
    out = models / "out.jsonl"
    arguments = models / "m[0-3].uai", "--out", out, "--workers", 1
    assert decode(*arguments).exit_code == 1
    before = lines_of(out.read_text())
    with out.open("a") as file:
        file.write('{"file": "m4.u')  # a crash cut it short
    (models / "m2.uai").write_text(coin(0))
    result = decode(models / "*.uai", *arguments[1:])
    assert result.exit_code == 0, result.output
    assert "2 solved, 3 done before" in result.stderr
    after = lines_of(out.read_text())
    assert sorted(after) == [f"m{i}.uai" for i in range(5)]
    assert {name: after[name] for name in before if name != "m2.uai"} == {
        name: line for name, line in before.items() if name != "m2.uai"
    }
    assert "5 done before" in decode(models / "*.uai", *arguments[1:]).stderr


def test_files_of_others_are_left_alone(models: Path) -> None:
    out = models / "out.jsonl"
    for text, words in (
        ("my notes\nof today\n", "line 1 is not a result"),
        ("my notes\n", "line 1 is not a result"),
        ('{"variables": {"u": [1.0]}, "factors": []}', "line 1 is not a result"),
        ('{"path": "a", "task": "lp-map"}\n', "results of the task 'lp-map'; expected 'map'"),
    ):
        out.write_text(text)
        result = decode(models / "m0.uai", "--out", out)
        assert result.exit_code == 1
        assert words in result.output
        assert out.read_text() == text
    with Journal(models / "other", "map"), pytest.raises(JournalError, match="another process"):
        Journal(models / "other", "map").__enter__()


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is POSIX's")
def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Journal(tmp_path / "out", "map") as journal:
            journal.append({"path": "a", "task": "map"})
            resource.setrlimit(resource.RLIMIT_FSIZE, (60, before[1]))
            with pytest.raises(OSError, match=r"full|large"):
                journal.append({"path": "b" * 100, "task": "map"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(lines_of((tmp_path / "out").read_text())) == ["a"]


def test_a_reader_may_close_the_pipe(models: Path, warm_server: Server) -> None:
    end, pipe = os.pipe()
    os.close(end)
    with open(pipe, "w") as closed:
        done = warm_server.run(LPSMAP[2], "decode", models / "m0.uai", "-q", stdout=closed)
    assert done.returncode == 1
    assert not done.stderr


def test_results_go_into_files_alone(models: Path, tmp_path: Path) -> None:
    for out, words in ((os.devnull, "not a regular file"), ("/proc/x", "no file can be created")):
        result = decode(models / "m0.uai", "--out", out)
        assert result.exit_code == 1
        assert words in result.output


def test_wrong_commands_are_told_in_a_line(models: Path) -> None:
    for arguments, words in (
        (["nothing*"], "no file matches 'nothing*'"),
        ([models / "m0.uai", "--workers", 1, "--scheduler", "tcp://here:1"], "exclude each other"),
    ):
        result = decode(*arguments)
        assert result.exit_code == 2
        assert words in result.output
    result = decode(models / "m0.uai", "--solver", "best")
    assert result.exit_code == 1
    assert "solver: got 'best'; expected one of auto, lpsmap, highs" in result.output


SLOW = """
import signal
import time
from lpsmap_core.command.cli import main
from lpsmap_decode import UaiFormat
read = UaiFormat.read
UaiFormat.read = lambda self, path: time.sleep(600.0 * ("m0" not in str(path))) or read(self, path)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_interrupted_run_is_gone_on_with(tmp_path: Path, here: None) -> None:
    for i in range(8):
        (tmp_path / f"m{i}.uai").write_text(coin(i % 2))
    (tmp_path / "slow.py").write_text(SLOW)
    out = tmp_path / "out.jsonl"
    arguments = ["decode", str(tmp_path / "*.uai"), "--out", str(out), "--workers", "1"]
    command = [sys.executable, str(tmp_path / "slow.py"), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (out.exists() and out.stat().st_size):
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60.0)  # nobody waits for the second model
    assert process.returncode == 130
    assert "Run the same command again to continue." in said
    assert "Traceback" not in said
    first = lines_of(out.read_text())
    assert len(first) == 1
    assert decode(*arguments[1:]).exit_code == 0
    second = lines_of(out.read_text())
    assert len(second) == 8
    assert {name: second[name] for name in first} == first
    assert os.listdir(tmp_path).count("out.jsonl") == 1


def test_models_of_other_folders_are_others(
    tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.jsonl"
    for state, name in enumerate("ab"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "m.uai").write_text(coin(state))
        monkeypatch.chdir(folder)
        result = decode("*.uai", "./m.uai", folder / "m.uai", "--out", out)
        assert result.stderr.startswith("1 solved")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["file"] for line in lines] == ["m.uai", "m.uai"]
    assert [line["variables"]["x0"].index(1.0) for line in lines] == [0, 1]


def test_the_folder_of_the_results_has_to_exist(models: Path, here: None) -> None:
    result = decode(models / "m0.uai", "--out", models / "typo" / "out.jsonl")
    assert result.exit_code == 1
    assert "the folder does not exist. Create it first." in result.stderr
    assert not (models / "typo").exists()
