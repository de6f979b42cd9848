"""Accumulation models other than the exact K-step: fp32 pair tree and aligned truncation.

They are candidates for what the hardware does, kept so that one run of a probe set on a
device can select among them. Plain numpy; speed is not their purpose.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from npusim.numerics.cube_groups import StepRules
from npusim.numerics.cube_operands import Operand

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

StepSum = Callable[[F64, F32], F32]

_CHUNK_ELEMENTS = 1 << 22


def accumulate_pair_tree(a: Operand, b: Operand, start: F32 | None, rules: StepRules) -> F32:
    """fp32 products, adjacent-pair fp32 tree inside each zero-padded step, then an fp32 add.

    Args:
        a: (M, K) operand. b: (K, N) operand with the same steps.
        start: (M, N) fp32 accumulator, None for zeros.
        rules: treatment of the accumulator after each step.

    Returns:
        (M, N) fp32.
    """

    def step_sum(products: F64, c: F32) -> F32:
        level = products.astype(np.float32)
        while level.shape[1] > 1:
            if level.shape[1] % 2:
                level = np.concatenate([level, np.zeros_like(level[:, :1])], axis=1)
            level = level[:, 0::2] + level[:, 1::2]
        total: F32 = c + level[:, 0]
        return total

    return _walk(a, b, start, rules, step_sum)


def accumulate_aligned(
    a: Operand, b: Operand, start: F32 | None, rules: StepRules, fraction_bits: int, nearest: bool
) -> F32:
    """Terms of a step aligned to the largest exponent and cut, summed exactly, rounded.

    The accumulator is one of the terms. A term's exponent is that of its own value.

    Args:
        a: (M, K) operand. b: (K, N) operand with the same steps.
        start: (M, N) fp32 accumulator, None for zeros.
        rules: treatment of the accumulator after each step.
        fraction_bits: places kept below the largest exponent.
        nearest: round the result to nearest even instead of toward zero.

    Returns:
        (M, N) fp32.
    """

    def step_sum(products: F64, c: F32) -> F32:
        terms = np.concatenate([products, c[:, None, :].astype(np.float64)], axis=1)
        exponents = np.frexp(terms)[1] - 1
        exponents[terms == 0] = -(1 << 20)
        shift = fraction_bits - exponents.max(axis=1)
        shift = np.clip(shift, -1000, 1000)  # all terms zero: any shift will do
        cut = np.trunc(np.ldexp(terms, shift[:, None, :]))
        total = np.ldexp(cut.sum(axis=1), -shift)
        special = ~np.isfinite(terms).all(axis=1)
        total[special] = terms.sum(axis=1)[special]
        return total.astype(np.float32) if nearest else _toward_zero(total)

    return _walk(a, b, start, rules, step_sum)


def _toward_zero(x: F64) -> F32:
    """fp32 truncation; finite values beyond the range become the largest finite value."""
    rounded = x.astype(np.float32)
    beyond = (np.abs(rounded) > np.abs(x)) & np.isfinite(x)
    return np.where(beyond, np.nextafter(rounded, np.float32(0)), rounded)


def _walk(a: Operand, b: Operand, start: F32 | None, rules: StepRules, step_sum: StepSum) -> F32:
    """Apply ``step_sum(products (m, group, N), c (m, N))`` over K, a few rows at a time."""
    left = a.values if a.raw is None else a.raw
    right = b.values if b.raw is None else b.raw
    m, n = left.shape[0], right.shape[1]
    c: F32 = np.zeros((m, n), np.float32) if start is None else start.copy()
    rows = max(1, _CHUNK_ELEMENTS // max(1, a.group * n))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for i in range(0, m, rows):
            part = c[i : i + rows]
            for k in range(0, a.steps * a.group, a.group):
                products = left[i : i + rows, k : k + a.group, None] * right[k : k + a.group]
                part[...] = step_sum(products, part)
                rules.apply(part)
    return c
