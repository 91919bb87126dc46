"""Checkpoints: files from which a search can be resumed in another process.

A file is a zip archive of arrays in the format of `numpy.savez`, without pickles: the packed open
boxes, their bounds, the best counts, and a JSON header.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import FloatArray
from lpsmap_decode import SearchResult, SearchState
from lpsmap_search.box_space import BoxSpace
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus

FORMAT, VERSION = "lpsmap-search checkpoint", 1

SHARE = 0.1
"""Maximum share of the time for writing checkpoints."""

State = SearchState[Any, FloatArray]


class Subject(NamedTuple):
    """Digests of the input that a checkpoint belongs to."""

    corpus: str
    """The digest of the corpus and model."""
    constraint: str
    relaxation: str
    """The name of the relaxation."""


def subject_of(corpus: Corpus, constraint: CountConstraint | None, relaxation: str) -> Subject:
    """Return the digests of a search's input."""
    model = corpus.model
    words = json.dumps([type(model).__qualname__, list(map(str, model.names))])
    asked = [] if constraint is None else [constraint.weights, np.array(constraint.least)]
    return Subject(
        _digest([words.encode(), model.first, *corpus.derivations]), _digest(asked), relaxation
    )


def _digest(parts: Iterable[bytes | npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        shape = len(part) if isinstance(part, bytes) else (part.shape, part.dtype.str)
        digest.update(repr(shape).encode())
        digest.update(part if isinstance(part, bytes) else part.tobytes())
    return digest.hexdigest()


class Checkpoint:
    """A file for the state of a search.

    Parameters
    ----------
    path
        The file.
    subject
        The digests of the input.
    gap
        The gap of the search.

    Raises
    ------
    ValueError
        If the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], subject: Subject, gap: float) -> None:
        self.path = Path(path).resolve()  # the working folder may change
        self._subject, self._gap = subject, gap
        self._beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        self._check()

    def _check(self) -> None:
        """Validate before the search that the path can be written."""
        if self.path.exists() and not self.path.is_file():
            raise ValueError(f"checkpoint: {self.path} is not a regular file. Choose another path.")
        try:
            self._beside.touch()
            self._beside.unlink()
        except OSError as error:
            raise ValueError(
                f"checkpoint: no file can be written in the folder of {self.path}: {error}. "
                "Choose another path."
            ) from error

    def write(self, space: BoxSpace[Any], state: State) -> None:
        """Replace the file atomically by a state.

        Raises
        ------
        OSError
            If the file cannot be written; the old file is unchanged.
        """
        boxes = space.pack(state.nodes) if state.nodes else {}
        arrays: Any = {
            "bounds": np.array(state.bounds, dtype=np.float64),
            "answer": np.asarray(state.found.answer),
            **{f"box_{name}": array for name, array in boxes.items()},
            "header": self._header(state),
        }
        try:
            with self._beside.open("wb") as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._beside, self.path)
        finally:
            self._beside.unlink(missing_ok=True)

    def _header(self, state: State) -> npt.NDArray[np.uint8]:
        result = state.found
        given_up = None if state.given_up == -math.inf else state.given_up
        numbers = {"score": result.score, "bound": result.bound, "given_up": given_up}
        counts = {"n_nodes": result.n_nodes, "seconds": result.seconds, "gap": self._gap}
        header = {"format": FORMAT, "version": VERSION, "subject": self._subject._asdict()}
        text = json.dumps(header | numbers | counts, allow_nan=False)
        return np.frombuffer(text.encode(), dtype=np.uint8)

    def read(self, space: BoxSpace[Any]) -> State | None:
        """Return the state in the file; None if there is no file.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is damaged, or belongs to another search.
        """
        if not self.path.exists():
            return None
        with self.path.open("rb") as file, self._damage():
            arrays = _read_arrays(file)
            header = json.loads(arrays.pop("header").tobytes())
            if header["format"] != FORMAT:
                raise ValueError(header["format"])
            version, subject = int(header["version"]), dict(header["subject"])
        self._check_subject(version, subject)
        with self._damage():
            state, gap = _state(space, header, arrays), float(header["gap"])
        self._check_gap(gap, state)
        return state

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Name the file in errors; zipfile and NumPy raise various ones for damaged files."""
        try:
            yield
        except Exception as error:
            raise ValueError(
                f"checkpoint: {self.path} is damaged, or not a checkpoint ({error}). Delete it to "
                "start again, or choose another path."
            ) from error

    def _check_subject(self, version: int, subject: Mapping[str, Any]) -> None:
        if version > VERSION:
            raise ValueError(
                f"checkpoint: {self.path} has format {version}; expected at most {VERSION}. It was "
                "written by a newer lpsmap-search: update the package, or choose another path."
            )
        wrong = [
            name
            for name, expected in self._subject._asdict().items()
            if subject.get(name) != expected
        ]
        if wrong:
            raise ValueError(
                f"checkpoint: {self.path} belongs to another {' and '.join(wrong)}. Use the same "
                "input, or choose another path."
            )

    def _check_gap(self, gap: float, state: State) -> None:
        """Validate that the gap is not smaller than that of the file, which pruned boxes."""
        score = state.found.score
        if self._gap < gap and state.given_up > score + self._gap * max(1.0, abs(score)):
            raise ValueError(
                f"gap: got {self._gap}; expected at least {gap}, the gap of {self.path}: boxes "
                "within that gap were pruned. Choose another checkpoint."
            )


def _read_arrays(content: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an archive, verifying its checksums."""
    with np.load(content, allow_pickle=False) as archive:
        damaged = archive.zip.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} has another checksum")
        return dict(archive)


def _state(
    space: BoxSpace[Any], header: Mapping[str, Any], arrays: dict[str, npt.NDArray[Any]]
) -> State:
    bounds, answer = arrays.pop("bounds"), arrays.pop("answer")
    boxes = {name.removeprefix("box_"): array for name, array in arrays.items()}
    nodes = space.unpack(boxes) if len(bounds) else []
    if len(nodes) != len(bounds):
        raise ValueError(f"got {len(nodes)} boxes; expected {len(bounds)}")
    result = SearchResult[FloatArray](
        score=float(header["score"]),
        bound=float(header["bound"]),
        n_nodes=int(header["n_nodes"]),
        seconds=float(header["seconds"]),
        answer=answer,
    )
    given_up = -math.inf if header["given_up"] is None else float(header["given_up"])
    return SearchState(result, nodes, bounds.tolist(), given_up)


class Autosave:
    """Writes checkpoints periodically, and warns if writing fails.

    Parameters
    ----------
    checkpoint
        The file.
    space
        The space, which packs boxes.
    interval
        Minimum seconds between two checkpoints; more if writing takes long.
    """

    def __init__(self, checkpoint: Checkpoint, space: BoxSpace[Any], interval: float) -> None:
        self._checkpoint, self._space, self._interval = checkpoint, space, interval
        self._due, self._failed = 0.0, False

    @property
    def due(self) -> bool:
        """Whether to write a checkpoint now."""
        return time.monotonic() >= self._due

    def save(self, state: State) -> None:
        """Write a state."""
        begin = time.monotonic()
        try:
            self._checkpoint.write(self._space, state)
            self._failed = False
        except OSError as error:
            if not self._failed:
                warnings.warn(
                    f"checkpoint: {self._checkpoint.path} could not be written: {error}. The "
                    "search continues and tries again later; an older checkpoint is unchanged.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._failed = True
        end = time.monotonic()
        self._due = end + max(self._interval, (end - begin) * (1.0 - SHARE) / SHARE)
