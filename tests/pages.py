"""The code of Markdown pages: every block of it, and how each kind is executed.

- ``python`` is run; a line ``print(...)  # -> words`` has to print these words.
- ``pycon`` is an interactive session, which has to print what it shows.
- ``console`` has commands after ``$`` and what they print. ``lpsmap`` is called in this process;
  ``make`` and the repository's own scripts are asked for nothing but whether they exist.
- ``toml``, ``json`` and ``text`` (what something prints) are there to be read; the first two parse.
- A block after a comment with a path, ``<!-- lpsmap-span/... -->``, is cut from that file.

The blocks of a page share their names, and run in their order. A page that says how to start from
an empty folder is replayed as a whole, elsewhere (`test_tutorial`).
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import re
import shlex
import sys
import types
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from environments import ROOT
from lpsmap_core.command import cli

__all__ = ["Block", "blocks", "execute", "module_of"]

LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A block of code: its language, the file that it is cut from (or none), text, first line."""

    language: str
    file: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return a page's blocks in order; those of MyST's own directives are no code."""
    text = page.read_text(encoding="utf-8")
    pattern = r"^(?:<!-- (\S+) -->\n)?```(\S*)[^\n]*\n(.*?)^```$"
    return [
        Block(match[2], match[1] or "", match[3], text.count("\n", 0, match.start(3)))
        for match in re.finditer(pattern, text, flags=re.DOTALL | re.MULTILINE)
        if not match[2].startswith("{")
    ]


def module_of(page: Path) -> types.ModuleType:
    """Return an empty module for a page's code, as importable as a user's own would be."""
    name = "page_" + re.sub(r"\W", "_", str(page.relative_to(ROOT)))
    sys.modules[name] = module = types.ModuleType(name)
    module.__file__ = str(page)
    return module


def execute(page: Path) -> types.ModuleType:
    """Execute all blocks of a page; return the module that they made."""
    module = module_of(page)
    for block in blocks(page):
        if not block.file:
            KINDS[block.language](block, page, module)
    return module


def _python(block: Block, page: Path, module: types.ModuleType) -> None:
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, str(page), "exec")  # so that errors say where
    with contextlib.redirect_stdout(printed):
        exec(code, vars(module))
    expected = re.findall(r"print\(.*\)  # -> (.*)$", block.text, flags=re.MULTILINE)
    lines = printed.getvalue().splitlines()
    for words in expected:
        assert words in lines, f"{page}:{block.line}: {words!r} not printed, but {lines}"


def _session(block: Block, page: Path, module: types.ModuleType) -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=LIKE)
    test = parser.get_doctest(block.text, vars(module), page.name, str(page), block.line)
    said = io.StringIO()
    runner.run(test, out=said.write, clear_globs=False)
    vars(module).update(test.globs)  # the parser took a copy
    assert runner.tries > 0
    assert runner.failures == 0, said.getvalue()


def _console(block: Block, page: Path, module: types.ModuleType) -> None:
    for entry in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, want = entry.replace("\\\n", " ").partition("\n")
        program, *arguments = shlex.split(command, comments=True)
        match program, arguments:
            case "lpsmap", _:
                result = CliRunner().invoke(cli.main, arguments)
                assert result.exit_code == 0, f"{command}\n{result.output}"
                same = doctest.OutputChecker().check_output(want, result.stdout, LIKE)
                assert not want or same, f"{command}\n{want}\n---\n{result.output}"
            case "make", [target]:
                assert f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), command
            case ("python", [script, *options]) | ("torchrun", [_, script, *options]):
                text = _with_siblings(ROOT / script)
                for option in (word for word in options if word.startswith("--")):
                    assert _takes(text, option), f"{command}: no option {option}"
            case "pip" | "git" | "cd", _:
                pass  # changes what is installed, or where one is
            case _:
                raise AssertionError(f"{page}: nobody tests the command {command!r}")


def _with_siblings(script: Path) -> str:
    """Return the text of a script and of the modules beside it that it imports."""
    text = script.read_text(encoding="utf-8")
    names = re.findall(r"^from (\w+) import", text, re.MULTILINE)
    siblings = filter(Path.exists, (script.with_name(f"{name}.py") for name in names))
    return "\n".join([text, *(path.read_text(encoding="utf-8") for path in siblings)])


def _takes(script: str, option: str) -> bool:
    return option in script or f"def {option[2:]}" in script


def _toml(block: Block, page: Path, module: types.ModuleType) -> None:
    if sys.version_info >= (3, 11):
        import tomllib

        tomllib.loads(block.text)


def _json(block: Block, page: Path, module: types.ModuleType) -> None:
    json.loads(block.text)


def _text(block: Block, page: Path, module: types.ModuleType) -> None:
    pass


KINDS = {
    "python": _python,
    "pycon": _session,
    "console": _console,
    "toml": _toml,
    "json": _json,
    "text": _text,
}
"""What executes a block of each language; a block of another one is an error."""
