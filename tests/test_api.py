"""The Python interface."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npusim
from npusim.functional.atomics import AtomicRule, Atomics
from npusim.reports.report import read_summary
from npusim.simulate import Mode, RunRequest, resolve, simulate


@pytest.fixture(scope="module")
def result() -> npusim.Result:
    return npusim.run("matmul", case="tiny", engine="simpy")


def test_a_result_has_values_time_and_reasons(result: npusim.Result) -> None:
    assert set(result.outputs) == {"c"}
    assert result.outputs["c"].shape == (64, 64)
    assert result.records is not None
    assert result.time_us == result.records.time_us == result.summary["time_us"]
    assert result.summary["checks"]["values"] == {"c": "equal"}
    assert result.summary["chip"] == "toy"
    assert result.program.executed == len(result.records.start) - 1
    json.dumps(result.summary, allow_nan=False)
    assert repr(result) == f"Result(matmul tiny on toy: {result.time_us:.2f} us)"


def test_save_writes_the_run_folder(result: npusim.Result, tmp_path: Path) -> None:
    folder = result.save(str(tmp_path / "run"))
    assert read_summary(folder)["time_us"] == result.time_us
    assert (folder / "trace.json.gz").exists()


def test_modes(result: npusim.Result) -> None:
    time = npusim.run("matmul", "tiny", mode="time", engine="simpy")
    assert time.outputs == {} and time.time_us == result.time_us
    values = npusim.run("matmul", "tiny", mode=npusim.Mode.VALUES)
    assert values.time_us is None and values.records is None
    np.testing.assert_array_equal(values.outputs["c"], result.outputs["c"])
    assert repr(values) == "Result(matmul tiny on toy: values only)"


def test_inputs_are_taken_and_left_alone(result: npusim.Result) -> None:
    a = np.ones_like(result.inputs["a"])
    b = np.full_like(result.inputs["b"], 0.5)
    kept = a.copy(), b.copy()
    got = npusim.run("matmul", "tiny", inputs={"a": a, "b": b}, mode="values")
    # 128 products of 1 and one half.
    assert (got.outputs["c"].astype(np.float64) == 64).all()
    np.testing.assert_array_equal(a, kept[0])
    np.testing.assert_array_equal(b, kept[1])


def test_params_seed_and_chip_parameters_reach_the_run(result: npusim.Result) -> None:
    params = {"M": 64, "N": 64, "K": 128}
    same = npusim.run("matmul", params=params, chip="toy", engine="simpy")
    assert same.time_us == result.time_us
    other = npusim.run("matmul", params=params, chip="toy", seed=1, mode="values")
    assert (other.outputs["c"] != result.outputs["c"]).any()
    slow = npusim.run(
        "matmul", "tiny", set={"hbm.read_bw_gbps": 4, "hbm.l1_read_bw_gbps": 4}, mode="time",
        engine="simpy",
    )  # fmt: skip
    assert slow.time_us is not None and result.time_us is not None
    assert slow.time_us > result.time_us


def test_warm_is_not_slower_than_cold(result: npusim.Result) -> None:
    warm = npusim.run("matmul", "tiny", l2="warm", mode="time", engine="simpy")
    assert warm.time_us is not None and result.time_us is not None
    assert warm.time_us <= result.time_us
    assert warm.summary["l2"] == "warm"


def test_build_gives_the_program_alone(result: npusim.Result) -> None:
    program = npusim.build("matmul", case="tiny")
    assert isinstance(program, npusim.Program)
    assert program.executed == result.program.executed


def test_chips() -> None:
    chip = npusim.load_chip("A2", set={"hbm.read_bw_gbps": 2000})
    assert (chip.name, chip.hbm.read_bw_gbps) == ("ascend910b2", 2000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "tim"}, "mode 'tim' is unknown (near matches: time)"),
        ({"l2": "hot"}, "l2 'hot' is unknown (known: cold, warm)"),
        ({"engine": "simply"}, "engine 'simply' is unknown (near matches: simpy)"),
        ({"order": "timer"}, "order 'timer' is unknown (near matches: timed)"),
        ({"validity": "wild"}, "validity 'wild' is unknown (near matches: wide)"),
        ({"mode": 3}, "mode 3 is unknown (known: values, time, both)"),
        ({"mode": []}, "mode [] is unknown (known: values, time, both)"),
        ({"seed": -1}, "seed is -1, it must be a whole number from 0 on"),
    ],
)
def test_arguments_that_mean_nothing(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(npusim.ParameterError) as caught:
        npusim.run("matmul", "tiny", **arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_unknown_names_list_what_is_near() -> None:
    with pytest.raises(npusim.ParameterError, match=r"no operator 'matmull'.*matmul"):
        npusim.run("matmull")
    with pytest.raises(npusim.ParameterError, match=r"no case 'tinny' of matmul .*tiny"):
        npusim.run("matmul", "tinny")
    with pytest.raises(npusim.ChipError, match="A9"):
        npusim.run("matmul", "tiny", chip="A9")
    with pytest.raises(npusim.TensorError, match="matmul has no input 'aa'"):
        npusim.run("matmul", "tiny", inputs={"aa": np.zeros(3)})


def test_wrong_dtype_of_an_input() -> None:
    with pytest.raises(npusim.TensorError) as caught:
        npusim.run("matmul", "tiny", inputs={"a": np.zeros((64, 128), dtype=np.float64)})
    assert str(caught.value) == "input a: dtype float64, expected FP16 (float16)"


def test_wrong_shape_of_an_input() -> None:
    with pytest.raises(npusim.TensorError, match=r"\ba\b.*64.*128"):
        npusim.run(
            "matmul", "tiny", inputs={"a": np.zeros((64, 127), dtype=np.float16)}, mode="values"
        )


def test_public_names() -> None:
    assert len(npusim.__all__) <= 25
    assert npusim.__all__ == sorted(npusim.__all__)
    assert all(getattr(npusim, name) is not None for name in npusim.__all__)
    assert set(npusim.__all__) <= set(dir(npusim))
    with pytest.raises(AttributeError, match="module 'npusim' has no attribute 'runn'"):
        npusim.runn  # noqa: B018


def test_importing_is_cheap_until_something_is_used() -> None:
    script = "import sys, npusim; print(sorted(m for m in ('numpy', 'numba') if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_summary_is_json_whatever_the_parameters_are() -> None:
    params = {"B": 0, "kc_scale": float("inf")}
    summary = npusim.run("mla_prolog_v3", params=params, engine="simpy").summary
    assert json.loads(json.dumps(summary, allow_nan=False))["params"]["kc_scale"] == "inf"


def test_adds_in_timed_order_need_no_timed_order_of_the_rest() -> None:
    atomics = Atomics(AtomicRule.TIMED)
    run = simulate(resolve(RunRequest(op="copy", case="tiny", mode=Mode.VALUES, atomics=atomics)))
    assert run.differing == {"y": 0}


def test_tensors_beyond_the_memory_are_refused() -> None:
    with pytest.raises(npusim.CapacityError) as caught:
        npusim.run("matmul", params={"M": 2**20, "N": 2**20, "K": 64, "dtype": "fp16"}, mode="time")
    assert str(caught.value) == (
        "matmul: the tensors take 2,048.2 GiB, chip ascend910b2 has 64 GiB; use smaller ones"
    )


def test_a_scalar_beyond_its_type_becomes_infinite_without_a_warning() -> None:
    params = {"op": "adds", "scalar": 1e300, "dtype": "fp16", "rows": 2, "cols": 64}
    r = npusim.run("elementwise", params=params, mode="values")
    assert np.isposinf(r.outputs["z"].astype(np.float64)).all()
    assert r.summary["checks"]["values"] == {"z": "equal"}
