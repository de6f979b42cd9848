"""``npusim report`` and ``npusim diff``, as a user runs them."""

import json
from pathlib import Path

import pytest

import npusim
from npusim.cli.main import run_command


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same small run on two memories."""
    root = tmp_path_factory.mktemp("runs")
    paths = []
    for name, rate in (("fast", 32), ("slow", 4)):
        result = npusim.run(
            "matmul", "tiny", mode="time", engine="simpy",
            set={"hbm.read_bw_gbps": rate, "hbm.l1_read_bw_gbps": rate},
        )  # fmt: skip
        paths.append(str(result.save(root / name)))
    return paths[0], paths[1]


def test_report_prints_and_redraws(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    picture = Path(folders[0]) / "gantt.png"
    before = picture.read_bytes()
    picture.unlink()
    assert run_command(["report", folders[0]]) == 0
    out = capsys.readouterr().out
    assert "matmul tiny on toy" in out and "trace: valid" in out
    assert "more in summary.json" not in out
    assert picture.read_bytes() == before


def test_report_as_json_is_the_file(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", folders[0], "--json"]) == 0
    written = (Path(folders[0]) / "summary.json").read_text("utf-8")
    assert json.loads(capsys.readouterr().out) == json.loads(written)


def test_diff_names_what_changed(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["diff", *folders, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"time_us", "stages", "pipes", "verdict"} <= set(found)
    fast, slow = found["time_us"]
    assert fast < slow
    assert {s["name"] for s in found["settings"]} == {"hbm.read_bw_gbps", "hbm.l1_read_bw_gbps"}
    assert run_command(["diff", *folders]) == 0
    assert f"times as long: {slow:.2f} us against {fast:.2f} us" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [["report"], ["diff"]])
def test_no_run_folder_is_a_user_mistake(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*verb, *[str(tmp_path)] * (2 if verb == ["diff"] else 1)]
    assert run_command(arguments) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err == f"npusim: {tmp_path} is not a run folder: it has no summary.json\n"


def test_diff_names_knobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rows in (2, 4):
        result = npusim.run("copy", "tiny", mode="time", engine="simpy", tiling={"tile_rows": rows})
        assert result.summary["tiling"]["tile_rows"] == rows
        result.save(tmp_path / str(rows))
    assert run_command(["diff", str(tmp_path / "2"), str(tmp_path / "4"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == [
        {"name": "knob tile_rows", "a": 2, "b": 4}
    ]
