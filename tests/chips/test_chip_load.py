"""Loading chips: names, inheritance, values set by the user, and what is refused."""

import pickle

import pytest

from npusim.chips import ALIASES, Chip, Confidence, list_chips, load_chip, resolve_name
from npusim.errors import ChipError
from npusim.units import Clock

CHIPS = [
    "ascend910_9362",
    "ascend910_9391",
    "ascend910b1",
    "ascend910b2",
    "ascend910b3",
    "ascend910b4",
    "ascend950dt_9572",
    "ascend950dt_9581",
    "ascend950dt_9582",
    "ascend950pr_9579",
    "ascend950pr_957b",
    "ascend950pr_9589",
    "toy",
]


def refusal(name: str, **values: float | str) -> str:
    """The message with which loading fails; ``__`` stands for the dot of a path."""
    with pytest.raises(ChipError) as caught:
        load_chip(name, {path.replace("__", "."): value for path, value in values.items()})
    return str(caught.value)


def test_all_chips_are_listed() -> None:
    assert list_chips() == CHIPS


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("A2", "ascend910b2"),
        ("a3", "ascend910_9391"),
        ("950", "ascend950pr_9589"),
        ("Ascend910B4", "ascend910b4"),
        ("toy", "toy"),
    ],
)
def test_names_and_aliases(alias: str, name: str) -> None:
    assert resolve_name(alias) == name
    assert load_chip(alias).name == name


def test_aliases_name_chips() -> None:
    assert set(ALIASES.values()) <= set(CHIPS)


def test_values_read_like_attributes() -> None:
    chip = load_chip("ascend910b1")
    assert (chip.cores.aic, chip.cores.aiv, chip.cores.clock_mhz) == (24, 48, 1850)
    assert chip.clock == Clock(1850)
    assert chip.aiv_per_aic == 2
    assert chip.hbm.read_bw_gbps == 1490
    assert isinstance(chip.hbm.read_bw_gbps, float)
    assert chip.launch.mixed.head_us + chip.launch.mixed.tail_us == pytest.approx(5.1)
    assert chip.cube.rate("BF16").k0 == 16


def test_quantity_says_where_a_number_comes_from() -> None:
    quantity = load_chip("ascend910b1").quantity("hbm.read_bw_gbps")
    assert (quantity.value, quantity.unit) == (1490, "GB/s")
    assert (quantity.low, quantity.high) == (1300, 1600)
    assert quantity.source == "ASC-EX"
    assert quantity.confidence is Confidence.MEASURED
    assert quantity.chip == "ascend910b1"


def test_a_child_states_what_differs_and_inherits_the_rest() -> None:
    parent, child = load_chip("ascend910b1"), load_chip("ascend910b4")
    assert child.cores.aic == 20
    assert child.quantity("cores.aic").chip == "ascend910b4"
    assert child.family == "A2"
    assert child.description != parent.description
    assert child.quantity("ub_gm.bytes_per_cycle") == parent.quantity("ub_gm.bytes_per_cycle")
    assert list(child.quantities) == list(parent.quantities)


def test_inheritance_has_more_than_one_level() -> None:
    chip = load_chip("ascend950pr_957b")
    assert chip.quantity("cores.aic").chip == "ascend950pr_9579"
    assert chip.quantity("sizes.ub").chip == "ascend950pr_9589"
    assert chip.hbm.size_gib == 112


def test_set_reaches_a_parameter_and_says_so() -> None:
    chip = load_chip("A2", {"hbm.read_bw_gbps": "2000", "launch.skew_us": 0.5})
    assert chip.hbm.read_bw_gbps == 2000
    assert chip.launch.skew_us == 0.5
    quantity = chip.quantity("hbm.read_bw_gbps")
    assert quantity.confidence is Confidence.SET
    assert quantity.source == "set for this run"
    assert quantity.note == "chip file: 1490"
    assert list(chip.with_confidence(Confidence.SET)) == [
        "hbm.read_bw_gbps", "hbm.l1_read_bw_gbps", "launch.skew_us",
    ]  # fmt: skip
    assert load_chip("A2").hbm.read_bw_gbps == 1490


def test_what_l1_gets_of_hbm_follows_it() -> None:
    before = load_chip("A2").hbm
    halved = load_chip("A2", {"hbm.read_bw_gbps": before.read_bw_gbps / 2})
    assert halved.hbm.l1_read_bw_gbps == before.l1_read_bw_gbps / 2
    assert halved.quantity("hbm.l1_read_bw_gbps").note == "follows hbm.read_bw_gbps"
    both = load_chip("A2", {"hbm.read_bw_gbps": 1000, "hbm.l1_read_bw_gbps": 900})
    assert both.hbm.l1_read_bw_gbps == 900
    assert both.hbm.write_bw_gbps == before.write_bw_gbps


def test_set_reaches_every_parameter() -> None:
    before = load_chip("A2").quantities
    # Inside all bounds and not what it was: counts take 1 or 2, bytes 512, shares 0.5.
    values = {
        path: 512 if old.unit == "B" else 1 if old.value != 1 else 2 if old.unit != "1" else 0.5
        for path, old in before.items()
        if not path.startswith("cores.")
    }
    chip = load_chip("A2", values)
    assert len(values) == len(before) - 3
    for path, value in values.items():
        assert chip.quantity(path).value == value
        section: object = chip
        for part in path.split("."):
            section = section[part] if isinstance(section, dict) else getattr(section, part)
        assert section == value, path


def test_vector_cores_follow_the_cube_cores() -> None:
    chip = load_chip("A2", {"cores.aic": "20"})
    assert (chip.cores.aic, chip.cores.aiv) == (20, 40)
    assert chip.quantity("cores.aiv").note == "follows cores.aic"
    one_each = load_chip("A2", {"cores.aic": 20, "cores.aiv": 20})
    assert one_each.aiv_per_aic == 1


def test_unknown_chip() -> None:
    assert refusal("ascend910b9") == (
        "no chip 'ascend910b9' (near matches: ascend910b4, ascend910b3, ascend910b2)"
    )
    assert refusal("H100") == f"no chip 'H100' (known: A2, A3, 950, {', '.join(CHIPS)})"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("hbm__read_bw", "near matches: hbm.read_bw_gbps, hbm.l1_read_bw_gbps, hbm.write_bw_gbps"),
        ("hbm__hit_latency_cycles", "near matches: l2.hit_latency_cycles"),
        ("hbn__read_bw_gbps", "near matches: hbm.read_bw_gbps, l2.read_bw_gbps"),
        ("corse__aics", "no section 'corse'; near matches: cores"),
        (
            "cube__rates__fp8__k0",
            "near matches: cube.rates.fp32.k0, cube.rates.fp16.k0, cube.rates.int8.k0",
        ),
        (
            "read_bw_gbps",
            "no section 'read_bw_gbps'; known: cores, sizes, queue, issue, gm_ub, "
            "gm_l1, ub_gm, l1_gm, l0c_gm, l0c_l1, l1_l0a, l1_l0b, l1_bt, l1_fb, cube, fixpipe, "
            "vector, l2, hbm, sync, launch",
        ),
    ],
)
def test_unknown_parameter(path: str, hint: str) -> None:
    shown = path.replace("__", ".")
    assert refusal("A2", **{path: 1}) == f"chip 'ascend910b2' has no parameter '{shown}' ({hint})"


def test_unknown_quantity() -> None:
    with pytest.raises(ChipError) as caught:
        load_chip("toy").quantity("l2.line_byte")
    assert str(caught.value) == (
        "chip 'toy' has no parameter 'l2.line_byte' (near matches: l2.line_bytes, l2.size_bytes, "
        "l2.sector_bytes)"
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("cores__aic", 0, "chip 'ascend910b2': cores.aic should be greater than 0, got 0"),
        (
            "cores__aic",
            2.5,
            "chip 'ascend910b2': cores.aic should be a valid integer, got a number "
            "with a fractional part, got 2.5",
        ),
        (
            "cores__aiv",
            40,
            "chip 'ascend910b2': cores.aiv = 40 is not a multiple of cores.aic = 24; "
            "set cores.aic alone and the vector cores follow",
        ),
        (
            "hbm__read_bw_gbps",
            -3,
            "chip 'ascend910b2': hbm.read_bw_gbps should be greater than or equal to 0.001, got -3",
        ),
        (
            "hbm__mixed_factor",
            1.5,
            "chip 'ascend910b2': hbm.mixed_factor should be less than or equal to 1, got 1.5",
        ),
        (
            "l2__dirty_share",
            "-0.1",
            "chip 'ascend910b2': l2.dirty_share should be greater than or equal to 0, got -0.1",
        ),
        (
            "l2__hit_latency_cycles",
            -1,
            "chip 'ascend910b2': l2.hit_latency_cycles should be greater "
            "than or equal to 0, got -1",
        ),
        (
            "hbm__read_bw_gbps",
            "fast",
            "parameter 'hbm.read_bw_gbps' needs a finite number, got 'fast'",
        ),
        (
            "hbm__read_bw_gbps",
            "nan",
            "parameter 'hbm.read_bw_gbps' needs a finite number, got 'nan'",
        ),
        (
            "hbm__read_bw_gbps",
            "1e999",
            "parameter 'hbm.read_bw_gbps' needs a finite number, got '1e999'",
        ),
    ],
)
def test_values_no_machine_can_have(path: str, value: float | str, message: str) -> None:
    assert refusal("A2", **{path: value}) == message


def test_a_chip_survives_pickling() -> None:
    chip = load_chip("A2", {"cores.aic": 20})
    copy = pickle.loads(pickle.dumps(chip))
    assert isinstance(copy, Chip)
    assert copy == chip
    assert copy.quantities == chip.quantities


def test_a_chip_does_not_change() -> None:
    chip = load_chip("toy")
    with pytest.raises(ValueError, match="frozen"):
        chip.hbm.read_bw_gbps = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        chip.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "value", "limit"),
    [
        ("cores.aic", 10**8, 4096),
        ("queue.depth_vector", 10**12, 4096),
        ("cores.clock_mhz", 10**9, 100_000),
        ("launch.skew_us", 1e30, 1_000_000),
        ("hbm.read_bw_gbps", 1e300, 1_000_000_000),
    ],
)
def test_a_number_that_no_machine_has(path: str, value: float, limit: int) -> None:
    with pytest.raises(ChipError) as caught:
        load_chip("A2", {path: value})
    message = str(caught.value)
    assert message.startswith(f"chip 'ascend910b2': {path} should be less than or equal to {limit}")
