"""The installed decoder, which finds best assignments. Core has none of its own."""

from __future__ import annotations

from typing import Any

from lpsmap_core.plugins.install_advice import install_advice
from lpsmap_core.plugins.registry import DISABLE, installed

DEFAULT_GAP = 1e-8
"""Relative difference of bound and score that counts as a proof."""

DECODE_MAX_NODES = 1000
"""Default maximum number of nodes for decoding a relaxed solution."""

DECODE_MAX_TIME = 10.0
"""Default time limit in seconds. For thousands of tables, a thousand nodes would take minutes."""


def installed_decoder(verb: str) -> Any:
    """Return the installed decoder: an ``lpsmap_decode.Decoder``.

    Parameters
    ----------
    verb
        What needs it, for errors.

    Raises
    ------
    ImportError
        If no decoder is installed. The message names the package to install.
    RuntimeError
        If several decoders are installed.
    """
    decoders = list(installed().of_kind("decoders").values())
    if not decoders:
        advice = install_advice("lpsmap-decode")
        raise ImportError(f"{verb}: no decoder of best assignments is installed; {advice}")
    if len(decoders) > 1:
        names = " and ".join(f"{each.name!r} of {each.plugin.distribution}" for each in decoders)
        ways = " or ".join(f"{DISABLE}={each.plugin.distribution}" for each in decoders)
        raise RuntimeError(
            f"{verb}: several decoders are installed, {names}; disable all but one: {ways}"
        )
    return decoders[0].value()
