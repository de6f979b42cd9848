"""How a matmul is cut: base tile, L1 chunks, and which core computes what.

The default is the candidate with the least estimated time: rounds of tiles over the cores times
the slowest pipe of one tile, plus the fixpipe where L0C has one buffer. It is an estimate to
choose by, not a prediction; the timing run predicts.

Where the tiles divide into equal rectangles, one for each core, each core gets one, as in the
tuned kernels whose tiling is published; else the tiles are dealt one by one, in flat bands.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ParameterError
from npusim.ops.blocks.matmul.params import MatmulParams
from npusim.ops.common.arguments import with_overrides
from npusim.ops.common.fractals import FRACTAL, ceil_div, l0c_bytes, padded_n, round_up
from npusim.ops.common.matmul_loop import L0_BUFFERS
from npusim.ops.common.matmul_matrix import Matrix
from npusim.ops.common.tile_order import Split

_MAX_SIDE = 512
_ROW_BYTES = 512  # rows of a chunk that L2 and HBM serve at full rate
_MAX_STEP_BYTES = 256  # longer L0 steps delay the first MMAD and save nothing
_SHARERS = 5  # cores that typically read the same tile of a swizzled order
_BAND = 2  # cores that read the same part of the larger operand at a time (inferred)
_MAX_EXTENT = 4095  # of m, n and k in one MMAD


@dataclass(frozen=True)
class MatmulTiling:
    """Knobs of the matmul.

    Attributes:
        base_m, base_n: output tile of one core.
        base_k: k of one L0 buffer.
        step_k, step_kb: L0 steps in one L1 buffer of A and of B; B follows A unless given.
        l1_buffers, l0c_buffers: depth of the rings (L0A and L0B have two).
        swizzle: rows of tiles in one band of the tile order; blocks default to one band.
        split: how tiles are dealt to cores.
        down: cores on top of each other when ``split`` is blocks; 0 chooses.
        passes: bands of rows of tiles, each finished by all cores before the next.
        preload: load one chunk ahead (with two L1 buffers or more), else when it is needed.
        across: load ahead across tiles too, else a tile begins with empty L1 buffers.
        unit_flag: where L0C is one buffer, let the cube begin the next tile while the fixpipe
            still reads, as the vendor's templates do; else flags hand L0C over whole.
        rearrange_a, rearrange_b: let the AIVs bring the operand into NZ first.
        cores: AICs used.
    """

    base_m: int
    base_n: int
    base_k: int
    step_k: int
    step_kb: int
    l1_buffers: int
    l0c_buffers: int
    swizzle: int
    split: Split
    down: int
    passes: int
    preload: bool
    across: bool
    unit_flag: bool
    rearrange_a: bool
    rearrange_b: bool
    cores: int

    @property
    def base(self) -> tuple[int, int, int]:
        """m, n and k of one MMAD."""
        return (self.base_m, self.base_n, self.base_k)

    @property
    def chunks_k(self) -> tuple[int, int]:
        """k of one L1 buffer of A and of B."""
        return (self.base_k * self.step_k, self.base_k * self.step_kb)


@dataclass(frozen=True)
class Limits:
    """What a kernel around the matmul takes away from it.

    Attributes:
        l1_bytes: L1 that is not the matmul's.
        base_n: widest output tile.
        rearranges: whether it can bring operands into NZ.
    """

    l1_bytes: int = 0
    base_n: int = _MAX_SIDE
    rearranges: bool = False


NO_LIMITS = Limits(rearranges=True)


def tiling(
    params: MatmulParams, chip: Chip, overrides: Mapping[str, Any], limits: Limits = NO_LIMITS
) -> MatmulTiling:
    """The default tiling with overrides applied.

    Base sizes that the user fixes narrow the search; the other knobs follow from them.

    Args:
        limits: what else the kernel needs.

    Raises:
        ParameterError: unknown knob, misaligned base size or too many cores.
        CapacityError: L1, L0A, L0B or L0C overflow.
    """
    params = rearranged(
        params, overrides.get("rearrange_a") is True, overrides.get("rearrange_b") is True
    )
    if "step_k" in overrides:
        overrides = {"step_kb": overrides["step_k"], **overrides}
    fixed = {k: v for k, v in overrides.items() if k in ("base_m", "base_n", "cores")}
    candidates = [
        c
        for c in _candidates(params, chip, fixed, limits)
        if not _overflows(params, chip, c, limits)
    ] or [_completed(params, chip, FRACTAL, padded_n(params.dtype, 1), chip.cores.aic, limits)]
    best = min(candidates, key=lambda c: _estimate(params, chip, c))
    chosen = with_overrides("matmul tiling", best, overrides)
    if (
        not {"step_k", "step_kb", "base_k", "l1_buffers", "l0c_buffers"} & overrides.keys()
        and fixed
    ):
        derived = _completed(params, chip, chosen.base_m, chosen.base_n, chosen.cores, limits)
        chosen = with_overrides("matmul tiling", derived, overrides)
    chosen = _with_split(params, chosen, overrides)
    check(params, chip, chosen, limits)
    return chosen


def rearranged(params: MatmulParams, a: bool, b: bool) -> MatmulParams:
    """The product as the cube finds it, after operands were brought into NZ."""
    return replace(params, a_nz=a, b_nz=b or params.b_nz)


def _with_split(
    params: MatmulParams, t: MatmulTiling, overrides: Mapping[str, Any]
) -> MatmulTiling:
    """How the tiles are dealt, where the user does not say it."""
    if min(t.base_m, t.base_n, t.cores) <= 0:
        return t  # refused later
    rows, cols = ceil_div(params.M, t.base_m), ceil_div(params.N, t.base_n)
    grids = [
        (down, t.cores // down)
        for down in range(1, t.cores + 1)
        if t.cores % down == 0 and rows % down == 0 and cols % (t.cores // down) == 0
    ]
    split = t.split
    if "split" not in overrides and grids:
        split = Split.BLOCKS
    if split is not Split.BLOCKS:
        return t
    down = t.down
    if not down and grids:
        # The squarest rectangle: its cores load least.
        down = min(grids, key=lambda g: rows // g[0] * t.base_m + cols // g[1] * t.base_n)[0]
    swizzle = t.swizzle if "swizzle" in overrides else rows
    return replace(t, split=split, down=down, swizzle=swizzle)


def check(params: MatmulParams, chip: Chip, t: MatmulTiling, limits: Limits = NO_LIMITS) -> None:
    """Refuse a tiling that the hardware cannot run.

    Raises:
        ParameterError, CapacityError: as in `tiling`.
    """
    c0 = params.dtype.c0
    columns = padded_n(params.dtype, 1)
    for name, value, unit in (
        ("base_m", t.base_m, c0 if params.transpose_a else FRACTAL),
        ("base_n", t.base_n, columns),
        ("base_k", t.base_k, c0),
    ):
        if value % unit or value > _MAX_EXTENT:
            raise ParameterError(
                f"matmul tiling: {name} is {value}, it must be a multiple of {unit} up to "
                f"{_MAX_EXTENT // unit * unit}"
            )
    if t.base_n > limits.base_n:
        raise ParameterError(
            f"matmul tiling: base_n is {t.base_n}, per-column parameters allow {limits.base_n}"
        )
    if t.cores > chip.cores.aic:
        raise ParameterError(
            f"matmul tiling: cores is {t.cores}, chip {chip.name} has {chip.cores.aic} AIC"
        )
    if 2 * t.l1_buffers > chip.sync.event_ids or t.l0c_buffers > chip.sync.event_ids:
        raise ParameterError(
            f"matmul tiling: {t.l1_buffers} L1 and {t.l0c_buffers} L0C buffers; "
            f"{chip.sync.event_ids} events allow {chip.sync.event_ids // 2} and "
            f"{chip.sync.event_ids}"
        )
    if not t.across and 2 * t.l1_buffers + 2 >= chip.sync.event_ids:
        raise ParameterError(
            f"matmul tiling: across=false takes one more event, {t.l1_buffers} L1 buffers leave "
            "none; use fewer"
        )
    if (t.rearrange_a or t.rearrange_b) and not limits.rearranges:
        raise ParameterError(
            "matmul tiling: rearrange_a and rearrange_b are knobs of 'matmul'; this kernel reads "
            "its operands as they are"
        )
    problem = _overflows(params, chip, t, limits)
    if problem is not None:
        raise CapacityError(problem)


def _overflows(params: MatmulParams, chip: Chip, t: MatmulTiling, limits: Limits) -> str | None:
    a, b = params.a, params.b
    a_chunk, b_chunk = t.chunks_k
    needs = {
        "L1": (
            t.l1_buffers * (a.l1_bytes(t.base_m, a_chunk) + b.l1_bytes(t.base_n, b_chunk)),
            chip.sizes.l1 - limits.l1_bytes,
            f"{t.l1_buffers} x (base_m {t.base_m} x {a_chunk} of K + base_n {t.base_n} x "
            f"{b_chunk} of K)",
        ),
        "L0A": (
            L0_BUFFERS * a.l0_bytes(t.base_m, t.base_k),
            chip.sizes.l0a,
            f"{L0_BUFFERS} x base_m {t.base_m} x base_k {t.base_k}",
        ),
        "L0B": (
            L0_BUFFERS * b.l0_bytes(t.base_n, t.base_k),
            chip.sizes.l0b,
            f"{L0_BUFFERS} x base_n {t.base_n} x base_k {t.base_k}",
        ),
        "L0C": (
            t.l0c_buffers * l0c_bytes(t.base_m, t.base_n),
            chip.sizes.l0c,
            f"{t.l0c_buffers} x base_m {t.base_m} x base_n {t.base_n}",
        ),
    }
    for space, (size, limit, what) in needs.items():
        if size > limit:
            return (
                f"matmul tiling: {what} needs {size} B of {space}, {limit} B available; use "
                "smaller base sizes or fewer buffers"
            )
    return None


def _candidates(
    params: MatmulParams, chip: Chip, fixed: Mapping[str, Any], limits: Limits
) -> Iterator[MatmulTiling]:
    unit_m = params.dtype.c0 if params.transpose_a else FRACTAL
    cores = fixed.get("cores", chip.cores.aic)
    if not isinstance(cores, int) or not 1 <= cores <= chip.cores.aic:
        cores = chip.cores.aic
    for m in _sides(params.M, max(unit_m, FRACTAL), fixed.get("base_m"), cores):
        for n in _sides(params.N, padded_n(params.dtype, 1), fixed.get("base_n"), cores):
            if n <= limits.base_n:
                yield _completed(params, chip, m, n, cores, limits)


def _sides(extent: int, unit: int, fixed: Any, cores: int) -> list[int]:
    """Base sizes worth trying along one axis."""
    if isinstance(fixed, int) and fixed > 0:
        return [fixed]
    sides = {unit * i for i in (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)}
    # Even shares of the axis: the last tile is then no smaller than the others.
    sides |= {round_up(ceil_div(extent, parts), unit) for parts in range(1, 4 * cores + 1)}
    limit = round_up(extent, unit)
    return sorted(s for s in sides if s <= min(limit, _MAX_SIDE))


def _completed(
    params: MatmulParams, chip: Chip, m: int, n: int, cores: int, limits: Limits
) -> MatmulTiling:
    """The other knobs for a base tile: the deepest buffers that fit."""
    a, b = params.a, params.b
    size, c0 = params.dtype.size_bytes, params.dtype.c0
    whole_k = round_up(params.K, c0)
    base_k = min(_MAX_STEP_BYTES // size, whole_k)
    while base_k > c0 and (
        L0_BUFFERS * a.l0_bytes(m, base_k) > chip.sizes.l0a
        or L0_BUFFERS * b.l0_bytes(n, base_k) > chip.sizes.l0b
    ):
        base_k -= c0
    # Whole 128-byte pieces keep rows aligned; short buffers take what they can.
    aligned = base_k // (128 // size) * (128 // size)
    base_k = aligned or base_k
    step_k = max(1, min(ceil_div(whole_k, base_k), ceil_div(_ROW_BYTES // size, base_k)))

    def l1_bytes(steps: int) -> int:
        return 2 * (a.l1_bytes(m, steps * base_k) + b.l1_bytes(n, steps * base_k))

    while step_k > 1 and l1_bytes(step_k) > chip.sizes.l1 - limits.l1_bytes:
        step_k -= 1
    return MatmulTiling(
        base_m=m,
        base_n=n,
        base_k=base_k,
        step_k=step_k,
        step_kb=step_k,
        l1_buffers=2,
        l0c_buffers=2 if 2 * l0c_bytes(m, n) <= chip.sizes.l0c else 1,
        swizzle=_band(m, n, cores),
        split=Split.INTERLEAVED,
        down=0,
        passes=1,
        preload=True,
        across=True,
        unit_flag=True,
        rearrange_a=False,
        rearrange_b=False,
        cores=cores,
    )


def _band(m: int, n: int, cores: int) -> int:
    """Rows of tiles in a band.

    L2 serves requests for one line one after the other. A tile of the larger operand is therefore
    shared by few cores at a time, and the smaller one by the others; more than one, so that the
    larger operand is read fewer times.
    """
    return _BAND if m <= n else max(1, cores // _BAND)


def _estimate(params: MatmulParams, chip: Chip, t: MatmulTiling) -> tuple[float, int]:
    """Cycles by which candidates are compared; larger tiles win ties."""
    m, n, size = t.base_m, t.base_n, params.dtype.size_bytes
    tiles = ceil_div(params.M, m) * ceil_div(params.N, n)
    rate = chip.cube.rate(params.dtype.name)
    steps = ceil_div(params.K, t.base_k)
    cube = steps * chip.cube.head_after_wait_cycles + rate.cycles * (
        ceil_div(m, FRACTAL) * ceil_div(n, FRACTAL) * ceil_div(params.K, rate.k0)
    )
    busy = min(tiles, t.cores)
    sides = (
        _load(params.a, chip, m, t.chunks_k[0], busy),
        _load(params.b, chip, n, t.chunks_k[1], busy),
    )
    loads = max(
        sum(side.port_cycles for side in sides),
        busy * sum(side.l2_bytes for side in sides) / _per_cycle(chip, chip.l2.read_bw_gbps),
    )
    to_l0 = steps * 2 * chip.l1_l0a.flagged_extra_cycles + params.K * size * (
        m / chip.l1_l0a.bytes_per_cycle + n / chip.l1_l0b.bytes_per_cycle
    )
    store = m * n * 4 / chip.fixpipe.read_bytes_per_cycle
    tile = max(cube, loads, to_l0, store) + (store if t.l0c_buffers == 1 else 0)
    once = (
        params.K * size * (params.M * sides[0].hbm_factor + params.N * sides[1].hbm_factor)
    ) / _per_cycle(chip, chip.hbm.l1_read_bw_gbps)
    rounds = ceil_div(tiles, t.cores) * tile
    # Where HBM decides, the tiling that works less still leaves more room for jitter.
    return max(once, rounds) + 0.1 * rounds + store, -m * n


def _per_cycle(chip: Chip, gbps: float) -> float:
    return float(chip.clock.bytes_per_cycle(gbps))


@dataclass(frozen=True)
class _Load:
    """What one tile's side costs over all of K.

    Attributes:
        port_cycles: in which MTE2 works.
        l2_bytes: that L2 could move in the time, were no line shared.
        hbm_factor: time of HBM relative to long aligned rows.
    """

    port_cycles: float
    l2_bytes: float
    hbm_factor: float


def _load(matrix: Matrix, chip: Chip, outer: int, chunk: int, busy: int) -> _Load:
    inner, size, line = matrix.inner, matrix.dtype.size_bytes, chip.l2.line_bytes
    chunk = min(chunk, inner)
    path, moved = chip.gm_l1, float(outer * inner * size)
    unshared = _per_cycle(chip, chip.l2.read_bw_gbps) / line / chip.l2.requests_per_cycle
    waiting = max(1.0, unshared * min(_SHARERS, busy) ** chip.l2.same_line_exponent) - 1
    if matrix.nz:
        return _Load(moved / path.bytes_per_cycle, moved * (1 + waiting), 1.0)
    rows, row = (inner, outer * size) if matrix.k_rows else (outer * inner / chunk, chunk * size)
    cycles = max(
        path.nd2nz_row_floor_cycles, path.nd2nz_row_cycles + row / path.nd2nz_row_bytes_per_cycle
    )
    whole = row % line == 0 and matrix.stored[1] * size % line == 0
    lines = row // line if whole else row / line + 1 - min(row, line) / line / 2
    return _Load(
        port_cycles=rows * cycles,
        l2_bytes=moved + rows * lines * line * waiting,
        hbm_factor=(1 + chip.hbm.short_row_bytes_l1 / row)
        / (1 if whole else chip.hbm.unaligned_factor_l1),
    )
