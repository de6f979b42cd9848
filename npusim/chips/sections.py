"""The parameters of a chip, by section: names, types and what each one means.

A section is a frozen view of plain numbers, so that ``chip.hbm.read_bw_gbps`` is a float at the
cost of two attribute reads. Where a number comes from is kept beside it, in ``Chip.quantity``.
The unit is in the name; ``sizes`` is in bytes and ``queue`` in instructions.
"""

from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict

from npusim.errors import ChipError

Count = Annotated[int, Gt(0), Le(2**40)]
"""A whole number above 0."""
Memory = Annotated[int, Ge(512), Le(2**40)]
"""Bytes of an on-chip memory: at least one fractal."""
SmallCount = Annotated[int, Gt(0), Le(4096)]
"""A count of things that a run keeps state for, such as cores or queue places."""
Megahertz = Annotated[int, Gt(0), Le(100_000)]
"""A clock."""
Cycles = Annotated[float, Ge(0), Le(1e9)]
"""A cost that may be 0 and need not be whole: costs are summed before they are rounded. The
limit, here and for rates, keeps sums of them inside 64 bits."""
Microseconds = Annotated[float, Ge(0), Le(1e6)]
"""A time outside the kernel; a second is more than any launch takes."""
Rate = Annotated[float, Ge(1e-3), Le(1e9)]
"""A rate; no machine has one below the limit, and runs would end beyond every clock."""
Factor = Annotated[float, Gt(0), Le(1)]
"""An efficiency: above 0, at most 1."""
Exponent = Annotated[float, Ge(0), Le(2)]
"""A power of the number of cores that share something."""
Share = Annotated[float, Ge(0), Le(1)]
"""A share: 0 to 1, both possible."""


class Section(BaseModel):
    """A frozen group of parameters; one that has no value yet raises ``ChipError`` when read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Hidden from type checkers: they would otherwise accept any attribute name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise ChipError(
                    f"parameter '{name}' of section {type(self).__name__} has no value for this "
                    "chip; its machine is not modelled yet"
                )
            return super().__getattr__(name)


class Cores(Section):
    """How many cores run, and how fast."""

    aic: SmallCount
    """Cube cores."""
    aiv: SmallCount
    """Vector cores; a fixed number for each cube core."""
    clock_mhz: Megahertz
    """The one clock of all cores."""


class Sizes(Section):
    """Physical bytes of the memories of one core."""

    l1: Memory
    l0a: Memory
    l0b: Memory
    l0c: Memory
    ub: Memory
    bt: Memory
    fb: Memory
    """All fixpipe buffers together."""


class Queue(Section):
    """Instructions that wait in front of a pipe before the scalar unit stalls."""

    depth_scalar: SmallCount
    depth_mte1: SmallCount
    depth_mte2: SmallCount
    depth_mte3: SmallCount
    depth_cube: SmallCount
    depth_fixp: SmallCount
    depth_vector: SmallCount


class Issue(Section):
    """Cycles of the scalar unit to issue one instruction, by class of opcode, and of its loads."""

    default_cycles: Cycles
    flag_cycles: Cycles
    barrier_cycles: Cycles
    scalar_cycles: Cycles
    mask_cycles: Cycles
    mte_cycles: Cycles
    cube_cycles: Cycles
    fixpipe_cycles: Cycles
    vector_cycles: Cycles
    scalar_load_cycles: Cycles
    """A scalar load that hits the data cache."""
    scalar_load_miss_cycles: Cycles
    """A scalar load from GM that misses it."""
    scalar_load_line_bytes: Count
    """Line of the data cache: what a miss fetches."""


class GmPath(Section):
    """A path between GM and a memory of a core.

    An instruction of rows (bursts) holds its pipe for
    ``max(issue_floor_cycles, setup_cycles + sum over rows of (row_cycles + row bytes /
    row_bytes_per_cycle))`` when nothing else limits it; ``bytes_per_cycle`` is the port that
    caps its share of the memory system.
    """

    setup_cycles: Cycles
    bytes_per_cycle: Rate
    row_cycles: Cycles
    row_bytes_per_cycle: Rate
    floor_cycles: Cycles
    """Least cycles from start to visible result, memory latency apart."""
    issue_floor_cycles: Cycles
    """Least cycles for which one instruction holds the pipe."""


class GmL1Path(GmPath):
    """GM to L1, with the variant that rearranges ND rows into NZ fractals on the way.

    One ND2NZ row costs ``max(nd2nz_row_floor_cycles, nd2nz_row_cycles + row bytes /
    nd2nz_row_bytes_per_cycle)``, and no less than row bytes / nd2nz_odd_row_bytes_per_cycle if it
    starts inside a block of 32 bytes.
    """

    nd2nz_setup_cycles: Cycles
    nd2nz_row_cycles: Cycles
    nd2nz_row_floor_cycles: Cycles
    nd2nz_row_bytes_per_cycle: Rate
    nd2nz_odd_row_bytes_per_cycle: Rate


class LocalPath(Section):
    """A path inside a core: ``max(floor_cycles, setup_cycles + bytes / bytes_per_cycle)``."""

    setup_cycles: Cycles
    bytes_per_cycle: Rate
    floor_cycles: Cycles


class LoadPath(LocalPath):
    """A path of MTE1 out of L1."""

    flagged_extra_cycles: Cycles
    """Added to a load that a flag hand-shake separates from the one before."""


class CubeRate(Section):
    """Speed of the Cube for one element type."""

    cycles: Rate
    """Cycles of one 16 x 16 x k0 fractal product."""
    k0: Count
    """Elements along K in one fractal product."""


class Cube(Section):
    """``max(min_cycles, head + ceil(M/16) ceil(N/16) ceil(K/k0) cycles)`` for one mmad."""

    head_cycles: Cycles
    """Head of an mmad that was queued behind another."""
    head_after_wait_cycles: Cycles
    """Head of an mmad that follows a wait."""
    first_result_latency_cycles: Cycles
    """From the start of an isolated mmad to its first result, beyond its fractals."""
    min_cycles: Cycles
    rates: dict[str, CubeRate]
    """By element type, in lower case (``bf16``)."""

    def rate(self, dtype: str) -> CubeRate:
        """The speed for an element type given by its name in any case.

        Raises:
            ChipError: the Cube of this chip does not multiply the type.
        """
        try:
            return self.rates[dtype.lower()]
        except KeyError:
            raise ChipError(
                f"the Cube of this chip does not multiply {dtype.lower()}; it multiplies "
                f"{', '.join(self.rates)}"
            ) from None


class Fixpipe(Section):
    """L0C to GM or L1; quantisation, ReLU and NZ to ND are free at these rates."""

    setup_cycles: Cycles
    read_bytes_per_cycle: Rate
    """Out of L0C, with all cores busy."""
    write_bytes_per_cycle: Rate
    """Into the destination with 16-bit elements, with all cores busy."""
    unit_flag_bytes: Count
    """Granularity at which unit-flag lets the fixpipe follow the Cube."""


class Vector(Section):
    """The vector unit of architecture 2201, which works on UB in repeats.

    An instruction holds the pipe for ``max(issue_floor_cycles, extra + repeats x cycles per
    repeat)``; its result is visible ``startup_cycles`` later.
    """

    issue_floor_cycles: Cycles
    startup_cycles: Cycles
    """From the end of an instruction's repeats to its visible result."""
    repeat_bytes: Count
    banks: Count
    bank_groups: Count
    bank_bytes: Count
    block_bytes: Count
    """Unit of a bank access and of an operand address."""
    conflict_cycles_per_repeat: Cycles
    """Added when both sources lie in one bank group."""
    write_conflict_cycles_per_repeat: Cycles
    """Added when a source and the destination collide in one bank."""
    counter_mode_extra_cycles: Cycles
    """Added to an instruction in counter mode."""
    cycles_per_repeat: dict[str, Rate]
    """By class of instruction; ``exp_b16`` wins over ``exp`` for 16-bit elements."""
    startup_cycles_by_class: dict[str, Cycles]
    """Classes whose start-up differs from ``startup_cycles``."""
    extra_cycles_by_class: dict[str, Cycles]
    """Cycles added once to each instruction of a class."""

    def repeat_cycles(self, name: str, element_bits: int) -> float:
        """Cycles of one repeat, without bank conflicts, of an instruction class.

        Raises:
            ChipError: the class has no cost on this chip.
        """
        found = _by_width(self.cycles_per_repeat, name, element_bits)
        if found is None:
            raise ChipError(
                f"vector instruction class '{name}' has no cost on this chip; it has "
                f"{', '.join(self.cycles_per_repeat)}"
            )
        return found

    def startup(self, name: str, element_bits: int) -> float:
        """Start-up cycles of an instruction class."""
        found = _by_width(self.startup_cycles_by_class, name, element_bits)
        return self.startup_cycles if found is None else found

    def extra(self, name: str, element_bits: int) -> float:
        """Cycles that each instruction of a class pays once."""
        return _by_width(self.extra_cycles_by_class, name, element_bits) or 0.0


class RegisterVector(Section):
    """The vector unit of architecture 3510, which works on registers inside vector functions."""

    register_bytes: Count
    registers: Count
    alu_slots: Count
    load_ports: Count
    store_ports: Count
    function_start_cycles: Cycles
    function_drain_cycles: Cycles
    memory_barrier_cycles: Cycles
    banks: Count
    bank_groups: Count
    bank_bytes: Count
    latency_cycles_by_class: dict[str, Cycles]
    interval_cycles_by_class: dict[str, Cycles]
    """Cycles between two starts on one ALU slot; classes not listed start every cycle."""


class L2(Section):
    """The cache that all cores share."""

    size_bytes: Count
    line_bytes: Count
    sector_bytes: Count
    read_bw_gbps: Rate
    """Hits, all cores together."""
    write_bw_gbps: Rate
    requests_per_cycle: Rate
    """Requests of up to one line that one tile serves to one core; ``g`` cores on the same tile
    get ``g ** -same_line_exponent`` of it together."""
    same_line_exponent: Exponent
    same_line_window_cycles: Count
    """Two cores share a line if they ask for it within this time."""
    hit_latency_cycles: Cycles
    miss_latency_cycles: Cycles
    write_latency_cycles: Cycles
    irregular_victim_share: Share
    """Share of victims that are not the least recently used."""
    dirty_share: Share
    """Lines that hold foreign dirty data at the start."""
    write_back_queue_bytes: Count
    """Dirty victims that may wait for HBM before L2 slows writes down to what it writes back."""
    core_miss_bytes_per_cycle: Rate
    """What one core gets while it keeps missing: its reads in flight are bounded, by this times
    ``miss_latency_cycles``. Also bounds the lines fetched for writes and atomics of a core."""


class Hbm(Section):
    """The memory behind L2."""

    size_gib: Rate
    nominal_bw_gbps: Rate
    """The data sheet's rate; shown, not used for time."""
    read_bw_gbps: Rate
    """Pure read in long rows, as UB gets it."""
    l1_read_bw_gbps: Rate
    """The same for weights and ND2NZ loads into L1; follows where the other is set alone."""
    write_bw_gbps: Rate
    mixed_factor: Factor
    """Rate while write-backs run, relative to pure reads."""
    short_row_bytes_ub: Cycles
    """Rows of r bytes reach 1 / (1 + short_row_bytes / r) of the rate."""
    short_row_bytes_l1: Cycles
    unaligned_factor_ub: Factor
    """Rate of rows that do not start on ``alignment_bytes``, relative to those that do."""
    unaligned_factor_l1: Factor
    alignment_bytes: Count
    write_back_share: Share
    """Share of the rate that pending write-backs take."""


class Sync(Section):
    """Flags and barriers."""

    cross_core_flag_cycles: Cycles
    """From a set to the wait it releases, between the cores of one AI core (modes 1, 2, 4)."""
    all_core_barrier_cycles: Cycles
    """The same for mode 0, counted from the last core's set."""
    pipe_barrier_cycles: Cycles
    """On top of draining the pipe."""
    set_flag_cycles: Cycles
    wait_flag_cycles: Cycles
    flag_counter_max: Count
    event_ids: SmallCount
    """Flag ids for each pair of pipes."""
    cross_core_flag_ids: SmallCount


class LaunchKind(Section):
    """Time outside the kernel's own instructions for one kind of kernel."""

    head_us: Microseconds
    tail_us: Microseconds


class Launch(Section):
    """Launch and tail by kind of kernel, and how unevenly cores start."""

    vector: LaunchKind
    cube: LaunchKind
    mixed: LaunchKind
    skew_us: Microseconds
    """Cores start at seeded offsets up to this."""


def _by_width(table: dict[str, float], name: str, element_bits: int) -> float | None:
    found = table.get(f"{name}_b{element_bits}")
    return table.get(name) if found is None else found
