"""Which conversions each architecture's vector unit has, and in which rounding modes."""

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.formats import DType, type_name
from npusim.numerics.rounding import Rounding

R = Rounding
Modes = frozenset[Rounding]
Pair = tuple[DType, DType]

_FIVE: Modes = frozenset({R.NONE, R.RINT, R.ROUND, R.FLOOR, R.CEIL, R.TRUNC})
_SIX: Modes = _FIVE | {R.ODD}
# An exact conversion has no mode; RINT is let through because it cannot change the result.
_EXACT: Modes = frozenset({R.NONE, R.RINT})

_COMMON: dict[Pair, Modes] = {
    (DType.FP32, DType.FP16): _SIX,
    (DType.FP32, DType.BF16): _FIVE,
    (DType.FP32, DType.INT16): _FIVE,
    (DType.FP32, DType.INT32): _FIVE,
    (DType.FP32, DType.INT64): _FIVE,
    (DType.FP16, DType.FP32): _EXACT,
    (DType.FP16, DType.INT8): _FIVE,
    (DType.FP16, DType.UINT8): _FIVE,
    (DType.FP16, DType.INT16): _FIVE,
    (DType.FP16, DType.INT32): _FIVE,
    (DType.BF16, DType.FP32): _EXACT,
    (DType.BF16, DType.INT32): _FIVE,
    (DType.INT8, DType.FP16): _EXACT,
    (DType.UINT8, DType.FP16): _EXACT,
    (DType.INT16, DType.FP16): _FIVE,
    (DType.INT16, DType.FP32): _EXACT,
    (DType.INT32, DType.FP32): _FIVE,
    (DType.INT32, DType.INT16): _EXACT,
    (DType.INT32, DType.INT64): _EXACT,
    (DType.INT64, DType.INT32): _EXACT,
}
_ONLY_2201: dict[Pair, Modes] = {
    (DType.FP16, DType.INT4): _FIVE,
    (DType.INT4, DType.FP16): _EXACT,
}
_ONLY_3510: dict[Pair, Modes] = {
    (DType.FP16, DType.BF16): _FIVE,
    (DType.BF16, DType.FP16): _FIVE,
    (DType.FP32, DType.E4M3FN): _EXACT,
    (DType.FP32, DType.E5M2): _EXACT,
    (DType.FP32, DType.HIFLOAT8): frozenset({R.ROUND, R.HYBRID}),
    (DType.FP16, DType.HIFLOAT8): frozenset({R.ROUND, R.HYBRID}),
    (DType.BF16, DType.FP4_E2M1): _FIVE,
    (DType.BF16, DType.FP4_E1M2): _FIVE,
    (DType.BF16, DType.E8M0): frozenset({R.NONE, R.TRUNC}),
    (DType.E4M3FN, DType.FP32): _EXACT,
    (DType.E5M2, DType.FP32): _EXACT,
    (DType.HIFLOAT8, DType.FP32): _EXACT,
    (DType.HIFLOAT8, DType.FP16): _EXACT,
    (DType.E8M0, DType.BF16): _EXACT,
    (DType.FP4_E2M1, DType.BF16): _EXACT,
    (DType.FP4_E1M2, DType.BF16): _EXACT,
}

PAIRS: dict[Architecture, dict[Pair, Modes]] = {
    Architecture.A2201: _COMMON | _ONLY_2201,
    Architecture.A3510: _COMMON | _ONLY_3510,
}
"""Source and destination of every vector conversion, with the rounding modes it takes."""

_INSTEAD: dict[Pair, str] = {
    (DType.INT32, DType.FP16): "use cast_int32_to_fp16, which takes the scale it needs",
    (DType.FP32, DType.FP32): "use round_to_whole_fp32 to round to whole numbers",
    (DType.FP32, DType.HF32): "use hf32_round, which rounds a Cube operand",
}


def check_pair(src: DType, dst: DType, rounding: Rounding, architecture: Architecture) -> None:
    """Refuse a conversion or a rounding mode that ``architecture`` does not have.

    Raises:
        NumericsError: names the pair, the architecture and what exists instead.
    """
    pairs = PAIRS[architecture]
    what = f"cast {type_name(src)} -> {type_name(dst)}"
    modes = pairs.get((src, dst))
    if modes is None:
        targets = [type_name(b) for a, b in pairs if a is src]
        sources = [type_name(a) for a, b in pairs if b is dst]
        message = (
            f"{what} does not exist on architecture {int(architecture)}; "
            f"from {type_name(src)} there are: {', '.join(targets) or 'none'}; "
            f"to {type_name(dst)} there are: {', '.join(sources) or 'none'}"
        )
        hint = _INSTEAD.get((src, dst))
        raise NumericsError(f"{message}; {hint}" if hint else message)
    if rounding not in modes:
        names = ", ".join(mode.name for mode in sorted(modes))
        raise NumericsError(
            f"{what} on architecture {int(architecture)} has no rounding mode "
            f"{Rounding(rounding).name}; it has: {names}"
        )
