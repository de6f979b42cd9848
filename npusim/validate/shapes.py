"""Shapes and element types of a record, whose sources spell them in three ways."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from npusim.validate.records import Record
from npusim.validate.workload import NotMapped

Shape = tuple[int, ...]

_TYPES = {
    "fp32": "fp32",
    "float": "fp32",
    "float32": "fp32",
    "dt_float": "fp32",
    "fp16": "fp16",
    "half": "fp16",
    "float16": "fp16",
    "dt_float16": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "dt_bf16": "bf16",
    "int8": "int8",
    "int32": "int32",
    "int": "int32",
    "dt_int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "uint8": "uint8",
}


@dataclass(frozen=True)
class Operand:
    """One tensor: shape and element type."""

    shape: Shape
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def rows_cols(self) -> tuple[int, int]:
        """The last axis, and the product of all others."""
        cols = self.shape[-1] if self.shape else 1
        return (self.elements // cols if cols else 0), cols


def literal(value: Any) -> Any:
    """What a source wrote as text, where it is a list or a dictionary in Python's notation."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def element_type(text: str) -> str:
    """An element type in npusim's spelling.

    Raises:
        NotMapped: unknown type.
    """
    name = text.strip().lower().partition(" ")[0]
    if name not in _TYPES:
        raise NotMapped(f"element type '{text.strip()}' is not modelled")
    return _TYPES[name]


_LIST_MARKS = str.maketrans({"[": None, "]": None, "'": None, '"': None, ",": ";"})
_ABSENT = ("dt_undefined", "undefined")


def element_types(record: Record) -> list[str]:
    """Element types of a record in its own order: one, or one for each input that is there.

    Raises:
        NotMapped: none is stated or one is unknown.
    """
    if not record.dtype:
        raise NotMapped("the record states no element type")
    text = record.dtype.split("->")[0].translate(_LIST_MARKS)
    parts = [part.strip() for part in text.replace("/", ";").split(";")]
    present = [part for part in parts if part and part.lower() not in _ABSENT]
    if not present:
        raise NotMapped("the record states no element type")
    return [element_type(part) for part in present]


def shapes(record: Record) -> list[Shape | None]:
    """Shapes of the inputs; None for an absent one.

    Raises:
        NotMapped: the record states no shapes, or they are not readable.
    """
    params = record.params
    inputs = literal(params.get("inputs"))
    if isinstance(inputs, list):
        return [_shape(entry) for entry in inputs]
    for key in ("input_shapes", "raw_input_shapes"):
        text = params.get(key)
        if isinstance(text, str) and text not in ("", "N/A"):
            return _without_absent(record, _split(text))
    if isinstance(params.get("shape"), list):
        return [_shape(params["shape"])]
    raise NotMapped("the record states no input shapes")


def operands(record: Record) -> list[Operand]:
    """Inputs with their element types, at least one; absent inputs are left out.

    Raises:
        NotMapped: see `shapes` and `element_types`, or no input at all.
    """
    found = [s for s in shapes(record) if s is not None]
    if not found:
        raise NotMapped("the record states no inputs")
    types = element_types(record)
    if len(types) < len(found):
        types = types + [types[0]] * (len(found) - len(types))
    return [Operand(shape, dtype) for shape, dtype in zip(found, types, strict=False)]


def output_shape(record: Record) -> Shape | None:
    """Shape of the first output, where it is stated."""
    text = record.params.get("output_shapes")
    if not isinstance(text, str) or text in ("", "N/A"):
        return None
    return _split(text)[0]


def positive(record: Record, name: str) -> int:
    """A whole positive number of a record's parameters.

    Raises:
        NotMapped: missing or something else.
    """
    value = record.params.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotMapped(f"parameter {name} is {value!r}, a positive whole number is needed")
    return value


def _without_absent(record: Record, found: list[Shape | None]) -> list[Shape | None]:
    """An input of undefined type is absent; its shape reads as that of a scalar."""
    types = [part.strip().lower() for part in (record.dtype or "").split(";")]
    if len(types) != len(found):
        return found
    return [None if t in _ABSENT else shape for shape, t in zip(found, types, strict=True)]


def _shape(entry: Any) -> Shape | None:
    if entry is None:
        return None
    if isinstance(entry, list) and entry and isinstance(entry[0], list):
        return _shape(entry[0])  # a list of tensors of one shape
    if not isinstance(entry, Sequence) or isinstance(entry, str):
        raise NotMapped(f"input shape {entry!r} is not a list of sizes")
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in entry):
        raise NotMapped(f"input shape {entry!r} is not a list of sizes")
    return tuple(entry)


def _split(text: str) -> list[Shape | None]:
    """``"4,8;8;"`` as (4, 8), (8,) and a scalar; an ellipsis ends the list."""
    found: list[Shape | None] = []
    for part in text.split(";"):
        if "..." in part:
            break
        try:
            found.append(tuple(int(n) for n in part.split(",") if n.strip()))
        except ValueError:
            raise NotMapped(f"input shape '{part}' is not readable") from None
    return found
