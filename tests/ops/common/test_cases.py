"""Case files: schema, messages, and that every shipped case builds."""

from pathlib import Path

import pytest

from npusim.errors import ParameterError
from npusim.ops.common.cases import load_cases


def write(folder: Path, text: str) -> Path:
    path = folder / "cases.toml"
    path.write_text(text)
    return path


def test_a_case(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[cases.one]\nchip = "toy"\nl2 = "warm"\n[cases.one.params]\nM = 3\n'
        '[cases.two]\nchip = "A2"\nmode = "time"\nnote = "n"\n',
    )
    cases = load_cases(path)
    assert list(cases) == ["one", "two"]
    assert (cases["one"].mode, cases["one"].l2, cases["one"].params) == ("both", "warm", {"M": 3})
    assert (cases["two"].mode, cases["two"].l2, cases["two"].note) == ("time", "cold", "n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[cases.a]\nchips = "toy"\n', "cases.a.chip: Field required"),
        (
            '[cases.a]\nchip = "toy"\nl2 = "hot"\n',
            "cases.a.l2: Input should be 'cold' or 'warm'",
        ),
        ('[case.a]\nchip = "toy"\n', "cases: Field required"),
        ("[cases", "Expected ']' at the end of a table declaration (at end of document)"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ParameterError) as caught:
        load_cases(path)
    assert str(caught.value) == f"cases file {path}: {message}"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ParameterError) as caught:
        load_cases(tmp_path / "none.toml")
    assert str(caught.value) == f"cases file {tmp_path / 'none.toml'}: No such file or directory"
