"""The command line as a user meets it: output, JSON, and mistakes in one line."""

import json

import numpy as np
import pytest

from npusim.cli.main import run_command


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mistake(capsys, *arguments: str) -> str:
    """The one line of a user's mistake."""
    assert run_command(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("npusim: ").rstrip("\n")


MISTAKES = {
    ("run", "mla_prolog"): "no operator 'mla_prolog'; near matches: mla_prolog_v3",
    ("run", "mla_prolog_v3", "--case", "seed_a2"): (
        "no case 'seed_a2' of mla_prolog_v3 (near matches: seed_a2_int8)"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--chip", "ascend910b9"): (
        "no chip 'ascend910b9' (near matches: ascend910b4, ascend910b3, ascend910b2)"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "-p", "N=3"): (
        "mla_prolog_v3: N = 3: must be one of 1, 2, 4, 8, 16, 32, 64, 128 (--validity wide "
        "admits 1 to 128) [ACLNN_ERR_INNER_TILING_ERROR 561002]"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--inputs", "nowhere"): (
        "input folder nowhere does not exist"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--set", "hbm.read=3"): (
        "chip 'ascend910b2' has no parameter 'hbm.read' (near matches: hbm.read_bw_gbps)"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--chip", "950"): (
        "chip 'ascend950pr_9589' cannot run: the machine of architecture 3510 is not modelled "
        "yet, and no time for it would mean anything; choose a chip of architecture 2201, such "
        "as A2 or A3"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--mode", "tim"): (
        "--mode 'tim' is unknown (near matches: time)"
    ),
    ("run", "mla_prolog_v3", "-p", "B"): "-p 'B': expected name=value",
    ("run", "mla_prolog_v3", "-p", "B=1", "-p", "B=2"): "-p B is given twice",
    ("run", "mla_prolog_v3", "--case", "tiny", "--tiling", "none.toml"): (
        "--tiling none.toml: No such file or directory"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--cores", "0,99"): (
        "--cores '0,99': core numbers are 0 to 71"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--window", "5us"): (
        "--window '5us': expected FIRST:LAST in us, like 0:50us"
    ),
    ("run", "mla_prolog_v3", "--case", "tiny", "--window", "0:inf"): (
        "--window '0:inf': expected FIRST:LAST in us, like 0:50us"
    ),
    ("run",): "Missing argument 'op'.",
    ("rum",): "No such command 'rum'. Did you mean 'run'?",
    ("cases", "elementwize"): "no operator 'elementwize'; near matches: elementwise",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_and_leaves_nothing(arguments, capsys, empty_folder):
    assert mistake(capsys, *arguments) == MISTAKES[arguments]
    assert list(empty_folder.iterdir()) == []


def test_a_wrong_tensor_file_is_refused_before_the_run(capsys, empty_folder):
    folder = empty_folder / "inputs"
    folder.mkdir()
    np.save(folder / "token_x.npy", np.zeros((1, 1, 1024), dtype=np.float64))
    message = mistake(capsys, "run", "mla_prolog_v3", "--case", "tiny", "--inputs", "inputs")
    assert message == (
        "tensor token_x in inputs/token_x.npy: dtype float64, expected BF16 (bfloat16, or its "
        "bit pattern in uint16)"
    )
    assert not (empty_folder / "out").exists()


def test_a_file_where_the_run_folder_should_be(capsys, empty_folder):
    (empty_folder / "taken").write_text("mine")
    arguments = ("run", "mla_prolog_v3", "--case", "tiny", "--out", "taken")
    assert "taken" in mistake(capsys, *arguments)
    assert (empty_folder / "taken").read_text() == "mine"


def test_a_run_writes_its_folder_and_prints_only_json(capsys, empty_folder):
    arguments = ["run", "mla_prolog_v3", "--case", "tiny", "--engine", "simpy", "--json"]
    assert run_command(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert set(summary["checks"]["values"].values()) == {"equal"}
    assert summary["checks"]["trace"] == "valid"
    assert summary["time_us"] > summary["kernel_us"] > 0
    (folder,) = (empty_folder / "out").iterdir()
    names = {p.name for p in folder.iterdir()}
    assert {"summary.json", "trace.json.gz", "gantt.png", "bandwidth.png", "roofline.png",
            "outputs"} <= names  # fmt: skip
    assert json.loads((folder / "summary.json").read_text()) == summary


def test_the_same_run_twice_gives_the_same_bytes(capsys, empty_folder):
    for name in ("a", "b"):
        arguments = ["run", "copy", "-p", "rows=64", "-p", "cols=256", "--engine", "simpy"]
        assert run_command([*arguments, "--out", name]) == 0
    first = empty_folder / "a"
    files = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert files
    for file in files:
        assert (empty_folder / "a" / file).read_bytes() == (empty_folder / "b" / file).read_bytes()


@pytest.mark.parametrize("order", ["timed", "both"])
def test_timed_order_gives_the_reference_too(order, capsys):
    arguments = ["run", "mla_prolog_v3", "--case", "tiny_int8", "--order", order, "--json"]
    assert run_command([*arguments, "--engine", "simpy"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert set(checks["values"].values()) == {"equal"}
    if order == "both":
        assert checks["orders"] == checks["values"]


@pytest.mark.parametrize("verb", [["ops"], ["cases", "mla_prolog_v3"], ["chips"]], ids=" ".join)
def test_listings(verb, capsys):
    assert run_command([*verb, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert all(entry["name"] for entry in entries)
    assert run_command(verb) == 0
    assert entries[0]["name"][:20] in capsys.readouterr().out


def test_a_chip_shows_its_sources_and_what_is_inferred(capsys):
    assert run_command(["chips", "A2"]) == 0
    text = capsys.readouterr().out
    assert "hbm.read_bw_gbps" in text and "1490" in text
    assert "* queue.depth_mte2" in text


def test_selftest_passes(capsys):
    assert run_command(["selftest", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert len(files) == 23
    assert sum(f["differ"] for f in files) == 0
    assert all(f["equal"] for f in files)


def test_spread_and_atomics(capsys):
    arguments = ["run", "mla_prolog_v3", "--case", "tiny", "--mode", "time", "--engine", "simpy"]
    more = ["--spread", "2", "--atomics", "shuffle:3", "--sanitize", "--json"]
    assert run_command([*arguments, *more]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["checks"]["sanitizer"]["findings"] == []
    assert len(summary["spread_us"]) == 2
    # An offset of at most 0.5 us cannot move the end by more than what it delays and reorders.
    assert all(abs(t - summary["time_us"]) < 1.0 for t in summary["spread_us"])
