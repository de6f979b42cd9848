"""Where data lives, which unit moves it, and what kind of core a unit belongs to."""

from enum import IntEnum


class Space(IntEnum):
    """Memories an operand can name. L2 is a property of GM accesses, not a space."""

    GM = 0
    L1 = 1
    L0A = 2
    L0B = 3
    L0C = 4
    BT = 5
    FB = 6
    UB = 7


class Pipe(IntEnum):
    """In-order execution queues of one core."""

    SCALAR = 0
    MTE1 = 1
    MTE2 = 2
    MTE3 = 3
    CUBE = 4
    FIXP = 5
    VECTOR = 6


class CoreKind(IntEnum):
    """The two kinds of core of an AI core group: one AIC drives two AIVs."""

    AIC = 0
    AIV = 1


SPACES_OF_KIND: dict[CoreKind, tuple[Space, ...]] = {
    CoreKind.AIC: (Space.L1, Space.L0A, Space.L0B, Space.L0C, Space.BT, Space.FB),
    CoreKind.AIV: (Space.UB,),
}

PIPES_OF_KIND: dict[CoreKind, tuple[Pipe, ...]] = {
    CoreKind.AIC: (Pipe.SCALAR, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3, Pipe.CUBE, Pipe.FIXP),
    CoreKind.AIV: (Pipe.SCALAR, Pipe.MTE2, Pipe.MTE3, Pipe.VECTOR),
}

# Which pipe carries out a copy between two memories. A pair that is missing does not exist.
COPY_PIPE: dict[tuple[Space, Space], Pipe] = {
    (Space.GM, Space.L1): Pipe.MTE2,
    (Space.GM, Space.L0A): Pipe.MTE2,
    (Space.GM, Space.L0B): Pipe.MTE2,
    (Space.GM, Space.UB): Pipe.MTE2,
    (Space.L1, Space.L0A): Pipe.MTE1,
    (Space.L1, Space.L0B): Pipe.MTE1,
    (Space.L1, Space.BT): Pipe.MTE1,
    (Space.L1, Space.FB): Pipe.FIXP,
    (Space.L1, Space.GM): Pipe.MTE3,
    (Space.UB, Space.GM): Pipe.MTE3,
    (Space.UB, Space.UB): Pipe.VECTOR,
}
