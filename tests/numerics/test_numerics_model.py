"""NumericsModel: defaults, overrides, assumptions, and the table of docs/numerics.md."""

import copy
import pickle
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel, parameters
from npusim.numerics.parameter import shown
from npusim.numerics.parameter_table import parameter_table
from npusim.numerics.settings import Basis, CubeAccumulation

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)


def test_architectures_differ_where_the_machines_do() -> None:
    different = {p.name for p in parameters() if A2.value(p.name) != A5.value(p.name)}
    assert different == {
        "hf32_bits",
        "castdequant_intermediate",
        "int32_to_fp16",
        "integer_overflow",
        "fma",
        "function_ftz",
        "f32_f32_negzero",
    }


def test_every_parameter_explains_itself() -> None:
    for p in parameters():
        assert p.meaning and p.source and isinstance(p.basis, Basis)
        assert set(p.defaults) == set(Architecture)
        default = p.defaults[Architecture.A2201]
        if isinstance(default, Enum):
            others = {str(e.value) for e in type(default)} - {str(default.value)}
            assert set(p.alternatives) == others
        else:
            assert p.alternatives


def test_every_value_of_every_choice_can_be_set() -> None:
    for p in parameters():
        default = p.defaults[Architecture.A2201]
        if isinstance(default, Enum):
            for choice in type(default):
                assert A2.override({p.name: str(choice.value)}).value(p.name) is choice
        elif isinstance(default, bool):
            assert A2.override({p.name: "True"}).value(p.name) is True
            assert A2.override({p.name: "false"}).value(p.name) is False
    assert A2.override({"cube_group": "8"}).override({"cube_group": "none"}) == A2


def test_overriding_leaves_the_original_alone() -> None:
    other = A2.override({"cube_accum": "seq_fma"})
    assert other.cube_accum is CubeAccumulation.SEQ_FMA
    assert A2.cube_accum is CubeAccumulation.GROUP_EXACT_PLUS_C
    assert other != A2 and other == NumericsModel.default(
        Architecture.A2201, cube_accum=CubeAccumulation.SEQ_FMA
    )
    assert hash(A2) == hash(NumericsModel.default(Architecture.A2201))


def test_assumptions_mark_what_was_changed() -> None:
    listed = A2.override({"cube_accum": "seq_fma"}).assumptions()
    assert [a.name for a in listed] == [p.name for p in parameters()]
    changed = [(a.name, a.value) for a in listed if not a.is_default]
    assert changed == [("cube_accum", "seq_fma")]
    assert all(a.is_default for a in A5.assumptions())
    first = listed[0]
    assert first.basis is Basis.INFERRED and "not published" in first.source


def test_models_copy_and_pickle_without_their_routines() -> None:
    model = NumericsModel.default(Architecture.A2201)
    cast(np.float32([1.5]), DType.BF16, model=model)
    assert model.compiled
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert other == model and not other.compiled
        assert cast(np.float32([1.5]), DType.BF16, model=other).tolist() == [1.5]


def test_a_changed_model_does_not_reuse_routines() -> None:
    model = NumericsModel.default(Architecture.A2201)
    x = np.float32([1e9])
    assert cast(x, DType.FP16, model=model).tolist() == [np.inf]
    assert cast(x, DType.FP16, model=model.override({"overflow_mode": "saturate"})) == 65504


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"cube_accun": "x"},
            "numerics parameter 'cube_accun' does not exist; near matches: cube_accum, cube_group",
        ),
        ({"fma": "2"}, "numerics parameter 'fma' cannot be '2'; it takes: true, false"),
        (
            {"cube_group": "x"},
            "numerics parameter 'cube_group' cannot be 'x'; it takes: none, an integer",
        ),
        (
            {"overflow_mode": "clip"},
            "numerics parameter 'overflow_mode' cannot be 'clip'; it takes: inf_nan, saturate",
        ),
        ({"cube_group": "0"}, "cube_group must be at least 1, got 0"),
        ({"hf32_bits": "23"}, "hf32_bits must be in [1, 22], got 23"),
        ({"fixpipe_shift_bias": "2"}, "fixpipe_shift_bias must be 0 or 1, got 2"),
    ],
)
def test_bad_settings(settings: dict[str, str], message: str) -> None:
    with pytest.raises(NumericsError) as error:
        A2.override(settings)
    assert str(error.value) == message


def test_unknown_names_are_refused_everywhere() -> None:
    with pytest.raises(NumericsError, match="numerics parameter 'nan_bit' does not exist"):
        NumericsModel.default(Architecture.A2201, nan_bit=1)
    with pytest.raises(NumericsError, match="near matches: nan_bits"):
        A2.value("nan_bit")


def test_values_are_shown_as_text() -> None:
    assert [shown(v) for v in (CubeAccumulation.SEQ_FMA, None, 11, True)] == [
        "seq_fma",
        "None",
        "11",
        "True",
    ]


def test_the_documented_table_is_the_real_one(repository: Path) -> None:
    page = (repository / "docs" / "numerics.md").read_text(encoding="utf-8")
    begin = "<!-- parameters: python -m npusim.numerics.parameter_table -->\n"
    end = "\n<!-- end of parameters -->"
    assert page.split(begin)[1].split(end)[0] == parameter_table()
