"""The run folder: what it holds, that it is the same each time, and that it is all or nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusim.errors import ParameterError
from npusim.reports import folder as folder_module
from npusim.reports.folder import default_folder, require_writable, write_run
from npusim.simulate import Mode, Run, RunRequest, resolve
from npusim.summary import summarise
from npusim.tensor_files import read_tensors
from npusim.timing.options import CacheState, Level
from npusim.traces.check import check_trace, moved_bytes
from npusim.traces.chrome import TraceFilter

Runs = Callable[..., Run]
PIPES = ("mte1", "mte2", "mte3", "cube", "fixp", "vector", "scalar")


@pytest.fixture
def tiny(run_of: Runs) -> Run:
    return run_of("matmul", "tiny", Mode.BOTH)


@pytest.fixture
def plain(run_of: Runs) -> Run:
    """A run without pictures, which take most of the time of writing."""
    return run_of("matmul", "tiny", Mode.VALUES)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def write(run: Run, folder: Path, **more: Any) -> dict[str, Any]:
    return write_run(run, summarise(run), folder, **more)


def test_what_lies_in_it(tiny: Run, tmp_path: Path) -> None:
    summary = write(tiny, tmp_path / "run")
    assert sorted(files(tmp_path / "run")) == [
        "bandwidth.png",
        "gantt.png",
        "outputs/c.npy",
        "outputs/manifest.json",
        "pictures.json",
        "roofline.png",
        "summary.json",
        "trace.json.gz",
    ]
    assert json.loads((tmp_path / "run" / "summary.json").read_text("utf-8")) == summary
    assert summary["checks"] == {
        "values": {"c": "equal"},
        "orders": None,
        "sanitizer": None,
        "trace": "valid",
    }
    report = check_trace(tmp_path / "run" / "trace.json.gz", moved_bytes(tiny.program))
    assert report.valid
    assert summary["trace"] == {
        "slices": report.slices, "flows": report.flows, "counters": report.counters,
    }  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_outputs_read_back_bit_for_bit(plain: Run, tmp_path: Path) -> None:
    write(plain, tmp_path / "run")
    specs = {t.name: t.dtype for t in plain.job.operator.tensors(plain.job.params)}
    found = read_tensors(tmp_path / "run" / "outputs", specs)
    assert set(found) == set(plain.outputs) == {"c"}
    assert found["c"].dtype == plain.outputs["c"].dtype
    np.testing.assert_array_equal(found["c"].view("u1"), plain.outputs["c"].view("u1"))


def test_same_run_same_bytes(tiny: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tiny, tmp_path / name)
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert one == two
    for name in ("gantt.png", "bandwidth.png", "roofline.png"):
        assert one[name].startswith(b"\x89PNG")
        assert not any(word in one[name] for word in (b"Software", b"tIME", b"Creation"))


def test_a_values_only_run_has_no_pictures(run_of: Runs, tmp_path: Path) -> None:
    summary = write(run_of("matmul", "tiny", Mode.VALUES), tmp_path / "run")
    assert sorted(files(tmp_path / "run")) == [
        "outputs/c.npy", "outputs/manifest.json", "pictures.json", "summary.json",
    ]  # fmt: skip
    assert summary["checks"]["trace"] is None


def test_a_run_that_kept_less_has_the_roofline_only(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("matmul", "tiny", Mode.TIME, Level.SUMMARY)
    summary = write(run, tmp_path / "run")
    assert sorted(files(tmp_path / "run")) == ["pictures.json", "roofline.png", "summary.json"]
    assert summary["checks"] == {"values": None, "orders": None, "sanitizer": None, "trace": None}


def test_the_summary_given_is_not_changed(plain: Run, tmp_path: Path) -> None:
    before = summarise(plain)
    write_run(plain, before, tmp_path / "run")
    assert before == summarise(plain)


def test_a_filter_reaches_the_trace(
    tiny: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "draw_pictures", lambda *_: [])
    whole = write(tiny, tmp_path / "whole")
    part = write(tiny, tmp_path / "part", choose=TraceFilter(window_cycles=(0, 200)))
    assert 0 < part["trace"]["slices"] < whole["trace"]["slices"]
    assert part["checks"]["trace"] == "valid"


def test_an_earlier_run_is_replaced(run_of: Runs, plain: Run, tmp_path: Path) -> None:
    write(plain, tmp_path / "run")
    write(run_of("matmul", "tiny", Mode.TIME, Level.SUMMARY), tmp_path / "run")
    assert not (tmp_path / "run" / "outputs").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_is_taken(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "deep" / "run").mkdir(parents=True)
    write(plain, tmp_path / "deep" / "run")
    assert (tmp_path / "deep" / "run" / "summary.json").exists()


@pytest.mark.parametrize("name", ["notes.txt", "summary.json"])
def test_anything_else_is_left_alone(plain: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text('{"schema": "other"}', "utf-8")
    expected = (
        f"output folder {tmp_path / 'mine'} holds something other than a run (no summary.json of "
        "one) and is left alone; choose another with --out"
    )
    for call in (
        lambda: write(plain, tmp_path / "mine"),
        lambda: require_writable(tmp_path / "mine"),
    ):
        with pytest.raises(ParameterError) as caught:
            call()
        assert str(caught.value) == expected
    assert [p.name for p in (tmp_path / "mine").iterdir()] == [name]


def test_a_file_is_no_folder(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(ParameterError) as caught:
        write(plain, tmp_path / "file")
    assert str(caught.value) == (
        f"output folder {tmp_path / 'file'} is not a folder; choose another with --out"
    )


def test_an_unwritable_place_is_one_line(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    place = tmp_path / "file" / "run"
    for call in (lambda: write(plain, place), lambda: require_writable(place)):
        with pytest.raises(ParameterError) as caught:
            call()
        assert str(caught.value) == (
            f"output folder {place} cannot be written (not a directory); choose another with --out"
        )


def test_require_writable_leaves_nothing_behind(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b" / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_nothing_half_written_is_left(
    plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    write(plain, tmp_path / "run")
    before = files(tmp_path)

    def fail(*_: object) -> None:
        raise error

    # The last thing to be written, with everything else in place.
    monkeypatch.setattr(folder_module, "_write_outputs", fail)
    expected = type(error) if isinstance(error, KeyboardInterrupt) else ParameterError
    for name in ("run", "new", "deep/er/new"):
        with pytest.raises(expected) as caught:
            write(plain, tmp_path / name)
        if expected is ParameterError:
            assert str(caught.value) == (
                f"output folder {tmp_path / name} cannot be written (no space left on device); "
                "choose another with --out"
            )
    assert files(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_failed_last_step_brings_the_old_run_back(
    plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(plain, tmp_path / "run")
    before = files(tmp_path)
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ParameterError, match="permission denied"):
        write(plain, tmp_path / "run")
    assert files(tmp_path) == before


def test_the_default_name_says_what_ran() -> None:
    def name(**request: Any) -> str:
        return str(default_folder(resolve(RunRequest(**request))))

    assert name(op="matmul", case="tiny") == "out/matmul-tiny-toy"
    assert name(op="matmul", case="tiny", chip="A2") == "out/matmul-tiny-ascend910b2"
    assert name(op="matmul", params={"M": 64, "N": 32, "K": 16, "dtype": "bf16"}) == (
        "out/matmul-M64-N32-K16-dtypebf16-ascend910b2"
    )


def test_runs_to_compare_have_folders_of_their_own() -> None:
    def name(**request: Any) -> str:
        return str(default_folder(resolve(RunRequest(op="copy", case="tiny", **request))))

    assert name(mode=Mode.TIME, l2=CacheState.WARM) == "out/copy-tiny-toy-time-warm"
    assert name(chip_set={"hbm.read_bw_gbps": 9.5}) == "out/copy-tiny-toy-hbm.read_bw_gbps9.5"
    assert name(tiling={"tile_rows": 2}, seed=3) == "out/copy-tiny-toy-tile_rows2-seed3"
    assert name(numerics={"fma": "true"}) == "out/copy-tiny-toy-fmatrue"
    long = [name(chip_set={f"queue.depth_{p}": n for p in PIPES}) for n in (4, 5)]
    assert long[0] != long[1]
    assert all(len(n) <= len("out/") + 120 + 1 + 8 for n in long)
