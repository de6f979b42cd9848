"""The two instruction architectures, known to numerics, chips and everything above."""

from enum import IntEnum


class Architecture(IntEnum):
    """Instruction-set generation of an AI core, by the number the compiler knows it by.

    ``A2201`` is Atlas A2 and A3 (Ascend 910B and 910C), ``A3510`` is Ascend 950.
    """

    A2201 = 2201
    A3510 = 3510
