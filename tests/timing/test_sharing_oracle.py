"""The fair sharing against a brute-force model: every cycle, in exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_tools import Driver, access, flow_classes, limits, memory

from npusim.timing.costs.table import WRITE
from npusim.timing.memory_layout import PIPES
from npusim.units import RATE_ONE

Flow = tuple[int, int, int]
"""Cycle of submission, class, bytes."""


def fair_rates(
    flows: list[tuple[Fraction, list[Fraction]]], room: list[Fraction]
) -> list[Fraction]:
    """Max-min fair rates by progressive filling: raise all, freeze who cannot rise further."""
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    left = list(room)
    while rising:
        steps = [flows[i][0] - rates[i] for i in rising]
        for resource, free in enumerate(left):
            weight = sum((flows[i][1][resource] for i in rising), Fraction(0))
            if weight:
                steps.append(free / weight)
        step = min(steps)
        for i in rising:
            rates[i] += step
            for resource, use in enumerate(flows[i][1]):
                left[resource] -= step * use
        full = {r for r, free in enumerate(left) if free == 0}
        rising = {
            i for i in rising if rates[i] < flows[i][0] and not any(flows[i][1][r] for r in full)
        }
    return rates


def oracle(
    classes: list[tuple[Fraction, list[Fraction]]], room: list[Fraction], flows: list[Flow]
) -> list[int]:
    """End of each flow, by serving every flow its exact rate in every single cycle."""
    left = {i: Fraction(size) for i, (_, _, size) in enumerate(flows)}
    ends = [0] * len(flows)
    cycle = 0
    while left:
        present = [i for i in left if flows[i][0] <= cycle]
        rates = fair_rates([classes[flows[i][1]] for i in present], room)
        cycle += 1
        for i, rate in zip(present, rates, strict=True):
            left[i] -= rate
            if left[i] <= 0:
                ends[i] = cycle
                del left[i]
    return ends


def modelled(
    rows: list[tuple[float, float, float, float]], room: tuple[float, ...], flows: list[Flow]
) -> list[int]:
    """The same through the memory system: writes past L2, each on a pipe of its own."""
    sizes = sorted({(kind, size) for _, kind, size in flows})
    accesses = [access(kind=WRITE, run=size, bypass=True, miss_class=kind) for kind, size in sizes]
    system = memory(
        limits(l2_read=room[0], l2_write=room[1], hbm=room[2]),
        flow_classes(*rows),
        accesses,
        cores=len(flows),
    )
    submissions = [
        (cycle, slot * PIPES + 3, sizes.index((kind, size)), 0)
        for slot, (cycle, kind, size) in enumerate(flows)
    ]
    ends = Driver(system).run(submissions)
    return [ends[slot * PIPES + 3][0] for slot in range(len(flows))]


def exact(
    rows: list[tuple[float, float, float, float]], room: tuple[float, ...]
) -> tuple[list[tuple[Fraction, list[Fraction]]], list[Fraction]]:
    classes = [(Fraction(cap), [Fraction(u) for u in uses]) for cap, *uses in rows]
    return classes, [Fraction(r) for r in room]


CLASSES = [
    (50.0, 1.0, 0.0, 0.0),
    (120.0, 1.0, 0.0, 0.0),
    (120.0, 2.0, 0.0, 1.25),
    (35.0, 1.0, 0.0, 1.0),
    (60.0, 0.0, 1.0, 0.0),
    (80.0, 0.0, 4.0, 0.0),
    (40.0, 0.0, 1.0, 1.5),
]
ROOM = (200.0, 100.0, 64.0)


def test_a_flow_alone_runs_at_its_cap() -> None:
    assert modelled(CLASSES, ROOM, [(7, 0, 1000)]) == [27]


def test_two_flows_share_what_is_less_than_both_caps() -> None:
    # 200 B/cycle over two flows capped at 120: 100 each, then the rest of the longer one alone.
    assert modelled(CLASSES, ROOM, [(0, 1, 1000), (0, 1, 2200)]) == [10, 20]


def test_a_flow_below_the_fair_share_leaves_the_rest_to_others() -> None:
    # 50 + 120 fit in 200; with a second 120 the two share 150.
    assert modelled(CLASSES, ROOM, [(0, 0, 500), (0, 1, 750), (0, 1, 1500)]) == [10, 10, 17]


def test_one_full_resource_does_not_stop_flows_of_another() -> None:
    # Two missing reads (35 B/cycle cap) fill 64 of HBM at 32 each; a write keeps its 60.
    assert modelled(CLASSES, ROOM, [(0, 3, 320), (0, 3, 320), (0, 4, 600)]) == [10, 10, 10]


FLOWS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, len(CLASSES) - 1),
        st.integers(1, 40).map(lambda n: n * 32),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(FLOWS)
def test_within_one_cycle_of_exact_fractions(flows: list[Flow]) -> None:
    """Rates rounded down to 1/65536 B per cycle cost at most one cycle for each transfer."""
    expected = oracle(*exact(CLASSES, ROOM), flows)
    actual = modelled(CLASSES, ROOM, flows)
    late = np.array(actual) - np.array(expected)
    assert late.min() >= -1
    assert late.max() <= 1


@settings(max_examples=30, deadline=None)
@given(FLOWS, st.permutations(range(len(CLASSES))))
def test_the_number_of_a_class_does_not_matter(flows: list[Flow], order: list[int]) -> None:
    renamed = [CLASSES[i] for i in order]
    moved = [(cycle, order.index(kind), size) for cycle, kind, size in flows]
    assert modelled(renamed, ROOM, moved) == modelled(CLASSES, ROOM, flows)


def test_rates_are_whole_multiples_of_the_fixed_point() -> None:
    # 200 B/cycle over three: 66 + 2/3, rounded down; 2000 bytes take one cycle more than 30.
    third = (200 * RATE_ONE) // 3
    assert 30 * third < 2000 * RATE_ONE <= 31 * third
    assert modelled(CLASSES, ROOM, [(0, 1, 2000)] * 3) == [31, 31, 31]


@pytest.mark.parametrize("count", [1, 5, 40])
def test_bytes_are_conserved_at_a_saturated_resource(count: int) -> None:
    ends = modelled(CLASSES, ROOM, [(0, 1, 3200)] * count)
    least = -(-3200 * count // 200) if count > 1 else -(-3200 // 120)
    assert least <= ends[0] <= least + 1
