"""Folders of tensors: manifest, npy and raw files, and the mistakes they can hold."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npusim.errors import TensorError
from npusim.numerics.formats import DType
from npusim.tensor_files import TensorFile, read_tensors, write_tensors


def array_of(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Every bit pattern may occur, NaNs included."""
    count = int(np.prod(shape))
    bits = np.random.Generator(np.random.PCG64(seed)).bytes(count * dtype.size_bytes)
    return np.frombuffer(bits, dtype=f"u{dtype.size_bytes}").view(dtype.numpy).reshape(shape)


def about(name: str, dtype: DType, shape: tuple[int, ...]) -> TensorFile:
    return TensorFile(name, dtype, shape)


@pytest.mark.parametrize("raw", [False, True], ids=["npy", "bin"])
@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_every_type_comes_back_bit_for_bit(tmp_path: Path, dtype: DType, raw: bool) -> None:
    array = array_of(dtype, (3, 5, 2))
    write_tensors(tmp_path, {"t": (about("t", dtype, array.shape), array)}, raw=raw)
    found = read_tensors(tmp_path, {"t": dtype})["t"]
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert (tmp_path / ("t.bin" if raw else "t.npy")).exists()


@given(hnp.array_shapes(min_dims=0, max_dims=4, max_side=5), st.integers(0, 2**32))
def test_any_shape(shape: tuple[int, ...], seed: int) -> None:
    array = array_of(DType.BF16, shape, seed)
    with tempfile.TemporaryDirectory() as name:
        write_tensors(Path(name), {"t": (about("t", DType.BF16, shape), array)})
        found = read_tensors(Path(name), {"t": DType.BF16})["t"]
    assert found.shape == shape and found.tobytes() == array.tobytes()


def test_the_manifest_says_what_there_is(tmp_path: Path) -> None:
    array = array_of(DType.BF16, (2, 3))
    tensor = TensorFile("w", DType.BF16, (2, 3), layout="FRACTAL_NZ")
    write_tensors(tmp_path, {"w": (tensor, array)})
    assert json.loads((tmp_path / "manifest.json").read_text("utf-8")) == {
        "schema": "npusim tensors v1",
        "tensors": [
            {"name": "w", "dtype": "BF16", "shape": [2, 3], "layout": "FRACTAL_NZ",
             "file": "w.npy"}
        ],
    }  # fmt: skip
    # numpy alone can read it: the bit pattern.
    assert np.load(tmp_path / "w.npy").dtype == np.uint16


def test_a_view_is_written_in_its_own_order(tmp_path: Path) -> None:
    array = array_of(DType.BF16, (4, 6)).T[::2]
    write_tensors(tmp_path, {"t": (about("t", DType.BF16, array.shape), array)}, raw=True)
    found = read_tensors(tmp_path, {"t": DType.BF16})["t"]
    np.testing.assert_array_equal(found.view("u2"), array.view("u2"))


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    assert read_tensors(tmp_path, {"t": DType.FP16}) == {}


def test_without_a_manifest_names_decide(tmp_path: Path) -> None:
    array = array_of(DType.INT8, (4,))
    array.tofile(tmp_path / "raw.bin")
    np.save(tmp_path / "plain.npy", array.reshape(2, 2))
    found = read_tensors(tmp_path, {"raw": DType.INT8, "plain": DType.INT8})
    assert found["raw"].shape == (4,) and found["plain"].shape == (2, 2)


def write_manifest(folder: Path, **changes: object) -> None:
    entry = {"name": "t", "dtype": "FP16", "shape": [2, 2], "layout": "ND", "file": "t.npy"}
    text = json.dumps({"schema": "npusim tensors v1", "tensors": [{**entry, **changes}]})
    (folder / "manifest.json").write_text(text, "utf-8")


def message(folder: Path, dtype: DType = DType.FP16) -> str:
    with pytest.raises(TensorError) as caught:
        read_tensors(folder, {"t": dtype})
    return str(caught.value)


def test_a_missing_folder(tmp_path: Path) -> None:
    assert message(tmp_path / "no") == f"input folder {tmp_path / 'no'} does not exist"


def test_a_dtype_that_is_not_wanted(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    np.save(tmp_path / "t.npy", np.zeros((2, 2), np.float16))
    assert message(tmp_path, DType.BF16) == (f"tensor t in {tmp_path}: dtype FP16, expected BF16")


def test_a_file_of_another_dtype(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.zeros((2, 2), np.float32))
    assert message(tmp_path) == (
        f"tensor t in {tmp_path / 't.npy'}: dtype float32, expected FP16 "
        "(float16, or its bit pattern in uint16)"
    )


def test_a_file_that_the_manifest_names_and_nobody_wrote(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    assert message(tmp_path).startswith(f"tensor t: cannot read {tmp_path / 't.npy'} (")


def test_a_shape_that_does_not_fit_the_file(tmp_path: Path) -> None:
    write_manifest(tmp_path, shape=[3, 2])
    np.save(tmp_path / "t.npy", np.zeros((2, 2), np.float16))
    assert message(tmp_path) == (
        f"tensor t in {tmp_path / 't.npy'}: 4 elements, but the manifest says shape (3, 2)"
    )


def test_a_raw_file_of_odd_length(tmp_path: Path) -> None:
    (tmp_path / "t.bin").write_bytes(b"123")
    assert message(tmp_path) == (
        f"tensor t in {tmp_path / 't.bin'}: 3 bytes are not a whole number of FP16 elements"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"tensors": 3}',
        '{"tensors": [{"name": "t"}]}',
        '{"tensors": [{"name": "t", "dtype": "FP16", "shape": [2], "file": 5}]}',
        '{"tensors": [{"name": "t", "dtype": "FP16", "shape": [Infinity], "file": "t.npy"}]}',
    ],
)
def test_a_malformed_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, "utf-8")
    found = message(tmp_path)
    assert found.startswith(f"{tmp_path / 'manifest.json'}: not a tensor manifest (")
    assert found.endswith("); it needs a list 'tensors' with name, dtype, shape and file")


def test_no_pickles(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert message(tmp_path).startswith(f"tensor t: cannot read {tmp_path / 't.npy'} (")


def test_what_only_looks_like_an_array_file(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    with path.open("wb") as file:
        np.savez(file, t=np.zeros(2, np.float16))
    archive = path.read_bytes()
    for content in (b"", archive[:4], archive):
        path.write_bytes(content)
        assert message(tmp_path).startswith(f"tensor t: cannot read {path} (")
