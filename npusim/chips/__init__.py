"""Chip descriptions: what the machine is, every number with unit, source and confidence."""

from npusim.chips.load import ALIASES, list_chips, load_chip, load_sources, resolve_name
from npusim.chips.model import Chip
from npusim.chips.quantity import Confidence, Quantity

__all__ = [
    "ALIASES",
    "Chip",
    "Confidence",
    "Quantity",
    "list_chips",
    "load_chip",
    "load_sources",
    "resolve_name",
]
