"""Chip files: names and aliases, inheritance, values set by the user."""

import math
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from npusim.chips.build import build_chip
from npusim.chips.model import Chip, unknown_parameter
from npusim.chips.quantity import Confidence, Quantity, unit_of
from npusim.errors import ChipError, near_matches

ALIASES: Mapping[str, str] = MappingProxyType(
    {"A2": "ascend910b2", "A3": "ascend910_9391", "950": "ascend950pr_9589"}
)
"""Short names for the chip that stands for a family; letter case does not matter."""

_HEADER_KEYS = ("name", "family", "architecture", "description", "inherits")
_SOURCES_FILE = "sources.toml"
_FOLLOWERS = {"cores.aic": "cores.aiv", "hbm.read_bw_gbps": "hbm.l1_read_bw_gbps"}
"""Parameters that keep their ratio to another one that is set alone."""


def list_chips() -> list[str]:
    """Names of all chips, sorted."""
    files = (entry.name for entry in _data().iterdir() if entry.name != _SOURCES_FILE)
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def resolve_name(name: str) -> str:
    """The chip's own name for a name or alias in any case.

    Raises:
        ChipError: no such chip; the message lists near matches.
    """
    chips = list_chips()
    own = ALIASES.get(name.upper(), name.lower())
    if own not in chips:
        raise ChipError(f"no chip '{name}' ({near_matches(name, [*ALIASES, *chips])})")
    return own


def load_chip(name: str, set: Mapping[str, float | str] | None = None) -> Chip:
    """Load a chip by name or alias, with values set by the user.

    Args:
        name: a name of ``list_chips`` or an alias (A2, A3, 950), in any case.
        set: new values by dotted path; ``cores.aic`` alone makes the vector cores follow, and
            ``hbm.read_bw_gbps`` alone what of it reaches L1.

    Raises:
        ChipError: unknown chip or parameter, or a value that no machine can have.
    """
    own = resolve_name(name)
    header, raw = _read_merged(own, ())
    quantities = {path: _quantity(own, path, entry) for path, entry in raw.items()}
    return build_chip(header, quantities | dict(_overrides(own, quantities, set or {})))


def load_sources() -> Mapping[str, str]:
    """What each short source name in the chip files stands for."""
    return MappingProxyType(tomllib.loads((_data() / _SOURCES_FILE).read_text("utf-8")))


def _data() -> Traversable:
    return resources.files("npusim.chips") / "data"


@cache
def _parse(name: str, text: str) -> tuple[Mapping[str, Any], Mapping[str, dict[str, Any]]]:
    """Header and raw entries by path of one chip file; equal texts are parsed once."""
    table = tomllib.loads(text)
    header = {key: table.pop(key) for key in _HEADER_KEYS if key in table}
    return MappingProxyType(header), MappingProxyType(dict(_flatten(name, table)))


def _read_merged(
    name: str, children: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Header and raw entries by path of a chip, its parents' first.

    Args:
        name: own name of the chip.
        children: the chips that inherit from it, to find a circle.
    """
    if name in children:
        raise ChipError(f"chip files inherit in a circle: {' -> '.join([*children, name])}")
    parsed, entries = _parse(name, (_data() / f"{name}.toml").read_text("utf-8"))
    header, own = dict(parsed), dict(entries)
    parent = header.pop("inherits", None)
    if parent is None:
        return header, own
    if parent not in list_chips():
        raise ChipError(
            f"chip '{name}' inherits from unknown chip '{parent}' "
            f"({near_matches(parent, list_chips())})"
        )
    parent_header, inherited = _read_merged(parent, (*children, name))
    return parent_header | header, inherited | own


def _flatten(
    chip_name: str, table: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Entries of nested tables by dotted path; a table with a value is an entry."""
    for key, node in table.items():
        path = f"{prefix}{key}"
        if not isinstance(node, dict):
            raise ChipError(
                f"chip '{chip_name}': {path} is a bare {type(node).__name__}; write "
                "{ value = ..., source = ..., confidence = ... }"
            )
        if "value" in node:
            yield path, {**node, "chip": chip_name}
        else:
            yield from _flatten(chip_name, node, f"{path}.")


def _quantity(chip_name: str, path: str, entry: Mapping[str, Any]) -> Quantity:
    """A checked quantity from a file's entry, its unit told by the name unless stated."""
    unit = entry.get("unit", unit_of(path))
    if unit is None:
        raise ChipError(f"chip '{chip_name}': {path} needs a unit; its name does not tell one")
    try:
        quantity = Quantity.model_validate({**entry, "unit": unit})
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join([path, *map(str, problem["loc"])])
        raise ChipError(f"chip '{chip_name}': {field}: {problem['msg']}") from None
    if quantity.confidence is Confidence.SET:
        raise ChipError(f"chip '{chip_name}': {path}: 'set' is for values given at run time")
    return quantity


def _overrides(
    chip_name: str, quantities: Mapping[str, Quantity], values: Mapping[str, float | str]
) -> Iterator[tuple[str, Quantity]]:
    """The user's values as quantities, and what follows them."""
    for path, value in values.items():
        if path not in quantities:
            raise unknown_parameter(path, chip_name, quantities)
        number = _number(path, value)
        yield path, _set_quantity(quantities[path], number)
        follower = _FOLLOWERS.get(path)
        if follower is not None and follower in quantities and follower not in values:
            was, leader = quantities[follower], quantities[path].value
            scaled = number * was.value / leader
            value = int(scaled) if float(scaled).is_integer() else scaled
            yield follower, _set_quantity(was, value, f"follows {path}")


def _set_quantity(replaced: Quantity, value: float, note: str = "") -> Quantity:
    return Quantity(
        value=value,
        unit=replaced.unit,
        source="set for this run",
        confidence=Confidence.SET,
        note=note or f"chip file: {replaced.value}",
        chip=replaced.chip,
    )


def _number(path: str, value: float | str) -> float:
    """A finite number from a command line's text or a caller's number; whole ones stay whole."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ChipError(f"parameter '{path}' needs a finite number, got '{value}'")
    return int(number) if number.is_integer() else number
