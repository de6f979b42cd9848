"""Conversions between cycles and microseconds, bytes and rates."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.units import (
    GIB,
    KIB,
    MIB,
    RATE_FRACTION_BITS,
    RATE_ONE,
    Clock,
    CycleRounding,
    exact,
    rate_fixed,
    rate_from_fixed,
    round_whole,
)

CLOCKS = st.integers(1, 4000).map(Clock)


def test_sizes() -> None:
    assert (KIB, MIB, GIB) == (2**10, 2**20, 2**30)
    assert RATE_FRACTION_BITS == 16
    assert RATE_ONE == 65536


def test_a_float_means_its_decimal_form() -> None:
    assert exact(0.1) == Fraction(1, 10)
    assert exact(1.4e-3) == Fraction(14, 10000)
    assert exact(7) == 7
    assert exact(Fraction(1, 3)) == Fraction(1, 3)
    assert exact(np.float64(0.3)) == Fraction(3, 10)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_fraction_of_a_value_that_is_not_finite(value: float) -> None:
    with pytest.raises(ValueError, match="Invalid literal for Fraction"):
        exact(value)


@pytest.mark.parametrize(
    ("value", "floor", "ceil", "nearest"),
    [(2.5, 2, 3, 2), (3.5, 3, 4, 4), (-2.5, -3, -2, -2), (2.49, 2, 3, 2), (7, 7, 7, 7)],
)
def test_roundings(value: float, floor: int, ceil: int, nearest: int) -> None:
    assert round_whole(value, CycleRounding.FLOOR) == floor
    assert round_whole(value, CycleRounding.CEIL) == ceil
    assert round_whole(value, CycleRounding.NEAREST) == nearest


def test_exact_rounding_refuses_a_part_of_a_cycle() -> None:
    assert round_whole(3.0, CycleRounding.EXACT) == 3
    with pytest.raises(ValueError) as caught:
        round_whole(3.25, CycleRounding.EXACT)
    assert str(caught.value) == "3.25 is not a whole number and no rounding was allowed"


def test_microseconds_of_known_clocks() -> None:
    clock = Clock(1850)
    assert clock.us(1850) == 1.0
    assert clock.us(1) == 1 / 1850
    assert clock.cycles(5.5) == 10175
    # A binary 0.1 is a little more than a tenth and would give 186.
    assert clock.cycles(0.1) == 185
    assert Clock(1800).cycles(0.0001, CycleRounding.FLOOR) == 0
    assert Clock(1800).cycles(0.0001) == 1


def test_a_clock_runs() -> None:
    with pytest.raises(ValueError) as caught:
        Clock(0)
    assert str(caught.value) == "a clock needs a frequency above 0 MHz, got 0"


@given(CLOCKS, st.integers(0, 2**62))
def test_cycles_survive_exact_microseconds(clock: Clock, cycles: int) -> None:
    assert clock.cycles(Fraction(cycles, clock.mhz), CycleRounding.EXACT) == cycles


@given(CLOCKS, st.fractions(0, 10**6))
def test_ceil_is_never_early_and_less_than_a_cycle_late(clock: Clock, us: Fraction) -> None:
    late = Fraction(clock.cycles(us, CycleRounding.CEIL), clock.mhz) - us
    assert 0 <= late < Fraction(1, clock.mhz)
    early = us - Fraction(clock.cycles(us, CycleRounding.FLOOR), clock.mhz)
    assert 0 <= early < Fraction(1, clock.mhz)


@given(CLOCKS, st.integers(1, 10**7))
def test_fixed_rate_is_within_half_a_unit(clock: Clock, tenths: int) -> None:
    fixed = clock.bytes_per_cycle_fixed(tenths / 10)
    true = Fraction(tenths, 10) * 10**9 / (clock.mhz * 10**6)
    assert abs(Fraction(fixed, 2**16) - true) <= Fraction(1, 2**17)


def test_fixed_rates_of_known_numbers() -> None:
    # 1490 GB/s at 1.85 GHz are 805.405... bytes per cycle.
    assert Clock(1850).bytes_per_cycle_fixed(1490) == 52783049
    assert Clock(1000).bytes_per_cycle_fixed(32) == 32 * 65536
    assert rate_fixed(1.4, CycleRounding.FLOOR) == 91750
    assert rate_fixed(1.4, CycleRounding.CEIL) == 91751
    assert rate_from_fixed(rate_fixed(117)) == 117.0


def test_achieved_bandwidth() -> None:
    assert Clock(1800).gbps(1_000_000, 1800) == 1000.0
    assert Clock(1850).gbps(128, 1) == 236.8
    assert Clock(1850).gbps(128, 0) == 0.0
