"""Dependency arcs over a sentence as inline SVG."""

from __future__ import annotations

import html
from collections.abc import Sequence

STEP, RISE, MARGIN = 11, 16, 14
"""Pixels per character of the widest word, per level of arcs, and around the drawing."""


def arcs_svg(heads: Sequence[int], words: Sequence[str] | None = None) -> str:
    """Return a drawing of a dependency tree.

    Parameters
    ----------
    heads
        For every word, the position of its head, counted from 0; -1 for the root.
    words
        The words. Default: their positions.
    """
    words = [str(i) for i in range(len(heads))] if words is None else words
    if len(words) != len(heads):
        raise ValueError(
            f"words: got {len(words)}; expected {len(heads)}, one for every word of the tree."
        )
    gap = max(36, STEP * max(map(len, words), default=1))
    spans = [abs(head - i) if head >= 0 else 1 for i, head in enumerate(heads)]
    floor = MARGIN + RISE * (max(spans, default=0) + 1)
    width, height = 2 * MARGIN + gap * len(words), floor + 2 * MARGIN
    middle = [MARGIN + gap * (i + 0.5) for i in range(len(words))]
    lines = []
    for i, head in enumerate(heads):
        if head < 0:
            path = f"M {middle[i]:.1f} {MARGIN} V {floor}"
        else:
            # an offset keeps the arcs into and out of a word apart
            begin = middle[head] + (6 if i > head else -6)
            top = floor - RISE * spans[i] * 4 / 3
            path = f"M {begin:.1f} {floor} C {begin:.1f} {top:.1f} {middle[i]:.1f} {top:.1f} "
            path += f"{middle[i]:.1f} {floor}"
        lines.append(f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.3"/>')
        tip = f"{middle[i]:.1f},{floor + 3} {middle[i] - 3:.1f},{floor - 4} "
        lines.append(
            f'<polygon points="{tip}{middle[i] + 3:.1f},{floor - 4}" fill="currentColor"/>'
        )
    for x, word in zip(middle, words, strict=True):
        lines.append(
            f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle" font-size="13" '
            f'fill="currentColor">{html.escape(word)}</text>'
        )
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(lines)}</svg>'
