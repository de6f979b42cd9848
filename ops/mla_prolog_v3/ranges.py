"""Ranges of the sizes: what the API page documents, and what newer device code admits."""

from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.status import TILING, refusal

MAX_B = 65536
DOCUMENTED_HE = (1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192)
DOCUMENTED_N = (1, 2, 4, 8, 16, 32, 64, 128)
MAX_N = 128
HE_UNIT = 256
"""The first matmuls walk K in parts of this size at most (``LENIENT``)."""
MIN_BLOCK_SIZE, MAX_BLOCK_SIZE, BLOCK_SIZE_UNIT = 16, 1024, 16


def check_dims(p: MlaPrologParams, validity: Validity) -> None:
    """Refuse a size outside its range, in the order of the host code.

    Raises:
        ParameterError: status 561002; the message names the size, its value and the range.
    """
    wide = validity is not Validity.DOCUMENTED
    if p.B > MAX_B:
        raise refusal(TILING, f"B = {p.B}: must be 0 to {MAX_B}")
    _check_he(p.He, validity)
    _one_of("Hcq", p.Hcq, (1536,), (1536, 2048), wide)
    _one_of("Hckv", p.Hckv, (512,), (512,), wide)
    _check_n(p.N, wide)
    _one_of("D", p.D, (128,), (128, 192), wide)
    _one_of("Dr", p.Dr, (64,), (64,), wide)
    _one_of("Nkv", p.Nkv, (1,), (1,), wide)
    if p.cache_mode.is_paged:
        check_block_size(p.BlockSize)
    check_tile_size(p.tile_size)


def check_block_size(block_size: int) -> None:
    """BlockSize: a multiple of 16 between 16 and 1024, also when there are no blocks."""
    inside = MIN_BLOCK_SIZE <= block_size <= MAX_BLOCK_SIZE
    if not inside or block_size % BLOCK_SIZE_UNIT:
        raise refusal(
            TILING,
            f"BlockSize = {block_size}: must be a multiple of {BLOCK_SIZE_UNIT} from "
            f"{MIN_BLOCK_SIZE} to {MAX_BLOCK_SIZE}",
        )


def check_tile_size(tile_size: int) -> None:
    """tile_size: 128 in every mode, per-tile or not."""
    if tile_size != 128:
        raise refusal(TILING, f"tile_size = {tile_size}: must be 128")


def _check_he(he: int, validity: Validity) -> None:
    if validity is Validity.LENIENT:
        if he <= 0 or he % HE_UNIT:
            raise refusal(TILING, f"He = {he}: must be a positive multiple of {HE_UNIT}")
    elif he not in DOCUMENTED_HE:
        known = ", ".join(str(v) for v in DOCUMENTED_HE)
        raise refusal(
            TILING,
            f"He = {he}: must be one of {known} (--validity lenient admits multiples of {HE_UNIT})",
        )


def _check_n(n: int, wide: bool) -> None:
    if wide and not 1 <= n <= MAX_N:
        raise refusal(TILING, f"N = {n}: must be 1 to {MAX_N}")
    if not wide and n not in DOCUMENTED_N:
        known = ", ".join(str(v) for v in DOCUMENTED_N)
        hint = f" (--validity wide admits 1 to {MAX_N})" if 1 <= n <= MAX_N else ""
        raise refusal(TILING, f"N = {n}: must be one of {known}{hint}")


def _one_of(
    name: str, value: int, documented: tuple[int, ...], wider: tuple[int, ...], wide: bool
) -> None:
    allowed = wider if wide else documented
    if value in allowed:
        return
    known = " or ".join(str(v) for v in allowed)
    hint = f" (--validity wide admits {value})" if value in wider else ""
    raise refusal(TILING, f"{name} = {value}: must be {known}{hint}")
