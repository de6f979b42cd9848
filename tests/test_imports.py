"""Imports point one way: a module may import only what lies below it.

The order is that of ``LAYERS``, lowest first. Parts of one layer are siblings and do not import
each other. The imports are read from the syntax tree, so an import inside a function or under
``TYPE_CHECKING`` counts like any other.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = (
    ("errors", "units", "architecture", "code_cache"),
    ("numerics", "chips"),
    ("choices", "tensor_files"),
    ("isa",),
    ("functional", "timing", "sanitize", "ops", "roofline"),
    ("traces", "jobs"),
    ("simulate",),
    ("summary",),
    ("reports", "explore", "validate", "bench"),
    ("api",),
    ("frontends",),
    ("cli",),
    ("__init__", "__main__"),
)
LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}
PACKAGE = Path(__file__).resolve().parent.parent / "npusim"

# A reference computes an operator a second time; it may share rounding with the kernel, nothing
# that says how the kernel does it.
REFERENCE_MAY_NOT_USE = ("isa", "functional", "timing", "sanitize")
REFERENCE_MAY_NOT_USE_OF_ITS_OPERATOR = ("kernel", "stages", "tiling")


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package by dotted name, the linked folders included."""
    for folder, names in walk(PACKAGE):
        parts = ("npusim", *folder.relative_to(PACKAGE).parts)
        for name in names:
            stem = name.removesuffix(".py")
            yield ".".join(parts if stem == "__init__" else (*parts, stem)), folder / name


def walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders of the package with their Python files; follows the links to ops and the like."""
    entries = sorted(folder.iterdir())
    yield folder, [e.name for e in entries if e.suffix == ".py"]
    for entry in entries:
        if entry.is_dir() and entry.name != "__pycache__":
            yield from walk(entry)


def imports(name: str, path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything a module imports."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, node.module] if node.module else base)
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def part_of(name: str) -> str:
    """The entry of ``LAYERS`` that a dotted name belongs to."""
    return [*name.split("."), "__init__"][1]


def violations(name: str, path: Path) -> Iterator[str]:
    """Imports of a module that do not point down."""
    own = part_of(name)
    for line, target in imports(name, path):
        if target.split(".")[0] in ("ops", "traces", "reports"):
            yield f"{name}:{line} imports {target}; the name is npusim.{target}"
        if target.split(".")[0] != "npusim":
            continue
        other = part_of(target)
        # A part without a layer is the other test's finding.
        if other == own or own not in LEVEL:
            continue
        if LEVEL.get(other, len(LAYERS)) >= LEVEL[own]:
            yield f"{name}:{line} imports {target}, which is not below {own}"


ALL = list(modules())


def test_the_walk_reaches_the_linked_folders() -> None:
    names = {name for name, _ in ALL}
    assert {"npusim.errors", "npusim.chips.load", "npusim.ops", "npusim.traces"} <= names
    assert "npusim.reports" in names


def test_every_part_has_a_layer() -> None:
    assert {part_of(name) for name, _ in ALL} <= set(LEVEL)


def test_imports_point_down() -> None:
    assert [v for name, path in ALL for v in violations(name, path)] == []


def test_references_are_independent_of_kernels() -> None:
    found = []
    for name, path in ALL:
        if part_of(name) != "ops" or not name.split(".")[-1].startswith("reference"):
            continue
        operator = name.rpartition(".")[0]
        forbidden = [f"npusim.{part}" for part in REFERENCE_MAY_NOT_USE]
        forbidden += [f"{operator}.{part}" for part in REFERENCE_MAY_NOT_USE_OF_ITS_OPERATOR]
        found += [
            f"{name}:{line} imports {target}"
            for line, target in imports(name, path)
            if any(target == f or target.startswith(f"{f}.") for f in forbidden)
        ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "text", "expected"),
    [
        ("npusim.chips.x", "from npusim.units import Clock", []),
        ("npusim.chips.x", "import numpy\nfrom npusim import errors", []),
        ("npusim.chips.x", "from . import load", []),
        ("npusim.chips.x", "from ..numerics import casts",
         ["npusim.chips.x:1 imports npusim.numerics.casts, which is not below chips"]),
        ("npusim.isa.x", "def f():\n    import npusim.timing.records",
         ["npusim.isa.x:2 imports npusim.timing.records, which is not below isa"]),
        ("npusim.timing.x", "from npusim.ops.common import operator",
         ["npusim.timing.x:1 imports npusim.ops.common.operator, which is not below timing"]),
        ("npusim.api", "import ops.blocks",
         ["npusim.api:1 imports ops.blocks; the name is npusim.ops.blocks"]),
        ("npusim.isa.x", "from npusim import run",
         ["npusim.isa.x:1 imports npusim.run, which is not below isa"]),
    ],
)  # fmt: skip
def test_the_check_itself(tmp_path: Path, module: str, text: str, expected: list[str]) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, "utf-8")
    assert list(violations(module, path)) == expected
