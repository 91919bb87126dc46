"""The search of Gormley & Eisner (2013), with their errata: relaxations by linear programs."""

from lpsmap_search.paper.mccormick_space import (
    McCormickNode,
    McCormickOptions,
    McCormickSpace,
)

__all__ = ["McCormickNode", "McCormickOptions", "McCormickSpace"]
