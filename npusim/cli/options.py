"""Reading option values: ``key=value`` pairs, time windows."""

import tomllib
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from npusim.errors import ParameterError


def key_values(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """``["B=8", "cache_mode=PA_NZ"]`` as a dictionary; values are TOML values or plain words.

    Raises:
        ParameterError: a pair without "=", or a key given twice.
    """
    return {key: value_of(text) for key, text in key_texts(pairs, option).items()}


def key_texts(pairs: Sequence[str], option: str) -> dict[str, str]:
    """``["cube_accum=seq_fma"]`` as a dictionary of names and texts.

    Raises:
        ParameterError: a pair without "=", or a key given twice.
    """
    result: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ParameterError(f"{option} '{pair}': expected name=value")
        if key in result:
            raise ParameterError(f"{option} {key} is given twice")
        result[key] = text
    return result


def value_of(text: str) -> Any:
    """A TOML value (number, boolean, list, quoted string) or, if it is none, the text itself."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def read_toml(path: Path, option: str) -> dict[str, Any]:
    """A TOML file as a dictionary.

    Raises:
        ParameterError: the file cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ParameterError(f"{option} {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{option} {path}: not TOML ({error})") from None


def core_numbers(text: str, cores: int) -> frozenset[int]:
    """``0,1,24`` as core numbers below ``cores``."""
    try:
        chosen = frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(f"--cores '{text}': expected numbers like 0,1,24") from None
    if not chosen or min(chosen) < 0 or max(chosen) >= cores:
        raise ParameterError(f"--cores '{text}': core numbers are 0 to {cores - 1}")
    return chosen


def window_us(text: str) -> tuple[float, float]:
    """``0:50us`` as (0.0, 50.0) microseconds."""
    first, colon, last = text.removesuffix("us").partition(":")
    try:
        window = float(first.removesuffix("us")), float(last)
    except ValueError:
        window = (1.0, 0.0)
    if not colon or not 0 <= window[0] < window[1] < inf:
        raise ParameterError(f"--window '{text}': expected FIRST:LAST in us, like 0:50us")
    return window
