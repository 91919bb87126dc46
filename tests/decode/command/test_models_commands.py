"""The commands on files of models: solve with evidence, info, convert."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import lpsmap_decode
from forks import Server, without
from lpsmap import FactorGraph, Xor
from lpsmap_core import installed
from lpsmap_core.command import cli
from lpsmap_decode import SearchProgress, read_assignment, read_graph
from lpsmap_decode.command.progress_log import ProgressLog
from lpsmap_decode.command.solve_file import UNSOLVED
from lpsmap_decode.component_results import parts_of

MODEL = "MARKOV 3 2 3 2 3 1 0 2 0 1 2 1 2\n2 1 2\n6 1 2 3 4 5 6\n6 1 2 0 4 5 6\n"
MAIN = "from lpsmap_core.command.cli import main; main()"
LPSMAP = [sys.executable, "-c", MAIN]
FORMULA = "h 1 2 0\n3 -1 -2 0\n5 3 0\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.uai"
    path.write_text(MODEL)
    return path


def lpsmap(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def answer_of(result: Result) -> dict[str, list[float]]:
    assert result.exit_code == 0, result.output
    answer: dict[str, list[float]] = json.loads(result.stdout)["variables"]
    return answer


@pytest.mark.parametrize(
    ("name", "text"),
    [("e.evid", "2 1 2 2 0"), ("e.json", '{"x1": [0, null, 1], "x1[1]": 0, "x2[0]": 1}')],
)
def test_solve_with_evidence(model: Path, name: str, text: str) -> None:
    evidence = model.with_name(name)
    evidence.write_text(text)
    answer = answer_of(lpsmap("solve", model, "--evidence", evidence))
    assert answer["x1"] == [0.0, 0.0, 1.0]
    assert answer["x2"] == [1.0, 0.0]
    np.testing.assert_allclose(sum(answer["x0"]), 1.0)
    assert answer_of(lpsmap("solve", model))["x1"] != answer["x1"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("e.evid", "1 7 0", "e.evid: line 1, column 3: got 7; expected a variable, from 0 to 2"),
        ("e.json", "[", "e.json: evidence: line 1, column 2: Expecting value"),
        ("e.json", '{"y": 1}', "'y' in 'y' is not a view"),
        ("e.json", '{"x0": "on"}', "could not convert"),
        ("e.json", '{"x0": 2}', "holds 2; expected 0, 1, or NaN"),
        ("e.json", '{"x0[0]": 1, "x0": 0}', "given both as 0 and as 1"),
        ("e.json", '{"x0": [1, 0, 0]}', "expected one that broadcasts to (2,)"),
    ],
)
def test_wrong_evidence_is_told_in_a_line(model: Path, name: str, text: str, words: str) -> None:
    evidence = model.with_name(name)
    evidence.write_text(text)
    result = lpsmap("solve", model, "--evidence", evidence)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.output.startswith("Error: ")
    assert words in result.output


def test_formats_without_evidence_say_so(tmp_path: Path) -> None:
    (tmp_path / "a.wcnf").write_text(FORMULA)
    (tmp_path / "e.evid").write_text("1 0 1")
    result = lpsmap("solve", tmp_path / "a.wcnf", "--evidence", tmp_path / "e.evid")
    assert result.exit_code == 1
    assert "has no format for evidence; expected a JSON object" in result.output
    (tmp_path / "e.json").write_text('{"x[0]": 0}')
    answer = answer_of(lpsmap("solve", tmp_path / "a.wcnf", "--evidence", tmp_path / "e.json"))
    np.testing.assert_allclose(answer["x"], [0.0, 1.0, 1.0])


@pytest.mark.filterwarnings("default")
def test_evidence_that_cannot_be_is_an_outcome(model: Path) -> None:
    evidence = model.with_name("e.json")
    evidence.write_text('{"x1[0]": 1, "x1[1]": 1}')
    result = lpsmap("solve", model, "--evidence", evidence)
    assert result.exit_code == UNSOLVED
    assert "INFEASIBLE" in json.loads(result.stdout)["status"]


def test_info_says_what_is_there(model: Path) -> None:
    result = lpsmap("info", model)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "blocks: 3, of 2 to 3 binary variables",
        "variables: 7, 0 of them forbidden",
        "components: 1, of 7 variables",
        "FACTOR  NUMBER  ARITY  ADDITIONALS",
        "Dense        2      5           12",
    ]
    empty = model.with_name("empty.wcnf")
    empty.write_text("")
    assert lpsmap("info", empty).output.splitlines()[-1] == "no factors"


def test_convert_and_solve(model: Path) -> None:
    for name in ("model.json", "model.json.gz"):
        target = model.with_name(name)
        result = lpsmap("convert", model, target)
        assert result.exit_code == 0
        assert result.output == ""
        assert answer_of(lpsmap("solve", target)) == answer_of(lpsmap("solve", model))
        assert list(read_graph(target).variables) == ["x0", "x1", "x2"]


def test_what_cannot_be_converted_is_told_in_a_line(model: Path) -> None:
    for target, words in (
        ("model.wcnf", "graphs cannot be written as WCNF"),
        ("model.xyz", "no installed file format has the suffix '.xyz'"),
        ("nowhere/model.json", "nowhere"),
    ):
        result = lpsmap("convert", model, model.with_name("copy") / ".." / target)
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert words in result.output
    assert lpsmap("convert", model.with_name("missing.uai"), "a.json").exit_code == 2


def test_a_pipe_that_closes_early_is_no_traceback(model: Path, warm_server: Server) -> None:
    big = model.with_name("big.wcnf")
    big.write_text("".join(f"{i + 1} {i + 1} 0\n" for i in range(20_000)))
    with warm_server.begin(MAIN, model.parent, os.environ, ["solve", big]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == '{"status":'
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_an_answer_goes_through_a_pipe(model: Path) -> None:
    command = [*LPSMAP, "solve", str(model)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert set(json.loads(done.stdout)["variables"]) == {"x0", "x1", "x2"}


FRUSTRATED = "h 1 -2 0\n2 1 2 0\n2 -1 -2 0\n2 1 -2 0\n2 -1 2 0\n"


@pytest.mark.parametrize("task", ["lp-map", "map"])
def test_solve_for_the_best(model: Path, task: str) -> None:
    answer = answer_of(lpsmap("solve", model, "--task", task))
    assert {name: np.argmax(u) for name, u in answer.items()} == {"x0": 1, "x1": 2, "x2": 1}
    for u in answer.values():
        np.testing.assert_allclose(sorted(u), [0.0] * (len(u) - 1) + [1.0], atol=1e-5)


def test_the_best_is_said_with_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a.uai"
    path.write_text(hard_grid(11))
    result = lpsmap("solve", path, "--task", "map", "--quiet")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["status"] == ["PROVED"]
    assert answer["bound"] == pytest.approx(answer["score"])
    assert answer["nodes"][0] > 0
    wrong = lpsmap("solve", path, "--task", "best")
    assert wrong.exit_code == 2


def test_an_answer_as_a_table_and_as_states(model: Path) -> None:
    table = lpsmap("solve", model, "--task", "map", "--output", "table").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["VARIABLE", "VALUE"],
        *([name, "1"] for name in ("x0[1]", "x1[2]", "x2[1]")),
        [],
        ["STATUS", "COMPONENTS", "SCORE", "BOUND"],
        ["PROVED", "1", *table[-1].split()[2:]],
    ]
    assert float(table[-1].split()[2]) == pytest.approx(np.log(72.0))
    states = lpsmap("solve", model, "--task", "map", "--output", "uai").stdout
    assert states == "MAP\n3 1 2 1\n"
    copy = model.with_name("a.MAP")
    copy.write_text(states)
    assert read_assignment(copy, [2, 3, 2]).tolist() == [1, 2, 1]
    grid = model.with_name("grid.json")
    grid.write_text('{"variables": {"u": [[1, 2]]}, "factors": []}')
    refused = lpsmap("solve", grid, "--output", "uai")
    assert refused.exit_code == 1
    assert "u has shape (1, 2); expected one-dimensional blocks of states" in refused.output
    grid.write_text('{"variables": {"u": [1, 2]}, "factors": []}')
    refused = lpsmap("solve", grid, "--output", "uai")
    assert refused.exit_code == 1
    assert "the values of u sum to 2; expected 1" in refused.output
    grid.write_text('{"variables": {"u": [[1, 2]]}, "factors": []}')
    assert "u[0, 1]" in lpsmap("solve", grid, "--output", "table").stdout


@pytest.mark.parametrize("task", ["sparsemap", "lp-map", "map"])
def test_convergence_is_drawn(tmp_path: Path, task: str) -> None:
    path, picture = tmp_path / "a.wcnf", tmp_path / "a.png"
    path.write_text(FRUSTRATED)
    result = lpsmap("solve", path, "--task", task, "--trace", picture)
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    for name in ("none/a.png", "a.xyz", "a"):  # told before the solve
        nowhere = lpsmap("solve", path, "--task", task, "--trace", tmp_path / name)
        assert nowhere.exit_code == 2
        assert "Invalid value for --trace" in nowhere.stderr
        assert not nowhere.stdout


def test_bound_and_score_of_a_picture_meet() -> None:
    narration = ProgressLog(aloud=False)
    for component, score, bound in ((0, 1.0, 9.0), (1, -np.inf, 5.0), (0, 2.0, 3.0), (1, 4.0, 4.0)):
        narration.search(component, SearchProgress(score, bound, 1, 0.0))
    graph = FactorGraph()
    u = graph.variable_from([[2.0, 1.0], [4.0, 0.0], [7.0, 1.0]])
    graph.add(Xor(u))
    found = graph.solve_map(exact=True)
    seconds, score, bound = narration.history(found, parts_of(found)).T
    assert (np.diff(seconds) >= 0.0).all()
    np.testing.assert_array_equal(score, [-np.inf, -np.inf, 13.0, 13.0])
    # bounds of a search are larger by what rounding may hide
    np.testing.assert_allclose(bound, [21.0, 15.0, 14.0, 13.0], rtol=1e-12, atol=0)


def test_shells_complete_commands_and_options() -> None:
    assert "_LPSMAP_COMPLETE=bash_complete" in lpsmap("completion", "bash").output
    cases = {
        "so": "solve",
        "solve --ev": "--evidence",
        "check Xo": "Xor",
        "compile --all At": "AtMostOne",
    }
    for typed, expected in cases.items():
        words = f"lpsmap {typed}"
        given = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        environment = {"_LPSMAP_COMPLETE": "bash_complete", **given}
        result = CliRunner().invoke(cli.main, prog_name="lpsmap", env=environment)
        assert f"plain,{expected}" in result.output.split()


def test_help_says_what_everything_is_for() -> None:
    assert "..." not in lpsmap("--help").output.partition("Commands:")[2]
    ours = "lpsmap-core", "lpsmap-decode"
    for name, found in installed().commands.items():
        if found.plugin.distribution not in ours:
            continue
        text = lpsmap(name, "--help").output
        assert max(map(len, text.splitlines())) <= 80, name
        for parameter in found.value.params:
            if isinstance(parameter, click.Option) and name in ("solve", "decode"):
                assert parameter.help, (name, parameter.name)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--tol", "nan"], "nan is not a finite number"),
        (["--max-time", "inf"], "inf is not a finite number"),
        (["--gap", "0.1"], "--gap requires --task map; got --task sparsemap"),
        (["--solver", "highs", "--task", "lp-map"], "--solver requires --task map"),
    ],
)
def test_options_that_mean_nothing_are_wrong_commands(
    model: Path, option: list[str], words: str
) -> None:
    result = lpsmap("solve", model, *option)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not result.stdout


def test_a_picture_that_may_not_be_written_is_told_before_the_solve(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != model.parent)
    result = lpsmap("solve", model, "--trace", model.with_name("x.png"))
    assert result.exit_code == 2
    assert "x.png: no permission to write." in result.stderr
    assert not result.stdout


@pytest.mark.parametrize("task", ["sparsemap", "map"])
def test_without_matplotlib_trace_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "lpsmap_decode.figures", raising=False)
    monkeypatch.delattr(lpsmap_decode, "figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = lpsmap("solve", model, "--task", task, "--trace", model.with_name("x.png"))
    assert result.exit_code == 1
    assert 'needs matplotlib; install it with: pip install "lpsmap-decode[plot]"' in result.stderr
    assert not result.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has /dev/full")
@pytest.mark.parametrize("command", ["solve", "info"])
def test_a_full_disk_below_the_output_is_told_in_a_line(
    model: Path, command: str, warm_server: Server
) -> None:
    with open("/dev/full", "w") as full:
        done = warm_server.run(MAIN, command, model, stdout=full)
    assert done.returncode == 1
    assert done.stderr.strip() == "Error: [Errno 28] No space left on device"


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_streams_may_be_closed(model: Path, closed: str, warm_server: Server) -> None:
    done = warm_server.run(without(closed) + MAIN, "solve", model)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert bool(done.stdout) == (closed == "stderr")


TERMINAL = """
import os, signal, sys
os.setsid()
end = os.open(sys.argv.pop(1), os.O_RDWR)  # it becomes the terminal of the session
print("opened", flush=True)
for stream in range(3):
    os.dup2(end, stream)
os.close(end)
"""

COMMAND = """
import signal
from lpsmap_core.command.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


LONG_RELAXATION = """
import sys, time
from lpsmap_jit.interrupts import interrupted
from lpsmap_decode.messages.message_engine import MessageEngine
solve = MessageEngine.solve
def wait_and_solve(*arguments):
    print("relaxing", flush=True)
    while not interrupted():
        time.sleep(0.01)
    return solve(*arguments)
MessageEngine.solve = wait_and_solve
"""
"""As of a large model; it ends when it is to end."""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, server: Server, *arguments: object, before: str = "") -> None:
        self._end, theirs = os.openpty()
        code, words = TERMINAL + before + COMMAND, [os.ttyname(theirs), *arguments]
        self.program = server.begin(code, Path.cwd(), os.environ, words)
        self.program.stdout.readline()  # a terminal that nobody has opened is at its end
        os.close(theirs)
        self.said = ""

    def read_until(self, words: str) -> None:
        while words not in self.said:
            if not self._read():
                raise AssertionError(f"no {words!r} in {self.said}")

    def press_control_c(self) -> None:
        os.write(self._end, b"\x03")

    def finish(self) -> int:
        while self._read():
            pass
        os.close(self._end)
        self.program.communicate()
        return self.program.returncode

    def processor_time_so_far(self) -> float:
        """Return what the command has worked; of the clock's seconds others may take most."""
        fields = Path(f"/proc/{self.program.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def _read(self) -> bool:
        try:
            data = os.read(self._end, 10_000)
        except OSError:  # the other end is closed
            return False
        self.said += data.decode()
        return bool(data)


TERMINALS = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


@TERMINALS
def test_a_terminal_is_told_of_the_search(tmp_path: Path, warm_server: Server) -> None:
    path = tmp_path / "a.uai"
    path.write_text(hard_grid(11))
    terminal = Terminal(warm_server, "solve", path, "--task", "map", "--solver", "lpsmap")
    assert terminal.finish() == 0
    lines = terminal.said.splitlines()
    assert lines[0].startswith("lpsmap ")
    assert f"{path}: 242 binary variables in 121 blocks; factors: " in lines[1]
    assert any(line.startswith("component 0: best") and "gap" in line for line in lines)
    assert any(line.startswith("by lpsmap, which was requested") for line in lines)
    assert any(line.startswith("optimum ") and "proved" in line for line in lines)
    assert any(line.split() == ["VARIABLE", "VALUE"] for line in lines)


def hard_grid(n: int) -> str:
    """Return a grid of variables that pull apart, which takes long to prove."""
    rng = np.random.default_rng(0)
    at = np.arange(n * n).reshape(n, n)
    edges = [*zip(at[:, :-1].flat, at[:, 1:].flat, strict=True)]
    edges += zip(at[:-1].flat, at[1:].flat, strict=True)
    lines = ["MARKOV", str(n * n), " ".join(["2"] * n * n), str(len(edges))]
    lines += [f"2 {i} {j}" for i, j in edges]
    for weight in np.exp(rng.normal(scale=3.0, size=len(edges))):
        lines += ["4", f"{weight} 1 1 {weight}"]
    return "\n".join(lines)


@TERMINALS
def test_control_c_in_the_relaxation_gives_what_there_is(
    tmp_path: Path, warm_server: Server
) -> None:
    path = tmp_path / "grid.uai"
    path.write_text(hard_grid(30))
    arguments = "solve", path, "--task", "map", "--solver", "lpsmap", "--output", "json"
    terminal = Terminal(warm_server, *arguments, before=LONG_RELAXATION)
    terminal.read_until("relaxing")
    terminal.press_control_c()
    assert terminal.finish() == UNSOLVED, terminal.said
    assert "Ctrl-C ended the search" in terminal.said
    assert "stopped: best " in terminal.said
    answer = json.loads(terminal.said[terminal.said.index('{"status"') :].splitlines()[0])
    assert answer["status"] == ["FOUND"]
    assert answer["bound"][0] > answer["score"][0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_control_c_ends_a_search_within_a_second_with_the_best_so_far(
    tmp_path: Path, warm_server: Server
) -> None:
    path = tmp_path / "grid.uai"
    path.write_text(hard_grid(26))  # not proved after 25 s; one of 14 is after 0.3 s
    arguments = "solve", path, "--task", "map", "--solver", "lpsmap", "--output", "json"
    terminal = Terminal(warm_server, *arguments)
    terminal.read_until(" %, ")  # there is a best so far
    terminal.press_control_c()
    begin = terminal.processor_time_so_far()
    code = terminal.finish()
    assert terminal.program.processor_time - begin < 1.0
    assert code == UNSOLVED, terminal.said
    assert "stopped: best " in terminal.said
    assert "Traceback" not in terminal.said
    answer = json.loads(terminal.said[terminal.said.index('{"status"') :].splitlines()[0])
    assert answer["status"] == ["FOUND"]
    assert answer["bound"][0] > answer["score"][0]
    assert all(sum(states) == 1.0 for states in answer["variables"].values())
