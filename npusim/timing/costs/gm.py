"""Cost of GM accesses: what a core's port allows, and what a byte uses of L2 and HBM."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from math import ceil

import numpy as np

from npusim.chips.model import Chip
from npusim.chips.sections import GmPath
from npusim.isa.instructions import CopyLayout
from npusim.isa.patterns import Pattern
from npusim.timing.costs.batch import Array, Batch
from npusim.timing.costs.footprint import Footprint, footprint
from npusim.timing.costs.table import (
    ACCESS,
    ATOMIC,
    FLOW_CLASS,
    READ,
    SHARING_CLASSES,
    SHARING_LEVELS,
    USE_ONE,
    WRITE,
)
from npusim.units import RATE_ONE

HALF_WORD_BITS = 16


class Path(IntEnum):
    """Where a GM transfer comes from or goes to."""

    GM_UB = 0
    GM_L1 = 1
    GM_L0A = 2
    GM_L0B = 3
    UB_GM = 4
    L1_GM = 5
    L0C_GM = 6

    @property
    def is_write(self) -> bool:
        """Whether GM is the destination."""
        return self >= Path.UB_GM

    @property
    def label(self) -> str:
        """The name people read, such as ``GM->UB``."""
        return self.name.replace("_", "->")


# Loads straight into L0 use the same port as loads into L1.
_SECTION = {
    Path.GM_UB: "gm_ub",
    Path.GM_L1: "gm_l1",
    Path.GM_L0A: "gm_l1",
    Path.GM_L0B: "gm_l1",
    Path.UB_GM: "ub_gm",
    Path.L1_GM: "l1_gm",
    Path.L0C_GM: "l0c_gm",
}


@dataclass(frozen=True)
class AccessKey:
    """What makes two GM transfers cost the same."""

    path: Path
    pattern: Pattern
    phase: int
    nd2nz: bool
    atomic: bool
    bypass: bool
    local_bytes: int
    """Bytes on the other side; differs where the fixpipe converts."""


@dataclass
class AccessPrices:
    """Collects the access classes and flow classes of a program on one chip."""

    chip: Chip
    records: list[tuple[object, ...]] = field(default_factory=list)
    flows: list[tuple[int, int, int, int]] = field(default_factory=list)
    _number: dict[AccessKey, int] = field(default_factory=dict)
    _flow_number: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    _shared_number: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def price(
        self,
        batch: Batch,
        at: Array,
        *,
        path: Path,
        gm_operand: int,
        layout: Array,
        atomic: Array,
        bypass: Array,
        local_bytes: Array,
        issue_cycles: float,
    ) -> None:
        """Price GM transfers: rows ``at``, all on one path; the arrays have one entry each."""
        line = self.chip.l2.line_bytes
        pattern = batch.rows["pattern"][at, gm_operand].astype(np.int64)
        phase = batch.phase[at, gm_operand] % line
        flags = layout * 4 + (atomic != 0) * 2 + (bypass != 0)
        columns = np.stack([pattern, phase, flags, local_bytes], axis=1)
        keys, inverse = np.unique(columns, axis=0, return_inverse=True)
        numbers = np.array(
            [self._access(path, batch.program.patterns, key.tolist()) for key in keys]
        )
        setup = np.where(
            layout == CopyLayout.ND2NZ,
            self.chip.gm_l1.nd2nz_setup_cycles,
            self._section(path).setup_cycles,
        )
        batch.set(at, issue_cycles, setup)
        batch.cost["access"][at] = numbers[inverse.reshape(-1)]
        batch.cost["slot"][at] = batch.rows["slot"][at, gm_operand]
        batch.cost["offset"][at] = batch.rows["offset"][at, gm_operand]

    @cached_property
    def _factors(self) -> list[float]:
        return sharing_factors(self.chip)

    def accesses(self) -> Array:
        """The `ACCESS` records collected so far."""
        return np.array(self.records, dtype=ACCESS)

    def classes(self) -> Array:
        """The `FLOW_CLASS` records collected so far."""
        return np.array(self.flows, dtype=FLOW_CLASS)

    def _section(self, path: Path) -> GmPath:
        section: GmPath = getattr(self.chip, _SECTION[path])
        return section

    def _access(self, path: Path, patterns: Sequence[Pattern], key: list[int]) -> int:
        pattern, phase, flags, local_bytes = key
        access = AccessKey(
            path=path,
            pattern=patterns[pattern],
            phase=phase,
            nd2nz=bool(flags & 4),
            atomic=bool(flags & 2),
            bypass=bool(flags & 1),
            local_bytes=local_bytes,
        )
        number = self._number.get(access)
        if number is None:
            number = self._number[access] = len(self.records)
            self.records.append(self._record(access))
        return number

    def _record(self, key: AccessKey) -> tuple[object, ...]:
        chip = self.chip
        shape = footprint(
            key.pattern,
            key.phase,
            chip.l2.line_bytes,
            chip.hbm.alignment_bytes,
            chip.l2.sector_bytes,
        )
        size = shape.port_bytes
        setup, moving = port_cycles(chip, key, shape, self._section(key.path))
        # Rounded up: a transfer alone must not take a cycle more than its port does.
        cap = ceil(size / moving * RATE_ONE)
        line_use = chip.l2.line_bytes / size
        l2_use = max(1, round(shape.requests * line_use * USE_ONE))
        # A read moves the sectors it asks for; what sharers of a line wait is its own.
        sectors = max(size, shape.requests * chip.l2.sector_bytes)
        read_use = max(1, round(sectors / size * USE_ONE))
        waiting = max(0.0, self._section(key.path).floor_cycles - setup - moving)
        hbm_use = max(1, round(hbm_bytes(chip, key.path, shape) * USE_ONE))
        if key.path.is_write:
            kind = ATOMIC if key.atomic else WRITE
            hit = self._flow(cap, 0, l2_use, 0)
            if kind == ATOMIC:
                miss = self._flow(self._miss_cap(cap), 0, l2_use, hbm_use)
            else:
                miss = self._write_miss(key, shape, cap, l2_use, hbm_use)
            burst = miss
            hit_latency = miss_latency = ceil(chip.l2.write_latency_cycles + waiting)
        else:
            kind = READ
            hit = self._shared_flows(cap, read_use, l2_use)
            miss = self._flow(self._miss_cap(cap), read_use, 0, hbm_use)
            burst = self._flow(cap, read_use, 0, hbm_use)
            hit_latency = ceil(chip.l2.hit_latency_cycles + waiting)
            miss_latency = ceil(chip.l2.miss_latency_cycles + waiting)
        return (
            *(kind, int(key.bypass), int(key.path), size, hit, miss, burst),
            *(hit_latency, miss_latency),
            *(shape.run_bytes, shape.counts, shape.strides),
        )

    def _write_miss(
        self, key: AccessKey, shape: Footprint, cap: int, l2_use: int, hbm_use: int
    ) -> int:
        """Bytes past L2, or bytes that tear sectors of absent lines, which are fetched first."""
        hbm = self.chip.hbm
        if key.bypass:
            through = hbm_use * hbm.read_bw_gbps / hbm.write_bw_gbps
            return self._flow(cap, 0, 0, max(1, round(through)))
        if not shape.torn_lines:
            return self._flow(cap, 0, l2_use, 0)
        fetched = shape.torn_lines * self.chip.l2.line_bytes / shape.torn_bytes
        fill = max(1, round(self.chip.l2.core_miss_bytes_per_cycle * RATE_ONE / fetched))
        return self._flow(min(cap, fill), 0, l2_use, max(1, round(fetched * USE_ONE)))

    def _miss_cap(self, cap: int) -> int:
        return min(cap, round(self.chip.l2.core_miss_bytes_per_cycle * RATE_ONE))

    def _flow(self, cap: int, l2_read: int, l2_write: int, hbm: int) -> int:
        key = (cap, l2_read, l2_write, hbm)
        number = self._flow_number.get(key)
        if number is None:
            number = self._flow_number[key] = len(self.flows)
            self.flows.append(key)
        return number

    def _shared_flows(self, cap: int, read_use: int, line_use: int) -> int:
        """First of the classes for each degree of sharing.

        Args:
            read_use: of the bytes moved, for each byte of the port.
            line_use: of all lines asked for, were they moved whole.
        """
        key = (cap, read_use, line_use)
        number = self._shared_number.get(key)
        if number is None:
            number = self._shared_number[key] = len(self.flows)
            for factor in self._factors:
                waiting = round(line_use * (factor - 1))
                self.flows.append((cap, read_use + waiting, 0, 0))
        return number


def port_cycles(
    chip: Chip, key: AccessKey, shape: Footprint, section: GmPath
) -> tuple[float, float]:
    """Set-up, and cycles in which the core's port moves an access when nothing else limits it.

    The slowest of the port's width, the cost of its bursts (of the rows of the matrix for an
    ND2NZ copy), the read port of L0C for the fixpipe, and the floor of one instruction.
    """
    size = shape.port_bytes
    if key.nd2nz:
        path = chip.gm_l1
        setup = path.nd2nz_setup_cycles
        row = path.nd2nz_row_cycles + size / shape.matrix_rows / path.nd2nz_row_bytes_per_cycle
        row = max(path.nd2nz_row_floor_cycles, row)
        odd = max(row, size / shape.matrix_rows / path.nd2nz_odd_row_bytes_per_cycle)
        rows = shape.matrix_rows * (row + shape.odd_rows * (odd - row))
    else:
        setup = section.setup_cycles
        rows = shape.bursts * section.row_cycles + size / section.row_bytes_per_cycle
    moving = max(size / section.bytes_per_cycle, rows, section.issue_floor_cycles - setup)
    if key.path is Path.L0C_GM:
        moving = max(moving, key.local_bytes / chip.fixpipe.read_bytes_per_cycle)
        if key.pattern.dtype.bits == HALF_WORD_BITS:
            moving = max(moving, size / chip.fixpipe.write_bytes_per_cycle)
    return setup, moving


def hbm_bytes(chip: Chip, path: Path, shape: Footprint) -> float:
    """Bytes of long aligned rows into UB that HBM could move in the time of one missed byte.

    A miss fetches its whole line; short bursts and unaligned rows lower HBM's efficiency.
    """
    hbm = chip.hbm
    into_ub = path in (Path.GM_UB, Path.UB_GM)
    short = hbm.short_row_bytes_ub if into_ub else hbm.short_row_bytes_l1
    factor = hbm.unaligned_factor_ub if into_ub else hbm.unaligned_factor_l1
    rate = hbm.read_bw_gbps if into_ub else hbm.l1_read_bw_gbps
    fetched = shape.lines * chip.l2.line_bytes / shape.first_bytes
    unaligned = 1 + shape.unaligned * (1 / factor - 1)
    return fetched * (1 + short / shape.run_bytes) * unaligned * hbm.read_bw_gbps / rate


def sharing_factors(chip: Chip) -> list[float]:
    """Use of L2 by a whole line relative to an unshared one, for each degree of sharing.

    First reads by level (up to 1, 2, 4 ... cores), then repeated reads. g cores on one tile get
    ``l2.requests_per_cycle * g ** -same_line_exponent`` lines per cycle together, and never
    more than L2 has; so all of them cost ``requests(g)``, each new one the difference.
    """
    l2 = chip.l2
    lines_per_cycle = float(chip.clock.bytes_per_cycle(l2.read_bw_gbps)) / l2.line_bytes
    scale = lines_per_cycle / l2.requests_per_cycle

    def requests(cores: int) -> float:
        if cores == 1:
            return 1.0
        return float(cores * max(1.0, scale * cores**l2.same_line_exponent))

    first = [1.0]
    again = [1.0]
    for level in range(1, SHARING_LEVELS):
        low, high = 1 << (level - 1), 1 << level
        first.append(max(1.0, (requests(high) - requests(low)) / (high - low)))
        mean = sum(requests(g) / g for g in range(low + 1, high + 1)) / (high - low)
        again.append(mean)
    factors = first + again
    assert len(factors) == SHARING_CLASSES
    return factors
