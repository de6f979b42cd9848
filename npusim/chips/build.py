"""From a flat table of quantities to the typed sections of a chip, with every check."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from npusim.architecture import Architecture
from npusim.chips.model import RUNNABLE_ARCHITECTURES, Chip, unknown_parameter
from npusim.chips.quantity import Quantity
from npusim.chips.sections import Section
from npusim.errors import ChipError

_Model = TypeVar("_Model", bound=BaseModel)

# Sections of one architecture's machine: the other must not carry them.
_ONLY_ON = {
    "l1_gm": Architecture.A2201,
    "vector": Architecture.A2201,
    "l0c_ub": Architecture.A3510,
    "l1_ub": Architecture.A3510,
    "ub_l1": Architecture.A3510,
    "register_vector": Architecture.A3510,
}


def section_types() -> dict[str, type[Section]]:
    """The sections a chip can have, by name, in the order in which to show them."""
    return {
        name: field.annotation
        for name, field in Chip.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


def build_chip(header: Mapping[str, Any], quantities: Mapping[str, Quantity]) -> Chip:
    """A chip of checked numbers.

    Args:
        header: name, family, architecture and description.
        quantities: every number by dotted path.

    Raises:
        ChipError: a parameter is unknown, missing, of the wrong architecture or outside what a
            machine can have.
    """
    name = str(header["name"])
    architecture = Architecture(header["architecture"])
    tree: dict[str, Any] = {}
    for path, quantity in quantities.items():
        *tables, leaf = path.split(".")
        node = tree
        for table in tables:
            node = node.setdefault(table, {})
        node[leaf] = quantity.value
    types = section_types()
    for section in tree:
        if section not in types:
            raise unknown_parameter(next(_paths_in(section, quantities)), name, schema_paths())
        only_on = _ONLY_ON.get(section, architecture)
        if only_on is not architecture:
            raise ChipError(
                f"chip '{name}' has architecture {int(architecture)}, but section '{section}' "
                f"exists only on architecture {int(only_on)}"
            )
    may_lack = architecture not in RUNNABLE_ARCHITECTURES
    sections: dict[str, Any] = {}
    for section, cls in types.items():
        if section in tree:
            sections[section] = _section(name, section, cls, tree[section], may_lack)
        elif not may_lack and _ONLY_ON.get(section, architecture) is architecture:
            raise ChipError(f"chip '{name}' lacks the section '{section}'")
    chip = Chip.model_construct(
        name=name,
        family=str(header["family"]),
        architecture=architecture,
        description=str(header["description"]),
        quantities=dict(quantities),
        **sections,
    )
    if chip.cores.aiv % chip.cores.aic:
        raise ChipError(
            f"chip '{name}': cores.aiv = {chip.cores.aiv} is not a multiple of cores.aic = "
            f"{chip.cores.aic}; set cores.aic alone and the vector cores follow"
        )
    return chip


def _section(
    chip_name: str, section: str, cls: type[Section], values: dict[str, Any], may_lack: bool
) -> Section:
    """One section from its plain numbers; gaps stay unset where ``may_lack`` allows them."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        missing = _missing_or_refuse(chip_name, section, error)
        # A row of a table with free keys, such as a Cube rate, is whole or absent.
        if may_lack and not any(path.count(".") > 2 for path in missing):
            return _construct(cls, values)
        raise ChipError(f"chip '{chip_name}' lacks {', '.join(missing)}") from None


def _missing_or_refuse(chip_name: str, section: str, error: ValidationError) -> list[str]:
    """The missing parameters; raises ``ChipError`` for any other problem."""
    missing = []
    for problem in error.errors():
        path = ".".join([section, *map(str, problem["loc"])])
        if problem["type"] == "missing":
            missing.append(path)
        elif problem["type"] == "extra_forbidden":
            raise unknown_parameter(path, chip_name, schema_paths()) from None
        else:
            reason = problem["msg"].removeprefix("Input ")
            raise ChipError(
                f"chip '{chip_name}': {path} {reason}, got {_shown(problem['input'])}"
            ) from None
    return missing


def _shown(value: object) -> str:
    """A refused number; one of more digits than a float holds as a power of ten."""
    return str(float(value) if isinstance(value, int) and abs(value) >= 10**16 else value)


def _construct(cls: type[_Model], values: Mapping[str, Any]) -> _Model:
    """A model without its missing fields; what is present has passed validation."""
    built: dict[str, Any] = {}
    for name, value in values.items():
        annotation: Any = cls.model_fields[name].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            built[name] = _construct(annotation, value)
        else:
            built[name] = TypeAdapter(annotation).validate_python(value)
    return cls.model_construct(**built)


def _paths_in(section: str, paths: Mapping[str, Quantity]) -> Iterator[str]:
    return (path for path in paths if path.partition(".")[0] == section)


def schema_paths() -> Sequence[str]:
    """Every parameter a chip file can give, tables with free keys left out."""
    return [path for name, cls in section_types().items() for path in _leaves(cls, name)]


def _leaves(cls: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in cls.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _leaves(annotation, f"{prefix}.{name}")
        elif annotation in (int, float):
            yield f"{prefix}.{name}"
