"""Group accumulation: exact sum of one K-step plus the accumulator, one rounding to fp32.

A float64 matrix product per step followed by one conversion to fp32 is right whenever the
float64 arithmetic is exact, whatever order BLAS adds in. So the work is: do that, prove
element by element that it was exact, and redo by error-free transformations what is not proven.
"""

from dataclasses import dataclass
from math import ceil, log2

import numpy as np
import numpy.typing as npt

from npusim.numerics.cube_operands import Operand, special_sums
from npusim.numerics.exact_sum import F32, F64, round_sums

_DIGITS = 53
_BLOCK_ELEMENTS = 1 << 15
"""Elements of C worked on at a time, so that a step's arrays stay in a core's L2 cache."""

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class StepRules:
    """What happens to the accumulator after each step's rounding.

    Attributes:
        saturate: infinities become the largest finite value and NaN becomes 0.
        flush_results: subnormal accumulators become 0.
    """

    saturate: bool = False
    flush_results: bool = False

    def apply(self, c: F32) -> None:
        """Change the accumulators ``c`` in place."""
        if self.saturate:
            np.nan_to_num(c, copy=False)  # inf to the type's largest value, NaN to 0
        if self.flush_results:
            c[np.abs(c) < np.finfo(np.float32).tiny] = 0.0

    @property
    def trivial(self) -> bool:
        """Whether ``apply`` does nothing."""
        return not (self.saturate or self.flush_results)


def accumulate_groups(a: Operand, b: Operand, start: F32 | None, rules: StepRules) -> F32:
    """Accumulate A times B onto ``start``, one rounding to fp32 per K-step.

    Args:
        a: (M, K) operand. b: (K, N) operand with the same steps.
        start: (M, N) fp32 accumulator, None for zeros.
        rules: treatment of the accumulator after each step.

    Returns:
        (M, N) fp32. Zeros and NaNs may carry any sign: the caller makes them canonical.
    """
    m, n = a.values.shape[0], b.values.shape[1]
    out: F32 = np.empty((m, n), dtype=np.float32)
    special = special_sums(a, b)
    proven = _proven(a, b, start)
    rows = max(1, min(m, 128))
    columns = max(16, _BLOCK_ELEMENTS // rows)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for i in range(0, m, rows):
            for j in range(0, n, columns):
                block = (slice(i, i + rows), slice(j, j + columns))
                part = _Block(a, b, start, special, rules, block)
                out[block] = part.plain() if proven else part.verified()
    return out


def _proven(a: Operand, b: Operand, start: F32 | None) -> bool:
    """Whether bounds over the whole call show every float64 operation to be exact."""
    if not (a.values.size and b.values.size):
        return True
    top = int((a.top.max(axis=0) + b.top.max(axis=1)).max()) + ceil(log2(a.steps * a.group))
    low = int((a.low.min(axis=0) + b.low.min(axis=1)).min())
    if start is not None and start.size:
        words = start.view(np.uint32) & np.uint32(0x7FFFFFFF)
        largest = int(words.max())
        smallest = int((words - np.uint32(1)).min()) + 1  # the wrap makes zeros the largest
        if largest >= 0x7F800000:
            return False
        if largest:
            top = max(top, (largest >> 23) - 126)
            low = min(low, max(smallest >> 23, 1) - 150)
    # One bit for the sum of both parts, one for roundings that grow the accumulator.
    return top + 2 - low <= _DIGITS


class _Block:
    """A rectangle of C, small enough for the cache."""

    def __init__(
        self,
        a: Operand,
        b: Operand,
        start: F32 | None,
        special: dict[int, F64],
        rules: StepRules,
        block: tuple[slice, slice],
    ) -> None:
        rows, columns = block
        self.a, self.b = a.values[rows], b.values[:, columns]
        self.a_top, self.a_low = a.top[rows], a.low[rows]
        self.b_top, self.b_low = b.top[:, columns], b.low[:, columns]
        self.group, self.steps = a.group, a.steps
        self.start = None if start is None else start[block]
        self.special = {step: part[block] for step, part in special.items()}
        self.rules = rules
        self.shape = (self.a.shape[0], self.b.shape[1])
        self.growth = ceil(log2(self.group))

    def _initial(self) -> F32:
        if self.start is None:
            return np.zeros(self.shape, dtype=np.float32)
        return self.start.copy()

    def _step_sum(self, step: int, out: F64) -> None:
        k = slice(step * self.group, (step + 1) * self.group)
        np.matmul(self.a[:, k], self.b[k], out=out)
        if step in self.special:
            out += self.special[step]

    def plain(self, peak: F32 | None = None) -> F32:
        """The result if float64 is exact; ``peak`` collects the largest accumulators."""
        c = self._initial()
        total: F64 = np.empty(self.shape)
        size: F32 = np.empty_like(c)
        fresh = self.start is None
        for step in range(self.steps):
            self._step_sum(step, total)
            if not fresh:
                np.add(total, c, out=total)
            fresh = False
            np.copyto(c, total, casting="same_kind")
            if peak is not None:
                np.abs(c, out=size)
                np.maximum(peak, size, out=peak)
            if not self.rules.trivial:
                self.rules.apply(c)
        return c

    def verified(self) -> F32:
        """The result for any operands: plain where provably exact, exact sums elsewhere."""
        peak = np.abs(self._initial())
        c = self.plain(peak)
        # NaN and inf peaks count as unproven: comparisons with them fail.
        rows, columns = np.nonzero(~self._exact(peak))
        crowded = 4 * rows.size > c.size
        if rows.size and not crowded:
            rows, columns = self._refine(peak, rows, columns)
            crowded = 16 * rows.size > c.size
        if crowded:
            return self._bounded()
        if rows.size:
            c[rows, columns] = self._by_element(rows, columns)
        return c

    def _exact(self, peak: F32) -> npt.NDArray[np.bool_]:
        """Elements whose float64 work is exact by bounds over all steps of row and column."""
        a_low, b_low = self.a_low.min(axis=1), self.b_low.min(axis=0)
        a_span, b_span = self.a_top.max(axis=1) - a_low, self.b_top.max(axis=0) - b_low
        step_exact = a_span[:, None] + b_span <= _DIGITS - self.growth
        unit = np.ldexp(1.0, a_low.astype(int))[:, None] * np.ldexp(1.0, b_low.astype(int))
        if self.start is not None:
            unit = np.minimum(unit, _lowest_bit(self.start))
        # |c|, |sum| and |c + sum| stay below twice the peak plus one rounding of it.
        exact: npt.NDArray[np.bool_] = step_exact & (peak <= unit * 2.0 ** (_DIGITS - 2))
        return exact

    def _refine(self, peak: F32, rows: Indices, columns: Indices) -> tuple[Indices, Indices]:
        """The elements among these that bounds of each step do not prove either."""
        low = self.a_low[rows] + self.b_low[:, columns].T
        top = self.a_top[rows] + self.b_top[:, columns].T
        exact = (top - low).max(axis=1) <= _DIGITS - self.growth
        unit = np.ldexp(1.0, low.min(axis=1).astype(int))
        if self.start is not None:
            unit = np.minimum(unit, _lowest_bit(self.start[rows, columns]))
        exact &= peak[rows, columns] <= unit * 2.0 ** (_DIGITS - 2)
        return rows[~exact], columns[~exact]

    def _by_element(self, rows: Indices, columns: Indices) -> F32:
        """Exact accumulation of single elements, (n,) fp32."""
        c: F32 = self._initial()[rows, columns]
        for step in range(self.steps):
            c = round_sums(self._terms(step, rows, columns, c))
            self.rules.apply(c)
        return c

    def _terms(self, step: int, rows: Indices, columns: Indices, c: F32) -> F64:
        """Everything that one step adds up, (group + 1 or 2, n)."""
        k = slice(step * self.group, (step + 1) * self.group)
        terms: F64 = np.empty((self.group + 1 + (step in self.special), rows.size))
        np.multiply(self.a[rows, k].T, self.b[k, columns], out=terms[: self.group])
        terms[self.group] = c
        if step in self.special:
            terms[self.group + 1] = self.special[step][rows, columns]
        return terms

    def _bounded(self) -> F32:
        """As ``plain`` with an error bound; steps it leaves undecided are summed exactly."""
        c = self._initial()
        total: F64 = np.empty(self.shape)
        for step in range(self.steps):
            self._step_sum(step, total)
            total += c
            # The product errs by less than group units of the sum of magnitudes, and that
            # is below group * 2**(tops); the last add errs by half a unit of its result.
            scale = self.a_top[:, step].astype(int) + (2 * self.growth - _DIGITS)
            reach = np.ldexp(1.0, scale)[:, None] * np.ldexp(1.0, self.b_top[step].astype(int))
            reach += np.abs(total) * 2.0**-51
            rounded = (total - reach).astype(np.float32)
            unsure = rounded != (total + reach).astype(np.float32)
            finite = np.isfinite(total)
            rounded[~finite] = total[~finite].astype(np.float32)
            rows, columns = np.nonzero(unsure & finite)
            if rows.size:
                rounded[rows, columns] = round_sums(
                    self._terms(step, rows, columns, c[rows, columns])
                )
            c = rounded
            self.rules.apply(c)
        return c


def _lowest_bit(c: F32) -> F64:
    """Value of the lowest significand bit that is set, inf for zeros and non-finite values."""
    words = np.ascontiguousarray(c).view(np.uint32)
    field = (words >> np.uint32(23)) & np.uint32(0xFF)
    significand = (words & np.uint32(0x7FFFFF)) | ((field > 0).astype(np.uint32) << np.uint32(23))
    lowest = (significand & (~significand + np.uint32(1))).astype(np.float64)
    bit = np.ldexp(lowest, np.maximum(field.astype(int), 1) - 150)
    usable = (significand > 0) & (field < 0xFF)
    return np.where(usable, bit, np.inf)
