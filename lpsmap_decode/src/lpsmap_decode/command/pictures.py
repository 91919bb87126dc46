"""Files that commands write, checked before the work, which may take long; and their plots."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click


def check_writable(option: str, path: Path) -> None:
    """Validate that a file can be written."""
    if not path.parent.is_dir():
        raise click.BadParameter(
            f"{path}: the folder does not exist. Create it first.", param_hint=option
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(
            f"{path}: no permission to write. Choose another file.", param_hint=option
        )


def plotting_module(name: str, pictures: Mapping[str, Path | None]) -> ModuleType | None:
    """Return a plotting module, without a display; None without pictures.

    The `pictures` are the files that it will write, by option.
    """
    if not any(pictures.values()):
        return None
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    import matplotlib

    matplotlib.use("Agg")
    for option, path in pictures.items():
        if path is not None:
            try:
                module.check_picture(path)
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=option) from error
            check_writable(option, path)
    return module


def save_picture(option: str, figure: Any, path: Path) -> None:
    """Write a figure."""
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{option} {path}: {error}") from error
