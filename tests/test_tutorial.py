"""The tutorial on factor types: code of the examples, and commands that work as printed."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from environments import ROOT, borrow
from pages import Block, blocks

PAGES = [ROOT / "docs" / "tutorial" / name for name in ("writing-factors.md", "faster-factors.md")]
BLOCKS = [block for page in PAGES for block in blocks(page)]
EXAMPLES = ROOT / "examples" / "plugins"
LEND = "echo $BORROWED > $site/borrowed.pth"
WRITTEN = "lpsmap-dag-path/src/lpsmap_dag_path/factor.py"


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_every_block_has_a_purpose() -> None:
    for block in BLOCKS:
        assert block.language in ("console", "python", "toml")
        assert bool(block.file) == (block.language != "console"), block


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.file or block.language)
def test_code_is_cut_from_the_examples(block: Block) -> None:
    path = EXAMPLES / block.file
    if block.language == "console" or block.file == "use.py":
        return  # the replay runs them
    assert block.text.rstrip() in path.read_text(encoding="utf-8")


def test_the_blocks_of_a_file_make_up_the_whole_of_it() -> None:
    text = "".join(block.text for block in BLOCKS if block.file == WRITTEN)
    assert lines_of(text) == lines_of((EXAMPLES / WRITTEN).read_text(encoding="utf-8"))


def script(folder: Path, borrowed: Path | None) -> tuple[str, list[str]]:
    """Return the page as a shell script, and what its commands should print.

    The page's files are kept in `folder` and copied into place when their turn comes; the blocks of
    one file are written one after the other. Without a torch to lend, it ends before it needs one.
    """
    lines, expected, parts = ["set -e"], [], dict[str, str]()
    for number, block in enumerate(BLOCKS):
        staged = folder / str(number)
        if block.language == "console":
            for entry in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, printed = entry.partition("\n")
                if command == "pip install PATH/TO/lpsmap/lpsmap_torch":
                    if borrowed is None:
                        return "\n".join(lines), expected
                    lines.append(f"for site in $TOP/env/lib/*/site-packages; do {LEND}; done")
                lines += [f"echo '$ {len(expected)}'", command.replace("PATH/TO/lpsmap", str(ROOT))]
                expected.append(printed)
        elif block.language == "toml":
            staged.write_text(f"/^dependencies/c\\\n{block.text}", encoding="utf-8")
            lines.append(f"sed -i -f {staged} $TOP/{block.file}")
        elif block.file.startswith(("lpsmap-dag-path/", "use.py")):
            parts[block.file] = parts.get(block.file, "") + "\n\n" + block.text
            staged.write_text(parts[block.file].lstrip(), encoding="utf-8")
            lines.append(f"cp {staged} $TOP/{block.file}")
    return "\n".join(lines), expected


@pytest.mark.slow
def test_a_newcomers_first_ten_minutes(distributions: Path, tmp_path: Path) -> None:
    """The page's commands from an empty folder; what they install needs of ours, wheels bring."""
    borrowed = None
    if importlib.util.find_spec("torch"):
        borrowed = tmp_path / "borrowed"
        borrowed.mkdir()
        borrow(borrowed, "torch")
    staged, top = tmp_path / "staged", tmp_path / "top"
    staged.mkdir()
    top.mkdir()
    text, expected = script(staged, borrowed)
    scripts = sysconfig.get_path("scripts")
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    result = subprocess.run(
        ["bash", "-c", text],
        cwd=top,
        env={
            **inherited,
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "TOP": str(top),
            "BORROWED": str(borrowed),
            "PIP_FIND_LINKS": str(distributions),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        },
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    printed = re.split(r"^\$ \d+\n", result.stdout, flags=re.MULTILINE)[1:]
    assert len(printed) == len(expected) > 10
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for want, got in zip(expected, printed, strict=True):
        assert doctest.OutputChecker().check_output(want, got, options), f"{want}\n---\n{got}"
