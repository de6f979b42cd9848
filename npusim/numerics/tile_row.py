"""The 656-byte cache row of per-tile quantisation: codes, rope and scales side by side."""

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.formats import Array, DType

NOPE_SIZE_BYTES, ROPE_ELEMENTS, SCALES = 512, 64, 4
ROPE_OFFSET_BYTES = NOPE_SIZE_BYTES
SCALE_OFFSET_BYTES = ROPE_OFFSET_BYTES + 2 * ROPE_ELEMENTS
ROW_SIZE_BYTES = SCALE_OFFSET_BYTES + 4 * SCALES

Bytes = npt.NDArray[np.uint8]


def pack_tile_row(nope: Array, rope: Array, scales: Array) -> Bytes:
    """One cache row per leading index.

    Args:
        nope: (..., 512) one-byte codes: int8, e4m3fn or HiFloat8.
        rope: (..., 64) bf16, not quantised.
        scales: (..., 4) fp32 dequantisation scales of the four tiles.

    Returns:
        (..., 656) uint8: codes at 0, rope at 512, scales at 640.

    Raises:
        NumericsError: a part has another width or element size.
    """
    parts = [
        ("nope", nope, NOPE_SIZE_BYTES, 1),
        ("rope", rope, ROPE_ELEMENTS, 2),
        ("scales", scales, SCALES, 4),
    ]
    for name, part, width, size_bytes in parts:
        if part.shape[-1] != width or part.dtype.itemsize != size_bytes:
            raise NumericsError(
                f"tile row: {name} must have {width} columns of {size_bytes} byte(s), "
                f"got {part.shape[-1]} of {part.dtype.itemsize}"
            )
    return np.concatenate(
        [np.ascontiguousarray(part).view(np.uint8) for _, part, _, _ in parts], axis=-1
    )


def unpack_tile_row(row: Bytes, nope: DType = DType.INT8) -> tuple[Array, Array, Array]:
    """Inverse of ``pack_tile_row``: codes of type ``nope``, bf16 rope, fp32 scales.

    Raises:
        NumericsError: rows are not 656 bytes wide.
    """
    if row.shape[-1] != ROW_SIZE_BYTES:
        raise NumericsError(f"tile row: must be {ROW_SIZE_BYTES} bytes, got {row.shape[-1]}")
    codes = np.ascontiguousarray(row[..., :ROPE_OFFSET_BYTES])
    rope = np.ascontiguousarray(row[..., ROPE_OFFSET_BYTES:SCALE_OFFSET_BYTES])
    scales = np.ascontiguousarray(row[..., SCALE_OFFSET_BYTES:])
    return codes.view(nope.numpy), rope.view(DType.BF16.numpy), scales.view(np.float32)
