"""Factor types for lpsmap."""

from lpsmap_span.factor import Span

__all__ = ["Span"]
