"""Lookup of factor types by name, for files."""

from __future__ import annotations

from typing import Any

from lpsmap_core import installed
from lpsmap_core.api import missing_type_advice
from lpsmap_decode.formats.file_format import FileFormatError


def factor_named(name: str) -> Any:
    """Return the installed factor type called `name`.

    Raises
    ------
    FileFormatError
        If no such type is installed.
    DuplicateNameError
        If two plugins claim the name.
    """
    types = installed().factors
    if name not in types:
        raise FileFormatError(
            f"type is {name!r}; expected an installed factor type; "
            f"{missing_type_advice(name, types)}"
        )
    return types[name].value
