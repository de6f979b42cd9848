"""Correctly rounded fp32 sums of float64 terms, whatever their exponents.

Terms are columns of a (terms, n) array. Error-free transformations replace each column by
terms with the same exact sum and ever less overlap, until the leading term and the sign of
the rest are certain. Rounding that pair to odd in float64 and then to fp32 rounds the exact
sum once (Boldo and Melquiond, 2008: odd rounding with at least two spare bits is innocuous).
"""

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

_UNIT = 2.0**-53


def round_sums(terms: F64) -> F32:
    """The exact sum of each column rounded once to fp32, to nearest even.

    Args:
        terms: (m, n) float64, m >= 1; finite sums may not exceed float64's range.

    Returns:
        (n,) fp32; inf and NaN terms give what IEEE 754 addition gives.
    """
    count = len(terms)
    with np.errstate(over="ignore", invalid="ignore"):
        total: F64 = terms.sum(axis=0)
        magnitude: F64 = np.abs(terms).sum(axis=0)
        # Any order of float64 adds errs by at most (m - 1) units of the magnitudes' sum; one
        # more term's worth covers the rounding of the bound and of the two ends below.
        reach = magnitude * ((count + 2) * _UNIT)
        result: F32 = (total - reach).astype(np.float32)
        unsure = result != (total + reach).astype(np.float32)
        unsure &= np.isfinite(total)
        special = ~np.isfinite(total)
        result[special] = total[special].astype(np.float32)
        hard = np.flatnonzero(unsure)
        if hard.size:
            result[hard] = _round_to_odd(*_distill(terms[:, hard])).astype(np.float32)
    return result


def round_pair(x: F64, y: F64) -> F64:
    """x + y rounded to odd in float64: one further conversion to fp32 or fp16 is then exact.

    Args:
        x: float64. y: float64, shape that broadcasts with x.

    Returns:
        float64; inf and NaN as IEEE 754 addition gives them.
    """
    total: F64 = np.asarray(x + y)
    part = total - x
    error = (x - (total - part)) + (y - part)
    return _round_to_odd(total, np.where(np.isfinite(total), np.sign(error), 0.0))


def exact_sums(terms: F64) -> tuple[F64, npt.NDArray[np.bool_]]:
    """Sums over the middle axis in float64, and whether every add was exact.

    Args:
        terms: (steps, m, n) float64, m >= 1.

    Returns:
        (steps, n) sums and flags; where the flag is False the sum is only near.
    """
    total: F64 = terms[:, 0].copy()
    exact = np.ones(total.shape, dtype=bool)
    for k in range(1, terms.shape[1]):
        term = terms[:, k]
        before, total = total, total + term
        part = total - before
        exact &= (before - (total - part)) + (term - part) == 0
    return total, exact


def _distill(terms: F64) -> tuple[F64, F64]:
    """Leading term and the sign (-1, 0, 1) of what it leaves out, per column of ``terms``.

    The exact sum lies strictly between the leading term and its float64 neighbour on the
    side of the sign, or is the leading term itself.
    """
    n = terms.shape[1]
    leading, side = np.empty(n), np.empty(n)
    active = np.arange(n)
    # In ascending order of magnitude one sweep already separates nearly everything.
    order = np.argsort(np.abs(terms), axis=0)
    work = np.take_along_axis(terms, order, axis=0)
    while active.size:
        changed = _sweep(work)
        top, rest = work[-1], work[:-1]
        size = np.abs(rest).sum(axis=0)
        lean = rest.sum(axis=0)
        certain = np.abs(lean) > size * (len(work) * 4 * _UNIT)
        small = size < np.abs(top) * (_UNIT / 2)
        settled = (size == 0) | (certain & small) | ~changed
        # Where nothing changed any more the terms do not overlap: the next one decides.
        sign = np.where(changed, np.sign(lean), np.sign(work[-2])) if len(work) > 1 else 0 * top
        leading[active[settled]] = top[settled]
        side[active[settled]] = sign[settled]
        active, work = active[~settled], work[:, ~settled]
    return leading, side


def _sweep(work: F64) -> npt.NDArray[np.bool_]:
    """Pass sums upward through ``work`` in place, errors staying behind; which columns changed."""
    changed = np.zeros(work.shape[1], dtype=bool)
    for k in range(1, len(work)):
        low, high = work[k - 1], work[k]
        total = high + low
        part = total - high
        error = (high - (total - part)) + (low - part)
        changed |= error != low
        work[k - 1], work[k] = error, total
    return changed


def _round_to_odd(leading: F64, side: F64) -> F64:
    """``leading`` plus something of sign ``side`` below one unit, rounded to odd."""
    even = (leading.view(np.int64) & 1) == 0
    step = even & (side != 0)
    toward = np.nextafter(leading, np.copysign(np.inf, side))
    odd: F64 = np.where(step, toward, leading)
    return odd
