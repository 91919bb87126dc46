"""Kernels on disk that other users could have written: they are compiled anew, not executed."""

from __future__ import annotations

import os
import pickle
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from cached_package import Package
from lpsmap_jit.checked_files import UntrustedError, check_trusted, write_checked

with suppress(ImportError):  # Windows
    import grp
    import pwd

pytestmark = pytest.mark.compiled

UNIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such owners and modes")
ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files to other users"
)
NOBODY = 65534

SHARED: list[object] = [
    pytest.param(lambda path: path.chmod(0o666), "file", id="file of mode 666", marks=UNIX),
    pytest.param(lambda path: path.parent.chmod(0o777), "folder", id="folder of 777", marks=UNIX),
    pytest.param(lambda path: path.parent.chmod(0o1777), "folder", id="folder of 1777", marks=UNIX),
    pytest.param(lambda path: os.chown(path, NOBODY, 0), "file", id="file of nobody", marks=ROOT),
    pytest.param(
        lambda path: os.chown(path.parent, NOBODY, 0), "folder", id="folder of nobody", marks=ROOT
    ),
    pytest.param(
        lambda path: (os.chown(path, -1, NOBODY), path.chmod(0o664)),
        "file",
        id="file of another group",
        marks=ROOT,
    ),
]


@pytest.mark.parametrize("share, what", SHARED)
def test_what_others_could_have_written_is_compiled_anew(
    package: Package, share, what: str
) -> None:
    """Once it says so, for all kernels of the process."""
    assert package.run()[0] == "6.0 1"
    assert package.run() == ("6.0", "")
    for path in package.kept():
        share(path)
    printed, notices = package.run()
    assert printed == "6.0 1"
    shared = [path if what == "file" else path.parent for path in package.kept()]
    assert any(str(path) in notices for path in shared)
    assert notices.count("whoever writes them") == 1


@UNIX
@pytest.mark.parametrize("folder", [False, True])
def test_code_of_others_is_not_run(package: Package, folder: bool, tmp_path: Path) -> None:
    assert package.run()[0] == "6.0 1"
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return Path.touch, (ran,)

    for path in package.kept():
        write_checked(path, pickle.dumps((Trap(), Trap())))
        (path.parent if folder else path).chmod(0o777)
    assert package.run()[0] == "6.0 1"
    assert not ran.exists()


@UNIX
def test_files_are_written_for_their_owner(package: Package) -> None:
    """Even if the process lets others write to all that it creates."""
    package.run()
    for path in package.kept():
        path.unlink()
    assert package.run("import os; os.umask(0)")[0] == "6.0 1"
    assert {stat.S_IMODE(path.stat().st_mode) for path in package.kept()} == {0o644}


@UNIX
def test_the_wheel_is_no_exception(package: Package, wheel: Path) -> None:
    wheel.chmod(0o777)
    printed, notices = package.run()
    assert printed == "6.0 1"
    assert str(wheel) in notices


def test_a_folder_that_cannot_be_written_is_read(package: Package, tmp_path: Path) -> None:
    package.environment["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    assert package.run()[0] == "6.0 1"
    nothing_is_written = """
import tempfile

def refuse(**options):
    raise PermissionError("read-only")

tempfile.TemporaryFile = refuse
"""
    assert package.run(nothing_is_written) == ("6.0", "")


@UNIX
def test_a_private_group_may_write(tmp_path: Path) -> None:
    """As where every user has a group of its own, and files are written for the group."""
    path = tmp_path / "kernel"
    path.touch()
    path.chmod(0o664)
    group = grp.getgrgid(path.stat().st_gid)
    alone = group.gr_name == pwd.getpwuid(os.geteuid()).pw_name and len(group.gr_mem) < 2
    if alone:
        check_trusted(path)
    else:
        with pytest.raises(UntrustedError, match="other users can write to"):
            check_trusted(path)
