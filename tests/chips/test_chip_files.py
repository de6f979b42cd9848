"""The chip files themselves: complete, sourced, consistent, and equal to published figures."""

import pytest

from npusim.architecture import Architecture
from npusim.chips import Chip, Confidence, list_chips, load_chip, load_sources
from npusim.chips.build import schema_paths
from npusim.errors import ChipError
from npusim.units import GIB, KIB, MIB

ALL = list_chips()
RUNNABLE = [name for name in ALL if load_chip(name).is_runnable]
DAVID = [name for name in ALL if not load_chip(name).is_runnable]


# name: AIC, clock in MHz, memory and L2 in bytes, dense fp16 rate of all cubes in TFLOPS,
# from the table of products in the vendor's configuration files.
PRODUCTS = {
    "ascend910b1": (24, 1850, 64 * GIB, 192 * MIB, 363.7),
    "ascend910b2": (24, 1800, 64 * GIB, 192 * MIB, 353.9),
    "ascend910b3": (20, 1800, 64 * GIB, 192 * MIB, 294.9),
    "ascend910b4": (20, 1650, 32 * GIB, 96 * MIB, 270.3),
    "ascend910_9391": (24, 1800, 64 * GIB, 192 * MIB, 353.9),
    "ascend910_9362": (20, 1650, 64 * GIB, 168 * MIB, 270.3),
    "ascend950pr_9589": (32, 1650, 128 * GIB, 128 * MIB, 432.5),
    "ascend950pr_9579": (28, 1650, 128 * GIB, 128 * MIB, 378.5),
    "ascend950pr_957b": (28, 1650, 112 * GIB, 112 * MIB, 378.5),
    "ascend950dt_9581": (32, 1650, 144 * GIB, 128 * MIB, 432.5),
    "ascend950dt_9582": (32, 1650, 96 * GIB, 128 * MIB, 432.5),
    "ascend950dt_9572": (28, 1650, 96 * GIB, 128 * MIB, 378.5),
}


@pytest.mark.parametrize("name", ALL)
def test_every_number_has_a_known_source(name: str) -> None:
    known = load_sources()
    chip = load_chip(name)
    unknown = {
        (path, source)
        for path, quantity in chip.quantities.items()
        for source in quantity.source.split(", ")
        if source not in known
    }
    assert unknown == set()


def test_every_source_is_used() -> None:
    used = {
        source
        for name in ALL
        for quantity in load_chip(name).quantities.values()
        for source in quantity.source.split(", ")
    }
    assert set(load_sources()) == used


@pytest.mark.parametrize("name", ALL)
def test_an_estimate_alone_is_inferred(name: str) -> None:
    wrong = [
        path
        for path, quantity in load_chip(name).quantities.items()
        if quantity.source in ("ESTIMATE", "SCALED", "TOY")
        and quantity.confidence is not Confidence.INFERRED
    ]
    assert wrong == []


@pytest.mark.parametrize("name", RUNNABLE)
def test_runnable_chips_are_complete(name: str) -> None:
    only_3510 = ("l0c_ub.", "l1_ub.", "ub_l1.", "register_vector.")
    needed = {path for path in schema_paths() if not path.startswith(only_3510)}
    assert needed <= set(load_chip(name).quantities)
    load_chip(name).require_runnable()


@pytest.mark.parametrize("name", ALL)
def test_sizes_fit_together(name: str) -> None:
    chip = load_chip(name)
    assert chip.cores.aiv == 2 * chip.cores.aic
    assert chip.l2.line_bytes % chip.l2.sector_bytes == 0
    assert chip.l2.size_bytes % chip.l2.line_bytes == 0
    # A 16 x 16 fractal of fp32 results is the least that L0C can hold twice.
    assert chip.sizes.l0c >= 2 * 1024
    assert chip.hbm.read_bw_gbps <= chip.hbm.nominal_bw_gbps * 1.02
    assert chip.hbm.l1_read_bw_gbps <= chip.hbm.read_bw_gbps
    for dtype, rate in chip.cube.rates.items():
        bits = {"fp16": 16, "bf16": 16, "fp32": 32, "hf32": 32, "int4": 4}.get(dtype)
        bits = bits or (4 if dtype.startswith("fp4") else 8)
        assert rate.k0 * bits == 256, dtype


@pytest.mark.parametrize("name", RUNNABLE)
def test_vector_banks_make_up_the_ub(name: str) -> None:
    chip = load_chip(name)
    assert chip.vector.banks * chip.vector.bank_bytes == chip.sizes.ub
    assert chip.vector.banks % chip.vector.bank_groups == 0


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    aic, clock_mhz, memory_bytes, l2_bytes, tflops = PRODUCTS[name]
    chip = load_chip(name)
    assert chip.cores.aic == aic
    assert chip.cores.clock_mhz == clock_mhz
    assert chip.hbm.size_gib * GIB == memory_bytes
    assert chip.l2.size_bytes == l2_bytes
    rate = chip.cube.rate("fp16")
    flops_per_cycle = 2 * 16 * 16 * rate.k0 / rate.cycles
    assert aic * flops_per_cycle * clock_mhz * 1e-6 == pytest.approx(tflops, abs=0.05)


def test_no_product_is_left_out() -> None:
    assert set(PRODUCTS) | {"toy"} == set(ALL)


def test_toy() -> None:
    chip = load_chip("toy")
    assert chip.architecture is Architecture.A2201
    assert (chip.cores.aic, chip.cores.aiv, chip.cores.clock_mhz) == (1, 2, 1000)
    sizes = chip.sizes
    kib = [s // KIB for s in (sizes.l1, sizes.l0a, sizes.l0b, sizes.l0c, sizes.ub)]
    assert kib == [64, 8, 8, 16, 16]
    assert chip.l2.size_bytes == 256 * KIB


def test_vector_costs_depend_on_the_element_width() -> None:
    vector = load_chip("A2").vector
    assert (vector.repeat_cycles("exp", 32), vector.repeat_cycles("exp", 16)) == (2, 4)
    assert (vector.repeat_cycles("add", 32), vector.repeat_cycles("add", 16)) == (1, 1)
    assert (vector.extra("div", 16), vector.extra("div", 32)) == (4, 0)
    assert (vector.startup("sqrt", 32), vector.startup("transpose", 16)) == (39, 25)


def test_unknown_vector_class_and_cube_type() -> None:
    chip = load_chip("A2")
    with pytest.raises(ChipError) as caught:
        chip.vector.repeat_cycles("tan", 32)
    assert str(caught.value).startswith(
        "vector instruction class 'tan' has no cost on this chip; it has add, sub, mul, max,"
    )
    with pytest.raises(ChipError) as caught:
        chip.cube.rate("e4m3fn")
    assert str(caught.value) == (
        "the Cube of this chip does not multiply e4m3fn; it multiplies fp16, bf16, int8, int4, "
        "fp32, hf32"
    )


@pytest.mark.parametrize("name", DAVID)
def test_chips_without_a_modelled_machine_show_but_do_not_run(name: str) -> None:
    chip = load_chip(name)
    assert chip.architecture is Architecture.A3510
    assert chip.family == "950"
    with pytest.raises(ChipError) as caught:
        chip.require_runnable()
    assert str(caught.value) == (
        f"chip '{name}' cannot run: the machine of architecture 3510 is not modelled yet, and no "
        "time for it would mean anything; choose a chip of architecture 2201, such as A2 or A3"
    )


@pytest.mark.parametrize("name", DAVID)
def test_no_950_number_comes_from_an_a2_chip(name: str) -> None:
    assert {q.chip[:9] for q in load_chip(name).quantities.values()} == {"ascend950"}


def test_gaps_of_a_chip_are_named() -> None:
    chip = load_chip("950")
    with pytest.raises(ChipError) as caught:
        _ = chip.vector
    assert str(caught.value) == (
        "chip 'ascend950pr_9589' (architecture 3510) has no section 'vector'"
    )
    with pytest.raises(ChipError) as caught:
        _ = chip.l2.requests_per_cycle
    assert str(caught.value) == (
        "parameter 'requests_per_cycle' of section L2 has no value for this chip; its machine is "
        "not modelled yet"
    )


def test_other_attributes_are_the_usual_error() -> None:
    chip: Chip = load_chip("toy")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = chip.nonsense  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = chip.l2.nonsense  # type: ignore[attr-defined]
