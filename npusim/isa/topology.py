"""Which used cores signal which: the reach of every cross-core mode."""

from collections import defaultdict

import numpy as np

from npusim.isa.instructions import CrossMode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind


class Topology:
    """The used cores of a program and who reaches whom.

    Attributes:
        used: core numbers that have a stream, ascending.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._per_group = max(1, program.aiv // program.aic)
        used = np.flatnonzero(np.diff(program.core_start)).tolist()
        self.used: list[int] = used
        self._of_kind = {k: tuple(c for c in used if program.kind_of(c) == k) for k in CoreKind}
        self._in_group: dict[tuple[int, CoreKind], list[int]] = defaultdict(list)
        for core in used:
            self._in_group[self.group(core), program.kind_of(core)].append(core)

    def group(self, core: int) -> int:
        """Number of the AIC a core belongs to."""
        aic = self._program.aic
        return core if core < aic else (core - aic) // self._per_group

    def senders(self, core: int, mode: int) -> tuple[int, ...]:
        """Used cores whose sets in ``mode`` reach ``core``: all of them form one increment."""
        kind = self._program.kind_of(core)
        if mode == CrossMode.ALL_OF_KIND:
            return self._of_kind[kind]
        other = CoreKind.AIV if kind == CoreKind.AIC else CoreKind.AIC
        wanted = CoreKind.AIV if mode == CrossMode.AIV_PAIR else other
        return tuple(self._in_group[self.group(core), wanted])
