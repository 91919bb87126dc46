"""Faulty factor types, each of which a check of the conformance kit must catch."""

from planted_faults.declarations import (
    BonusOfTheFirstRow,
    DropsLengths,
    EarlierChain,
    EarlierCounts,
    EarlierParameters,
    HidesCounts,
    HidesUnused,
    MisspeltAxes,
    MisspeltLengths,
    NegatesAgain,
    ReplacesKeep,
    ReplacesOffsets,
    SameIntegersInAllExamples,
)
from planted_faults.kernels import (
    KernelFarBeyondItsArrays,
    KernelOfNoNumbers,
    KernelWritesIntoItsScores,
    KernelWritesTooMuch,
)
from planted_faults.registry import FAULTS
from planted_faults.solutions import TwiceTheJacobian
from planted_faults.structures import DecodesToArrays, Halves, NotANumber

__all__ = [
    "BonusOfTheFirstRow",
    "DecodesToArrays",
    "DropsLengths",
    "EarlierChain",
    "EarlierCounts",
    "EarlierParameters",
    "FAULTS",
    "Halves",
    "HidesCounts",
    "HidesUnused",
    "KernelFarBeyondItsArrays",
    "KernelOfNoNumbers",
    "KernelWritesIntoItsScores",
    "KernelWritesTooMuch",
    "MisspeltAxes",
    "MisspeltLengths",
    "NegatesAgain",
    "NotANumber",
    "ReplacesKeep",
    "ReplacesOffsets",
    "SameIntegersInAllExamples",
    "TwiceTheJacobian",
]
