"""Constraints that are others' with some variables negated (Niculae & Martins 2020, D.2.5, D.2.6).

The negation is made where the variables are declared, and the core turns it into that of scores,
solutions and Jacobians; nothing else is left to do here. A structure of these types is thus
labelled by the assignment of the literals, in which a negated variable counts as on if it is off.
"""

from __future__ import annotations

from lpsmap_core.api import BoolArray
from lpsmap_factors_logic.counting import Or, Xor
from lpsmap_factors_logic.or_out import OrOut

__all__ = ["AndOut", "Imply", "Nand", "XorOut"]


class Nand(Or):
    """Not all variables of every row are on: at least one of their negations is (Eq. 84).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `Xor`.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return True


class Imply(Or):
    """If all variables of a row but the last are on, the last is (Eq. 86).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `OrOut`: the last variable that takes part in a row is what the others imply. Alone in
        its row, it must be on.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return ~self._outputs()


class XorOut(Xor):
    """At most one variable of a row before the last is on, and the last says whether one is.

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `OrOut`. Without inputs the output is off.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return self._outputs()


class AndOut(OrOut):
    """The last variable of every row is on exactly if all others are.

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `OrOut`. Without inputs the output is on.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return True
