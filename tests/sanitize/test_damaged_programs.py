"""Printed programs that somebody damaged: findings or one line, never a crash."""

import random
import re
from pathlib import Path

import pytest
from small_programs import double_program

import npusim
from npusim.cli.main import run_command
from npusim.errors import ProgramError
from npusim.isa.parser import parse_program
from npusim.isa.printer import print_program

WORDS = ("-1", "9" * 24, "x", "", "=", "nan", "GM", "1.5", "(", "[", "UB", "0", "CUBE")
NUMBERS = (0, 1, 7, 15, 16, 100, 255, 2**31, 2**63, 10**30)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Programs of vector cores, of the cube, and of both with flags between them."""
    built = [npusim.build(op, case="tiny") for op in ("matmul", "quant_matmul")]
    return [print_program(p) for p in (double_program(), *built)]


def damage(lines: list[str], rng: random.Random) -> list[str]:
    """One line deleted, repeated, cut, or with another word or number in it."""
    i = rng.randrange(len(lines))
    line = lines[i]
    numbers = list(re.finditer(r"\d+", line))
    choice = rng.randrange(6)
    if choice == 0:
        return lines[:i] + lines[i + 1 :]
    if choice == 1:
        return [*lines[:i], rng.choice(lines), *lines[i:]]
    if choice == 2:
        return [*lines[:i], line[: rng.randrange(len(line) + 1)], *lines[i + 1 :]]
    if choice == 3:
        words = line.split(" ")
        words[rng.randrange(len(words))] = rng.choice(WORDS)
        return [*lines[:i], " ".join(words), *lines[i + 1 :]]
    if choice == 4 and numbers:
        number = rng.choice(numbers)
        text = f"{line[: number.start()]}{rng.choice(NUMBERS)}{line[number.end() :]}"
        return [*lines[:i], text, *lines[i + 1 :]]
    return lines[: i + 1]


@pytest.mark.parametrize("seed", range(60))
def test_check_survives(
    seed: int, texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(seed)
    lines = texts[seed % len(texts)].split("\n")
    for _ in range(rng.randint(1, 3)):
        lines = damage(lines, rng)
    file = tmp_path / "program.txt"
    file.write_text("\n".join(lines))
    status = run_command(["check", str(file), "--chip", "toy"])
    caught = capsys.readouterr()
    assert status in (0, 1, 2)
    assert caught.err.count("\n") == (1 if status == 2 else 0)


def test_a_flag_of_a_pipe_that_does_not_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = print_program(double_program())
    file = tmp_path / "program.txt"
    for old, new, message in (
        ("dst_pipe=6", "dst_pipe=255", "dst_pipe is 255"),
        ("dst_pipe=6", "dst_pipe=4", "dst_pipe is CUBE"),
        ("SET_FLAG MTE2 ", "SET_FLAG MTE3 ", "src_pipe is MTE2"),
    ):
        assert old in text
        file.write_text(text.replace(old, new))
        assert run_command(["check", str(file), "--chip", "toy"]) == 1
        out = capsys.readouterr().out
        assert "error: illegal: " in out and f"): {message}" in out


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("cores 1 2", "cores 1 99999999", "99999999 is beyond 4096"),
        ("x=0", f"x={2**50}", f"{2**50} is beyond {2**48}"),
    ],
)
def test_numbers_that_no_program_has(old: str, new: str, reason: str) -> None:
    text = print_program(double_program())
    assert old in text
    with pytest.raises(ProgramError) as error:
        parse_program(text.replace(old, new))
    assert reason in str(error.value)
