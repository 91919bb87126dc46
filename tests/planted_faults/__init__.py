"""Faulty factor types, each of which a check of the conformance kit has to catch."""

from planted_faults.declarations import (
    BonusOfTheFirstRow,
    DropsLengths,
    EarlierChain,
    EarlierCounts,
    HidesLinks,
    HidesRow,
    MisspeltAxes,
    MisspeltLengths,
    MisspeltParameters,
    NegatesAgain,
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
    "FAULTS",
    "Halves",
    "HidesLinks",
    "HidesRow",
    "KernelFarBeyondItsArrays",
    "KernelOfNoNumbers",
    "KernelWritesIntoItsScores",
    "KernelWritesTooMuch",
    "MisspeltAxes",
    "MisspeltLengths",
    "MisspeltParameters",
    "NegatesAgain",
    "NotANumber",
    "SameIntegersInAllExamples",
    "TwiceTheJacobian",
]
