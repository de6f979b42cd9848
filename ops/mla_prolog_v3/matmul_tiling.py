"""How one matmul of MlaPrologV3 is cut over cores and through the on-chip memories."""

from dataclasses import dataclass

from npusim.errors import CapacityError, ParameterError
from npusim.numerics.formats import DType

FRACTAL_ROWS = 16


@dataclass(frozen=True)
class Slots:
    """Bytes of one slot of each ping-pong pair of a cube core.

    L1 holds two slots for A and two for B, L0A, L0B and L0C two each.
    """

    l1_a_bytes: int = 128 * 1024
    l1_b_bytes: int = 128 * 1024
    l0a_bytes: int = 32 * 1024
    l0b_bytes: int = 32 * 1024
    l0c_bytes: int = 64 * 1024


@dataclass(frozen=True)
class MatmulTiling:
    """One matmul of a step: (m, k) times (k, n), columns split over the first cores.

    Attributes:
        name: mm1 (query down), mm2 (key-value down), mm3 (query up and rotary) or mm4 (query
            into the latent space, head by head).
        m: rows of a full step.
        k, n: inner width and result columns; for mm4 those of one head times N heads.
        a_dtype, b_dtype: operand types.
        n_per_core: columns of a core; the last used core may have fewer.
        cores: cores used, always from core 0 on.
        base_k, step_k: K of one MMAD, and MMADs per L1 load.
        base_n: widest N-tile.
        a_resident: all of A is loaded into L1 once per core instead of once per N-tile.
    """

    name: str
    m: int
    k: int
    n: int
    a_dtype: DType
    b_dtype: DType
    n_per_core: int
    base_k: int
    step_k: int
    base_n: int
    a_resident: bool = False

    @property
    def cores(self) -> int:
        """Cores that have columns."""
        return -(-self.n // self.n_per_core)

    @property
    def k_l1(self) -> int:
        """K of one L1 load."""
        return self.base_k * self.step_k

    @property
    def k_loads(self) -> int:
        """L1 loads per N-tile."""
        return self.k // self.k_l1

    def columns(self, core: int) -> tuple[int, int]:
        """First and past-the-last column of a core; equal for a core without work."""
        start = min(core * self.n_per_core, self.n)
        return start, min(start + self.n_per_core, self.n)

    def n_tiles(self, core: int) -> tuple[tuple[int, int], ...]:
        """(first column, width) of each N-tile of a core, in order."""
        start, stop = self.columns(core)
        return tuple((n, min(self.base_n, stop - n)) for n in range(start, stop, self.base_n))

    def weight_bytes(self, core: int) -> int:
        """Weight bytes that a core reads for one step."""
        start, stop = self.columns(core)
        return self.k * (stop - start) * self.b_dtype.size_bytes

    def check(self, aic: int, slots: Slots) -> None:
        """Refuse a cut that the schedule cannot carry out.

        Args:
            aic: cube cores of the chip.
            slots: sizes of the ping-pong slots.

        Raises:
            ParameterError: a knob breaks a divisibility rule or needs too many cores.
            CapacityError: a tile is larger than its slot.
        """
        self._check_divisibility(aic)
        self._check_capacity(slots)

    def _check_divisibility(self, aic: int) -> None:
        for knob, value, unit in (
            ("n_per_core", self.n_per_core, self.b_dtype.c0),
            ("base_n", self.base_n, self.b_dtype.c0),
            ("base_k", self.base_k, self.a_dtype.c0),
            ("step_k", self.step_k, 1),
        ):
            if value <= 0 or value % unit:
                raise ParameterError(
                    f"tiling: {self.name}_{knob} = {value} must be a positive multiple of {unit}"
                )
        if self.k % self.k_l1:
            raise ParameterError(
                f"tiling: {self.name}_base_k x {self.name}_step_k = {self.k_l1} does not divide "
                f"K = {self.k}; choose factors of K"
            )
        if self.cores > aic:
            raise ParameterError(
                f"tiling: {self.name} needs {self.cores} cores for {self.n} columns in parts of "
                f"{self.n_per_core}, the chip has {aic}; give each core more columns"
            )

    def _check_capacity(self, slots: Slots) -> None:
        rows = -(-self.m // FRACTAL_ROWS) * FRACTAL_ROWS
        a_size, b_size = self.a_dtype.size_bytes, self.b_dtype.size_bytes
        width = min(self.base_n, self.n_per_core)
        k_held = self.k if self.a_resident else self.k_l1
        for memory, need, limit, knobs in (
            ("L0A", rows * self.base_k * a_size, slots.l0a_bytes, f"step, {self.name}_base_k"),
            (
                "L0B",
                width * self.base_k * b_size,
                slots.l0b_bytes,
                f"{self.name}_base_k, {self.name}_base_n",
            ),
            ("L0C", rows * width * 4, slots.l0c_bytes, f"step, {self.name}_base_n"),
            ("L1 A", rows * k_held * a_size, slots.l1_a_bytes, f"step, {self.name}_step_k"),
            (
                "L1 B",
                width * self.k_l1 * b_size,
                slots.l1_b_bytes,
                f"{self.name}_step_k, {self.name}_base_n",
            ),
        ):
            if need > limit:
                raise CapacityError(
                    f"tiling: a {memory} tile of {self.name} needs {need:,} B, its slot has "
                    f"{limit:,} B; lower {knobs}"
                )
