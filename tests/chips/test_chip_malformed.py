"""Chip files with mistakes: each is refused with the entry and what is wrong with it."""

from pathlib import Path

import pytest

from npusim.chips import load, load_chip
from npusim.errors import ChipError

HEADER = 'inherits = "ascend910b1"\nname = "mine"\nfamily = "A2"\narchitecture = 2201\n'
ENTRY = 'source = "INI", confidence = "source-code"'


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of chip files that holds the shipped 910B1; the loader reads it."""
    shipped = Path(load.__file__).parent / "data"
    for name in ("ascend910b1.toml", "sources.toml"):
        (tmp_path / name).write_text((shipped / name).read_text("utf-8"), "utf-8")
    monkeypatch.setattr(load, "_data", lambda: tmp_path)
    return tmp_path


def refusal(data: Path, text: str, name: str = "mine") -> str:
    """The message with which a chip file fails to load."""
    (data / f"{name}.toml").write_text(text, "utf-8")
    with pytest.raises(ChipError) as caught:
        load_chip(name)
    return str(caught.value)


def test_a_child_without_changes_is_its_parent(data: Path) -> None:
    (data / "mine.toml").write_text(HEADER, "utf-8")
    assert load_chip("mine").quantities == load_chip("ascend910b1").quantities


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("[hbm]\nread_bw_gbps = 1490", "hbm.read_bw_gbps is a bare int; write "
         "{ value = ..., source = ..., confidence = ... }"),
        ('[hbm]\nread_bw_gbps = { value = 1490, confidence = "measured" }',
         "hbm.read_bw_gbps.source: Field required"),
        ('[hbm]\nread_bw_gbps = { value = 1490, source = "INI" }',
         "hbm.read_bw_gbps.confidence: Field required"),
        ('[hbm]\nread_bw_gbps = { value = 1490, source = "INI", confidence = "sure" }',
         "hbm.read_bw_gbps.confidence: Input should be 'published', 'source-code', 'measured', "
         "'fitted', 'inferred' or 'set'"),
        ('[hbm]\nread_bw_gbps = { value = 1490, source = "INI", confidence = "set" }',
         "hbm.read_bw_gbps: 'set' is for values given at run time"),
        (f"[hbm]\nread_bw_gbps = {{ value = 1490, {ENTRY}, low = 1500 }}",
         "hbm.read_bw_gbps: Value error, value 1490 is below its own range (low = 1500)"),
        (f"[hbm]\nread_bw_gbps = {{ value = 1490, {ENTRY}, high = 1400 }}",
         "hbm.read_bw_gbps: Value error, value 1490 is above its own range (high = 1400)"),
        (f"[hbm]\nread_bw_gbps = {{ value = 1490, {ENTRY}, sauce = 1 }}",
         "hbm.read_bw_gbps.sauce: Extra inputs are not permitted"),
        (f"[hbm]\nspeed = {{ value = 1490, {ENTRY} }}",
         "hbm.speed needs a unit; its name does not tell one"),
        (f"[hbm]\nread_bw_gbps = {{ value = 0, {ENTRY} }}",
         "hbm.read_bw_gbps should be greater than or equal to 0.001, got 0"),
        (f"[l0c_ub]\nsetup_cycles = {{ value = 0, {ENTRY} }}",
         None),
    ],
)  # fmt: skip
def test_malformed_entries(data: Path, lines: str, message: str | None) -> None:
    expected = message or (
        "has architecture 2201, but section 'l0c_ub' exists only on architecture 3510"
    )
    separator = ": " if message else " "
    assert refusal(data, HEADER + lines) == f"chip 'mine'{separator}{expected}"


def test_unknown_parameter_and_section(data: Path) -> None:
    assert refusal(data, f"{HEADER}[l2]\nsize_byte_cycles = {{ value = 1, {ENTRY} }}") == (
        "chip 'mine' has no parameter 'l2.size_byte_cycles' (near matches: l2.size_bytes, "
        "l2.hit_latency_cycles, l2.line_bytes)"
    )
    assert refusal(data, f"{HEADER}[l3]\nsize_bytes = {{ value = 1, {ENTRY} }}") == (
        "chip 'mine' has no parameter 'l3.size_bytes' (near matches: l2.size_bytes)"
    )


def test_missing_parameters(data: Path) -> None:
    text = (data / "ascend910b1.toml").read_text("utf-8").replace("ascend910b1", "mine")
    lines = [line for line in text.splitlines() if not line.startswith(("skew_us", "event_ids"))]
    assert refusal(data, "\n".join(lines)) == "chip 'mine' lacks sync.event_ids"
    without_hbm, rest = text.split("[hbm]")
    rest = rest[rest.index("[sync]") :]
    assert refusal(data, without_hbm + rest) == "chip 'mine' lacks the section 'hbm'"


def test_unknown_parent(data: Path) -> None:
    assert refusal(data, HEADER.replace("910b1", "910b7")) == (
        "chip 'mine' inherits from unknown chip 'ascend910b7' (near matches: ascend910b1)"
    )


def test_circle(data: Path) -> None:
    (data / "other.toml").write_text(HEADER.replace("ascend910b1", "mine"), "utf-8")
    assert refusal(data, HEADER.replace("ascend910b1", "other")) == (
        "chip files inherit in a circle: mine -> other -> mine"
    )
