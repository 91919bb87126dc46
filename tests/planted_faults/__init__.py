"""Faulty factor types, each of which a check of the conformance kit must catch."""

from planted_faults.declarations import (
    ArrayOfAllRows,
    BonusOfTheFirstRow,
    DropsLengths,
    DropsMask,
    HidesCounts,
    HidesUnused,
    Masked,
    MisspeltAxes,
    MisspeltLengths,
    NegatesAgain,
    ReplacesKeep,
    ReplacesOffsets,
    SameIntegersInAllExamples,
    TableOfAllRows,
)
from planted_faults.kernels import (
    KernelFarBeyondItsArrays,
    KernelOfNoNumbers,
    KernelOfTheFirstIntegers,
    KernelOfTheFirstParameters,
    KernelWritesIntoItsScores,
    KernelWritesTooMuch,
)
from planted_faults.registry import FAULTS
from planted_faults.solutions import NoCodes, TwiceTheJacobian
from planted_faults.structures import DecodesToArrays, Halves, NotANumber

__all__ = [
    "ArrayOfAllRows",
    "BonusOfTheFirstRow",
    "DecodesToArrays",
    "DropsLengths",
    "DropsMask",
    "FAULTS",
    "Halves",
    "HidesCounts",
    "HidesUnused",
    "KernelFarBeyondItsArrays",
    "KernelOfNoNumbers",
    "KernelOfTheFirstIntegers",
    "KernelOfTheFirstParameters",
    "KernelWritesIntoItsScores",
    "KernelWritesTooMuch",
    "Masked",
    "MisspeltAxes",
    "MisspeltLengths",
    "NegatesAgain",
    "NoCodes",
    "NotANumber",
    "ReplacesKeep",
    "ReplacesOffsets",
    "SameIntegersInAllExamples",
    "TableOfAllRows",
    "TwiceTheJacobian",
]
