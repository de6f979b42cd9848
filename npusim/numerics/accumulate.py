"""``mmad``: one Cube matrix multiply-accumulate, exact to the model's accumulation rule.

int8 and int4 accumulate exactly into int32. Floating-point types accumulate into fp32 in
K-steps of the length the hardware's performance tables publish; what happens inside a step is
``NumericsModel.cube_accum``. Results do not depend on BLAS, thread count or machine, and under
the step models not on how K is split over several calls at step boundaries, on M and N tiling,
or on zero padding. Zero results are +0 and NaN results the canonical NaN.
"""

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.cube_groups import StepRules, accumulate_groups
from npusim.numerics.cube_models import accumulate_aligned, accumulate_pair_tree
from npusim.numerics.cube_operands import HF32Rounding, Operand, decode_operand
from npusim.numerics.formats import Architecture, Array, DType, type_name
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import (
    BiasOrder,
    CubeAccumulation,
    IntSaturation,
    OverflowMode,
    Subnormals,
)

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

_FP8 = (DType.E4M3FN, DType.E5M2)
_EXACT_K_FP32 = 1024
"""Longest int8 K whose partial sums float32 holds exactly: 2**24 / 2**14."""
_SATURATING_K = 2**31 // 2**14
"""Shortest int8 K whose sum can leave int32, so that the moment of saturation matters."""
_NAN = np.uint32(0x7FC00000).view(np.float32)
_BEFORE_ALIGNMENT = {
    CubeAccumulation.ALIGN_TRUNC_F23_RZ: (23, False),
    CubeAccumulation.ALIGN_TRUNC_F24_RNE: (24, True),
    CubeAccumulation.ALIGN_TRUNC_F27_RNE: (27, True),
}


def cube_pairs(architecture: Architecture) -> tuple[tuple[DType, DType], ...]:
    """Operand type pairs (A, B) that the Cube of ``architecture`` multiplies."""
    pairs = [(t, t) for t in (DType.FP16, DType.BF16, DType.FP32, DType.HF32, DType.INT8)]
    if architecture is Architecture.A2201:
        return (*pairs, (DType.INT4, DType.INT4))
    mixed = [(x, y) for x in _FP8 for y in _FP8]
    return (*pairs, *mixed, (DType.HIFLOAT8, DType.HIFLOAT8))


def cube_group(dtype: DType, model: NumericsModel) -> int:
    """K elements of one hardware step for operands of ``dtype``.

    The numbers are the K column of the vendor's Cube performance tables; ``cube_group``
    of the model overrides them for floating-point types.
    """
    if dtype is DType.INT8:
        return 32
    if dtype is DType.INT4:
        return 64
    if model.cube_group is not None:
        return model.cube_group
    if dtype is DType.FP32:
        return 4 if model.architecture is Architecture.A2201 else 1
    if dtype is DType.HF32:
        return 8
    return 16 if dtype in (DType.FP16, DType.BF16) else 32


def mmad(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    dtype_a: DType,
    dtype_b: DType,
    model: NumericsModel,
    bias: Array | None = None,
    hf32_rounding: HF32Rounding = HF32Rounding.NEAREST_EVEN,
) -> Array:
    """A times B plus the accumulator, as one Mmad instruction computes it.

    Under a model with an ``mmad_k`` it stands for several, which walk K upwards; the first one
    starts from ``c`` or the bias.

    Args:
        a: (M, K) in the numpy storage of ``dtype_a``.
        b: (K, N) in the numpy storage of ``dtype_b``.
        c: (M, N) accumulator, fp32 or int32; None starts from zero or from the bias.
        dtype_a: element type of A.
        dtype_b: element type of B; ``cube_pairs`` lists the pairs.
        model: accumulation model, K-step, subnormals, saturation, bias order.
        bias: (N,) fp32 or int32. Under ``BiasOrder.LAST`` it is added after this call's K.
        hf32_rounding: operand rounding of HF32, as the kernel selected it.

    Returns:
        (M, N) fp32, or int32 for integer operands; always a new array.

    Raises:
        NumericsError: a type pair the architecture does not have, shapes or dtypes that do
            not fit, or both an accumulator and a bias.
    """
    integer = dtype_a in (DType.INT8, DType.INT4)
    _check_pair(dtype_a, dtype_b, model)
    check_operands(a, b, c, bias, (dtype_a, dtype_b), DType.INT32 if integer else DType.FP32)
    group = cube_group(dtype_a, model)
    if _is_split(a.shape[1], group, integer, model):
        assert model.mmad_k is not None
        one, sums = model.with_mmad_k(None), c
        for k in range(0, a.shape[1], model.mmad_k):
            part = slice(k, k + model.mmad_k)
            sums = mmad(
                a[:, part], b[part], sums, dtype_a=dtype_a, dtype_b=dtype_b, model=one,
                bias=None if k else bias, hf32_rounding=hf32_rounding,
            )  # fmt: skip
        assert sums is not None
        return sums
    if integer:
        return _mmad_integer(a, b, *start_and_last(a, b, c, bias, model), group, model)
    group = rounding_group(group, a.shape[1], model)
    left = decode_operand(a, dtype_a, 1, group, model, hf32_rounding)
    right = decode_operand(b, dtype_b, 0, group, model, hf32_rounding)
    return accumulate_floats(left, right, *start_and_last(a, b, c, bias, model), model)


def _is_split(k: int, group: int, integer: bool, model: NumericsModel) -> bool:
    """Whether a product over k has other bits than the Mmads that it stands for."""
    if model.mmad_k is None or k <= model.mmad_k:
        return False
    if integer:
        return k >= _SATURATING_K
    return model.cube_accum is CubeAccumulation.EXACT_ONCE or model.mmad_k % group != 0


def rounding_group(group: int, k: int, model: NumericsModel) -> int:
    """Elements between two roundings under ``cube_accum``, for a hardware step of ``group``."""
    if model.cube_accum is CubeAccumulation.EXACT_ONCE:
        return max(1, k)
    return 1 if model.cube_accum is CubeAccumulation.SEQ_FMA else group


def start_and_last(
    a: Array, b: Array, c: Array | None, bias: Array | None, model: NumericsModel
) -> tuple[Array | None, Array | None]:
    """The accumulator's start and what is added to the finished product."""
    if bias is None:
        return c, None
    if model.bias_order is BiasOrder.LAST:
        return None, bias
    return np.broadcast_to(bias, (a.shape[0], b.shape[1])), None


def _check_pair(dtype_a: DType, dtype_b: DType, model: NumericsModel) -> None:
    pair = (dtype_a, dtype_b)
    if pair not in cube_pairs(model.architecture):
        known = ", ".join(
            f"{type_name(x)} x {type_name(y)}" for x, y in cube_pairs(model.architecture)
        )
        raise NumericsError(
            f"mmad: architecture {model.architecture.value} does not multiply "
            f"{type_name(dtype_a)} x {type_name(dtype_b)}; it multiplies: {known}"
        )


def check_operands(
    a: Array,
    b: Array,
    c: Array | None,
    bias: Array | None,
    pair: tuple[DType, DType],
    accumulator: DType,
) -> None:
    """Refuse operands whose storage or shape does not fit; arguments as in ``mmad``."""
    for name, x, dtype in (("a", a, pair[0]), ("b", b, pair[1])):
        if x.dtype != dtype.numpy:
            raise NumericsError(
                f"mmad: {name} is stored as {x.dtype}, but {type_name(dtype)} is stored as "
                f"{dtype.numpy}; convert it or name its type"
            )
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise NumericsError(
            f"mmad: a {a.shape} and b {b.shape} do not fit; they must be (M, K) and (K, N)"
        )
    if c is not None and bias is not None:
        raise NumericsError("mmad: c and bias are both given; the accumulator starts at one")
    m, n = a.shape[0], b.shape[1]
    for name, start, shape in (("c", c, (m, n)), ("bias", bias, (n,))):
        if start is not None and (start.shape != shape or start.dtype != accumulator.numpy):
            raise NumericsError(
                f"mmad: {name} is {start.dtype} {start.shape}; "
                f"it must be {accumulator.numpy} {shape}"
            )


def accumulate_floats(
    a: Operand, b: Operand, start: Array | None, bias: Array | None, model: NumericsModel
) -> F32:
    """Accumulate decoded operands under ``cube_accum``.

    Args:
        a: (M, K). b: (K, N), cut into the same steps.
        start: (M, N) fp32 accumulator, None for zeros.
        bias: (N,) fp32 added to the finished product, or None.
        model: accumulation model, overflow mode, subnormals.

    Returns:
        (M, N) fp32 with canonical NaNs and positive zeros.
    """
    start = None if start is None else np.ascontiguousarray(start)
    rules = StepRules(
        saturate=model.overflow_mode is OverflowMode.SATURATE,
        flush_results=model.cube_subnormal is Subnormals.FLUSH_RESULTS,
    )
    if start is not None and model.cube_subnormal is Subnormals.FLUSH_INPUTS:
        start = np.where(np.abs(start) < np.finfo(np.float32).tiny, np.float32(0), start)
    rule = model.cube_accum
    if rule in _BEFORE_ALIGNMENT:
        bits, nearest = _BEFORE_ALIGNMENT[rule]
        result = accumulate_aligned(a, b, start, rules, bits, nearest)
    elif rule is CubeAccumulation.GROUP_PAIR_TREE_FP32:
        result = accumulate_pair_tree(a, b, start, rules)
    elif rule is CubeAccumulation.GROUP_EXACT_ROUND_THEN_ADD or not model.c_inside_group:
        result = _round_then_add(a, b, start, rules)
    else:
        result = accumulate_groups(a, b, start, rules)
    with np.errstate(over="ignore", invalid="ignore"):
        if bias is not None:
            result = result + bias
            rules.apply(result)
        result += np.float32(0)  # -0 becomes +0
    nan = np.isnan(result)
    if nan.any():
        result[nan] = _NAN
    return result


def _round_then_add(a: Operand, b: Operand, start: F32 | None, rules: StepRules) -> F32:
    """Each step's exact sum rounded to fp32, then added to the accumulator in fp32."""
    shape = (a.values.shape[0], b.values.shape[1])
    c: F32 = np.zeros(shape, np.float32) if start is None else start.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(a.steps):
            c += accumulate_groups(a.step(step), b.step(step), None, StepRules())
            rules.apply(c)
    return c


def _mmad_integer(
    a: Array, b: Array, c: Array | None, bias: Array | None, group: int, model: NumericsModel
) -> I32:
    left, right = a.astype(np.float32), b.astype(np.float32)
    start = None if c is None else c.astype(np.int64)
    if model.cube_int_saturate is IntSaturation.PER_STEP:
        total = np.zeros((a.shape[0], b.shape[1]), np.int64) if start is None else start
        for k in range(0, a.shape[1], group):
            total = _saturated(total + _product(left, right, slice(k, k + group)))
    else:
        total = np.zeros((a.shape[0], b.shape[1]), np.int64) if start is None else start
        for k in range(0, a.shape[1], _EXACT_K_FP32):
            part = _product(left, right, slice(k, k + _EXACT_K_FP32))
            total = total + part
    if bias is not None:
        total = _saturated(total) + bias
    return _saturated(total).astype(np.int32)


def _product(left: F32, right: F32, k: slice) -> npt.NDArray[np.int32]:
    """Exact integer product of at most ``_EXACT_K_FP32`` terms."""
    product: npt.NDArray[np.int32] = (left[:, k] @ right[k]).astype(np.int32)
    return product


def _saturated(total: Array) -> Array:
    limits = np.iinfo(np.int32)
    return np.clip(total, limits.min, limits.max)
