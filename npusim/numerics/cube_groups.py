"""Group accumulation: exact sum of one K-step plus the accumulator, one rounding to fp32.

A float64 matrix product per step followed by one conversion to fp32 is right whenever the
float64 arithmetic is exact, whatever order BLAS adds in. So the work is: do that, prove
element by element that it was exact, and redo by error-free transformations what is not proven.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

import numpy as np
import numpy.typing as npt

from npusim.numerics.cube_operands import FAR, I16, Operand, special_sums
from npusim.numerics.exact_sum import F32, F64, exact_sums, round_pair, round_sums

_DIGITS = 53
_BLOCK_ROWS, _BLOCK_ELEMENTS = 128, 1 << 15
"""Rows and elements of C worked on at a time: a step's arrays stay in a core's L2 cache."""
_RANGES = 8
"""Ranges of steps in the first proof of exactness; more are tighter and dearer."""
_CHUNK = 1 << 22
"""Products of single elements held at a time."""

Block = tuple[slice, slice]
Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


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
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return _Product(a, b, start, rules).result()


class _Product:
    """One accumulation; its methods work on a block of C or on single elements of it."""

    def __init__(self, a: Operand, b: Operand, start: F32 | None, rules: StepRules) -> None:
        self.a, self.b, self.start, self.rules = a, b, start, rules
        self.group, self.steps = a.group, a.steps
        self.special = special_sums(a, b)
        self.shape = (a.values.shape[0], b.values.shape[1])
        self.growth = ceil(log2(self.group))

    def result(self) -> F32:
        """All of C: plain where provably exact, by exact sums elsewhere."""
        out: F32 = np.empty(self.shape, dtype=np.float32)
        proven = self._proven()
        rows = max(1, min(self.shape[0], _BLOCK_ROWS))
        columns = max(16, _BLOCK_ELEMENTS // rows)
        unproven: list[tuple[Indices, Indices]] = []
        for i in range(0, self.shape[0], rows):
            for j in range(0, self.shape[1], columns):
                block = (slice(i, i + rows), slice(j, j + columns))
                if proven:
                    out[block] = self._plain(block)
                else:
                    out[block], left = self._verified(block)
                    if left[0].size:
                        unproven.append(left)
        if unproven:
            at = tuple(np.concatenate(part) for part in zip(*unproven, strict=True))
            count = max(1, _CHUNK // (self.steps * self.group))
            for k in range(0, at[0].size, count):
                some = at[0][k : k + count], at[1][k : k + count]
                out[some] = self._by_element(*some)
        return out

    def _proven(self) -> bool:
        """Whether bounds over the whole call show every float64 operation to be exact."""
        start = self.start
        if not (self.a.values.size and self.b.values.size):
            return True
        (a_top, a_low), (b_top, b_low) = self.a.step_bounds, self.b.step_bounds
        top = int((a_top + b_top).max()) + ceil(log2(self.steps * self.group))
        low = int((a_low + b_low).min())
        if start is not None and start.size:
            words = start.view(np.uint32) & np.uint32(0x7FFFFFFF)
            largest = int(words.max())
            smallest = int((words - np.uint32(1)).min()) + 1  # wrapped, zeros are the largest
            if largest >= 0x7F800000:
                return False
            if largest:
                top = max(top, (largest >> 23) - 126)
                low = min(low, max(smallest >> 23, 1) - 150)
        # One bit for the sum of both parts, one for roundings that grow the accumulator.
        return top + 2 - low <= _DIGITS

    def _initial(self, block: Block) -> F32:
        if self.start is None:
            rows, columns = (len(range(n)[s]) for n, s in zip(self.shape, block, strict=True))
            return np.zeros((rows, columns), np.float32)
        return self.start[block].copy()

    def _step_sum(self, step: int, block: Block, out: F64) -> None:
        k = slice(step * self.group, (step + 1) * self.group)
        np.matmul(self.a.values[block[0], k], self.b.values[k, block[1]], out=out)
        if step in self.special:
            out += self.special[step][block]

    def _plain(self, block: Block, peak: F32 | None = None) -> F32:
        """The result if float64 is exact; ``peak`` collects the largest accumulators."""
        c = self._initial(block)
        total: F64 = np.empty(c.shape)
        size: F32 = np.empty_like(c)
        fresh = self.start is None
        for step in range(self.steps):
            self._step_sum(step, block, total)
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

    def _verified(self, block: Block) -> tuple[F32, tuple[Indices, Indices]]:
        """A block for any operands, and the elements of C that it leaves unproven."""
        peak = np.abs(self._initial(block))
        c = self._plain(block, peak)
        # NaN and inf peaks count as unproven: comparisons with them fail.
        rows, columns = np.nonzero(~self._exact(block, peak))
        crowded = 4 * rows.size > c.size
        if rows.size and not crowded:
            limits = peak[rows, columns]
            rows, columns = rows + block[0].start, columns + block[1].start
            left = ~self._exact_by_step(rows, columns, limits)
            rows, columns = rows[left], columns[left]
            crowded = 16 * rows.size > c.size
        if crowded:
            return self._bounded(block), (rows[:0], columns[:0])
        return c, (rows, columns)

    def _exact(self, block: Block, peak: F32) -> Flags:
        """Elements whose float64 work is exact by bounds over a few ranges of steps."""
        a_low, a_span, b_low, b_span = self._ranges
        a_low, a_span = a_low[:, block[0], None], a_span[:, block[0], None]
        b_low, b_span = b_low[:, block[1]], b_span[:, block[1]]
        low: I16 = a_low[0] + b_low[0]
        part = np.empty_like(low)
        for k in range(1, len(a_low)):
            np.add(a_low[k], b_low[k], out=part)
            np.minimum(low, part, out=low)
        if self.start is not None:
            np.minimum(low, _lowest_bit(self.start[block]), out=low)
        exact = _holds(peak, low)
        widest = _DIGITS - self.growth
        wide = a_span.max(axis=(1, 2)) + b_span.max(axis=1) > widest
        for span_a, span_b in zip(a_span[wide], b_span[wide], strict=True):
            exact &= span_a + span_b <= widest
        return exact

    @cached_property
    def _ranges(self) -> tuple[I16, I16, I16, I16]:
        """low and span of A (ranges, M), then of B (ranges, N), over ranges of steps."""
        (a_top, a_low), (b_top, b_low) = self.a.bounds, self.b.bounds
        length = -(-self.steps // _RANGES)
        missing = -self.steps % length
        result = []
        for top, low in ((a_top.T, a_low.T), (b_top, b_low)):
            if missing:
                rest = np.full((missing, low.shape[1]), FAR, np.int16)
                top, low = np.concatenate([top, -rest]), np.concatenate([low, rest])
            least = low.reshape(-1, length, low.shape[1]).min(axis=1)
            result += [least, top.reshape(-1, length, low.shape[1]).max(axis=1) - least]
        return result[0], result[1], result[2], result[3]

    def _exact_by_step(self, rows: Indices, columns: Indices, peak: F32) -> Flags:
        """Which of these elements the bounds of their own steps prove exact."""
        lows, exact_steps = self._steps_of(rows, columns)
        low = lows.min(axis=1)
        if self.start is not None:
            low = np.minimum(low, _lowest_bit(self.start[rows, columns]))
        return np.asarray(exact_steps.all(axis=1) & _holds(peak, low))

    def _steps_of(self, rows: Indices, columns: Indices) -> tuple[I16, Flags]:
        """Place of the lowest bit of each step sum, and whether float64 holds it: (n, steps)."""
        (a_top, a_low), (b_top, b_low) = self.a.bounds, self.b.bounds
        low, top = a_low[rows] + b_low[:, columns].T, a_top[rows] + b_top[:, columns].T
        return low, top - low <= _DIGITS - self.growth

    def _by_element(self, rows: Indices, columns: Indices) -> F32:
        """Exact accumulation of single elements, (n,) fp32."""
        products = np.empty((self.steps * self.group, rows.size))
        np.multiply(self.a.values[rows].T, self.b.values[:, columns], out=products)
        sums, exact = exact_sums(products.reshape(self.steps, self.group, rows.size))
        for step, part in self.special.items():
            sums[step] += part[rows, columns]
        c: F32 = np.zeros(rows.size, np.float32)
        if self.start is not None:
            c = self.start[rows, columns]
        for step in range(self.steps):
            rounded = round_pair(sums[step], c.astype(np.float64)).astype(np.float32)
            hard = np.flatnonzero(~exact[step])
            if hard.size:
                at = rows[hard], columns[hard]
                rounded[hard] = round_sums(self._terms(step, *at, c[hard]))
            c = rounded
            self.rules.apply(c)
        return c

    def _terms(self, step: int, rows: Indices, columns: Indices, c: F32) -> F64:
        """Everything that one step adds up, (group + 1 or 2, n)."""
        k = slice(step * self.group, (step + 1) * self.group)
        terms: F64 = np.empty((self.group + 1 + (step in self.special), rows.size))
        left, right = self.a.values[rows, k].T, self.b.values[k, columns]
        np.multiply(left, right, out=terms[: self.group])
        terms[self.group] = c
        if step in self.special:
            terms[self.group + 1] = self.special[step][rows, columns]
        return terms

    def _bounded(self, block: Block) -> F32:
        """As ``_plain`` with an error bound; steps it leaves undecided are summed exactly."""
        c = self._initial(block)
        total: F64 = np.empty(c.shape)
        reach, end = np.empty_like(total), np.empty_like(total)
        other = np.empty_like(c)
        # The product errs by less than group units of the sum of magnitudes, and that is below
        # group * 2**(tops).
        a_scale = np.ldexp(1.0, self.a.bounds[0][block[0]].astype(int) + 2 * self.growth - _DIGITS)
        b_scale = np.ldexp(1.0, self.b.bounds[0][:, block[1]].astype(int))
        for step in range(self.steps):
            self._step_sum(step, block, total)
            before, c = c, np.empty_like(c)
            np.add(total, before, out=total)
            # The last add errs by half a unit of its result; so do the two ends below.
            np.abs(total, out=reach)
            reach *= 2.0**-51
            np.multiply(a_scale[:, step, None], b_scale[step], out=end)
            reach += end
            np.copyto(c, np.subtract(total, reach, out=end), casting="same_kind")
            np.copyto(other, np.add(total, reach, out=end), casting="same_kind")
            rows, columns = np.nonzero(c != other)
            if rows.size:
                finite = np.isfinite(total[rows, columns])
                odd = rows[~finite], columns[~finite]
                c[odd] = total[odd].astype(np.float32)
                rows, columns = rows[finite], columns[finite]
                at = rows + block[0].start, columns + block[1].start
                c[rows, columns] = round_sums(self._terms(step, *at, before[rows, columns]))
            self.rules.apply(c)
        return c


def _holds(peak: F32, low: I16) -> Flags:
    """Whether accumulators up to ``peak`` that are multiples of 2**low stay exact in float64.

    The accumulator, a step's sum and the sum of both stay below twice the peak plus one
    rounding of it. An overflow counts as 2**128 to 2**129: what is beyond overflows for sure.
    """
    top = (peak.view(np.uint32) >> np.uint32(23)).astype(np.int16) - np.int16(126)
    return np.asarray(top <= low + np.int16(_DIGITS - 2))


def _lowest_bit(c: F32) -> I16:
    """Exponent of the lowest significand bit that is set, FAR for zeros, inf and NaN."""
    words = np.ascontiguousarray(c).view(np.uint32)
    field = (words >> np.uint32(23)) & np.uint32(0xFF)
    significand = (words & np.uint32(0x7FFFFF)) | ((field > 0).astype(np.uint32) << np.uint32(23))
    lowest = (significand & (~significand + np.uint32(1))).astype(np.float32)
    place = np.maximum(field, 1).astype(np.int16) - np.int16(150)
    place += (lowest.view(np.uint32) >> np.uint32(23)).astype(np.int16) - np.int16(127)
    return np.where((significand > 0) & (field < 0xFF), place, np.int16(FAR))
