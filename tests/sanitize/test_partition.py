"""Footprints and atoms against byte-by-byte definitions."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from legal_programs import legal_program
from ordering_oracle import pattern_mask

from npusim.chips.load import load_chip
from npusim.errors import ProgramError
from npusim.isa.patterns import pattern
from npusim.numerics.formats import DType
from npusim.sanitize.footprints import merged, overlap, pattern_runs
from npusim.sanitize.loop import run_pass
from npusim.sanitize.partition import cut
from npusim.sanitize.prepare import prepare
from npusim.sanitize.state import new_state

LEVELS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 12)), min_size=1, max_size=4)
RUNS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=5)


def bytes_of(runs: np.ndarray, base: int = 0) -> set[int]:
    return {b + base for low, high in runs.tolist() for b in range(low, high)}


@given(LEVELS, st.sampled_from([DType.UINT8, DType.FP16, DType.FP32]))
def test_runs_of_a_pattern(levels: list[tuple[int, int]], dtype: DType) -> None:
    try:
        it = pattern(dtype, tuple(levels))
    except ProgramError:
        return
    size = dtype.size_bytes
    wanted = {
        size * sum(i * s for i, (_, s) in zip(index, it.levels, strict=True)) + b
        for index in product(*(range(c) for c, _ in it.levels))
        for b in range(size)
    }
    runs = pattern_runs(it)
    assert bytes_of(runs) == wanted
    assert (runs[1:, 0] > runs[:-1, 1]).all()
    mask = pattern_mask(it)
    assert {i for i in range(mask.bit_length()) if mask >> i & 1} == wanted


@given(RUNS, RUNS)
def test_overlap_of_runs(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    one, two = (merged(*np.array([(s, s + n) for s, n in x]).T) for x in (a, b))
    common = bytes_of(one) & bytes_of(two)
    found = overlap(one, two)
    if not common:
        assert found is None
    else:
        assert found == (min(common), max(common) + 1, len(common))


@given(st.lists(st.tuples(st.integers(0, 30), RUNS), min_size=1, max_size=6), st.integers(1, 4))
def test_atoms_are_the_coarsest_cut(
    footprints: list[tuple[int, list[tuple[int, int]]]], unit: int
) -> None:
    tables = [merged(*np.array([(s, s + n) for s, n in runs]).T) * unit for _, runs in footprints]
    address = np.array([at * unit for at, _ in footprints], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum([len(t) for t in tables])]).astype(np.int64)
    size = max(int(a + t[-1, 1]) for a, t in zip(address, tables, strict=True))
    numbers = np.arange(len(tables), dtype=np.int64)
    it = cut(size, address, numbers, first, np.concatenate(tables))
    sets = [bytes_of(t, int(a)) for a, t in zip(address, tables, strict=True)]
    atom = it.at(np.arange(size, dtype=np.int64)).tolist()
    groups: dict[tuple[bool, ...], set[int]] = {}
    for b in range(size):
        groups.setdefault(tuple(b in s for s in sets), set()).add(atom[b])
    # One atom for each combination of footprints, and no atom in two of them.
    touched = [atoms for member, atoms in groups.items() if any(member)]
    assert all(len(atoms) == 1 for atoms in touched)
    assert len(set.union(*touched)) == len(touched)
    for i, s in enumerate(sets):
        listed = it.atoms[it.first[i] : it.first[i + 1]].tolist()
        assert sorted(listed) == sorted({atom[b] for b in s})


def test_plain_python_gives_what_machine_code_gives() -> None:
    """The pass without compilation, on a program with many flags and one with races."""
    prepared = prepare(legal_program(7, 20), load_chip("toy"))
    states = []
    for function in (run_pass, run_pass.__wrapped__):  # type: ignore[attr-defined]
        state = new_state(prepared, 1000)
        assert function(prepared.tables, state) == 0
        states.append(state)
    for name, one, two in zip(states[0]._fields, *states, strict=True):
        assert (one == two).all(), name
