"""Tensors on disk: a folder with ``manifest.json`` and one ``.npy`` for each tensor.

The manifest lists name, dtype, shape, layout and file. Types numpy cannot reload (bf16, fp8,
HiFloat8, 4-bit) are stored as their bit patterns in unsigned integers. Raw ``.bin`` files, as
Ascend C samples write them, are read and written too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from npusim.errors import TensorError
from npusim.numerics.formats import DType

MANIFEST = "manifest.json"
_NATIVE = frozenset("biuf")


@dataclass(frozen=True)
class TensorFile:
    """What a manifest says of one tensor, and what a reader asks for."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: str = "ND"


def write_tensors(
    folder: Path, tensors: Mapping[str, tuple[TensorFile, np.ndarray]], *, raw: bool = False
) -> None:
    """Write tensors and their manifest into a folder that exists.

    Args:
        tensors: by name: description and array in the dtype's numpy storage.
        raw: write ``.bin`` files instead of ``.npy``.
    """
    entries = []
    for name, (about, array) in tensors.items():
        file = f"{name}.bin" if raw else f"{name}.npy"
        bits = _bit_pattern(array)
        if raw:
            bits.tofile(folder / file)
        else:
            np.save(folder / file, bits, allow_pickle=False)
        entries.append(
            {
                "name": name,
                "dtype": about.dtype.name,
                "shape": list(array.shape),
                "layout": about.layout,
                "file": file,
            }
        )
    text = json.dumps({"schema": "npusim tensors v1", "tensors": entries}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", "utf-8")


def read_tensors(folder: Path, wanted: Mapping[str, DType]) -> dict[str, np.ndarray]:
    """Read tensors by name.

    Without a manifest, ``NAME.npy`` is looked for, then ``NAME.bin`` (a flat array).

    Args:
        wanted: element type of each tensor to read; tensors that are not there are left out.

    Returns:
        arrays in the dtype's numpy storage.

    Raises:
        TensorError: the folder, a file or a manifest cannot be read, or a dtype differs.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise TensorError(f"input folder {folder} {what}")
    manifest = _read_manifest(folder)
    found: dict[str, np.ndarray] = {}
    for name, dtype in wanted.items():
        entry = manifest.get(name)
        path = folder / entry["file"] if entry else _by_name(folder, name)
        if path is None:
            continue
        if entry and entry["dtype"] != dtype.name:
            raise TensorError(
                f"tensor {name} in {folder}: dtype {entry['dtype']}, expected {dtype.name}"
            )
        array = _read_array(path, name, dtype)
        found[name] = _shaped(array, entry["shape"], name, path) if entry else array
    return found


def _bit_pattern(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in _NATIVE and array.dtype.isbuiltin == 1:
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _by_name(folder: Path, name: str) -> Path | None:
    for suffix in (".npy", ".bin"):
        path = folder / f"{name}{suffix}"
        if path.exists():
            return path
    return None


def _read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / MANIFEST
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text("utf-8"))["tensors"]
        return {
            entry["name"]: {
                "dtype": entry["dtype"],
                "shape": [int(n) for n in entry["shape"]],
                "file": Path(entry["file"]),
            }
            for entry in entries
        }
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise TensorError(
            f"{path}: not a tensor manifest ({error!r}); it needs a list 'tensors' with name, "
            "dtype, shape and file"
        ) from None


def _shaped(array: np.ndarray, shape: list[int], name: str, path: Path) -> np.ndarray:
    """The array in the shape that the manifest gives it."""
    if min(shape, default=0) < 0 or array.size != prod(shape):
        raise TensorError(
            f"tensor {name} in {path}: {array.size} elements, but the manifest says shape "
            f"{tuple(shape)}"
        )
    return array.reshape(shape)


def _read_array(path: Path, name: str, dtype: DType) -> np.ndarray:
    try:
        if path.suffix == ".bin":
            size = path.stat().st_size
            if size % dtype.size_bytes:
                raise TensorError(
                    f"tensor {name} in {path}: {size} bytes are not a whole number of "
                    f"{dtype.name} elements"
                )
            array = np.fromfile(path, dtype=f"u{dtype.size_bytes}")
        else:
            with path.open("rb") as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise TensorError(f"tensor {name}: cannot read {path} ({error})") from None
    if array.dtype == dtype.numpy:
        return array
    if array.dtype.kind in "uV" and array.dtype.itemsize == dtype.size_bytes:
        return np.ascontiguousarray(array).view(dtype.numpy)
    raise TensorError(
        f"tensor {name} in {path}: dtype {array.dtype}, expected {dtype.name} "
        f"({dtype.numpy}, or its bit pattern in uint{8 * dtype.size_bytes})"
    )
