"""``npusim report``: a run folder read again, its pictures drawn again."""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

from npusim.errors import TensorError
from npusim.reports.folder import SUMMARY_FILE
from npusim.reports.pictures import PICTURES_FILE, draw_pictures, read_pictures
from npusim.reports.schema import problem_of
from npusim.summary import SCHEMA


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a run folder, or of a ``summary.json`` given by itself.

    Raises:
        TensorError: there is none, or it is not the summary of a run.
    """
    path = folder if folder.is_file() else folder / SUMMARY_FILE
    if not path.exists():
        raise TensorError(f"{folder} is not a run folder: it has no {SUMMARY_FILE}")
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise TensorError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise TensorError(f"{path}: not JSON ({error})") from None
    except RecursionError:
        raise TensorError(f"{path}: not the summary of a run (nested too deeply)") from None
    if not isinstance(found, dict) or "schema" not in found:
        raise TensorError(f"{path}: not the summary of a run (it has no schema)")
    if found["schema"] != SCHEMA:
        raise TensorError(f"{path}: schema {found['schema']!r}, expected {SCHEMA!r}")
    problem = problem_of(found)
    if problem is not None:
        raise TensorError(f"{path}: not the summary of a run ({problem}); run the case again")
    return found


def redraw(folder: Path) -> list[str]:
    """Draw the pictures of a run folder again from the data it keeps.

    Returns:
        the names of the files written.

    Raises:
        TensorError: the data is missing or malformed, or the folder cannot be written.
    """
    if not (folder / PICTURES_FILE).exists():
        return []
    pictures = read_pictures(folder)
    try:
        # Drawn aside and moved, so that no picture is ever half-written.
        with (
            tempfile.TemporaryDirectory(dir=folder, prefix=".redraw") as aside,
            warnings.catch_warnings(action="error"),
        ):
            names = draw_pictures(pictures, Path(aside))
            for name in names:
                (Path(aside) / name).replace(folder / name)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TensorError(f"run folder {folder} cannot be written ({reason})") from None
    except (ValueError, ArithmeticError, LookupError, Warning) as error:
        raise TensorError(
            f"{folder / PICTURES_FILE}: cannot be drawn ({error}); run the case again"
        ) from None
    return names
