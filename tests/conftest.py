"""Fixtures that tests of every module may use, and the settings of hypothesis."""

from pathlib import Path

import pytest
from hypothesis import settings

# The machine's speed must not decide a test, and a failure must come back when it is run again.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root folder of the repository."""
    return Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` writes the golden tables anew (run it without workers)."""
    parser.addoption("--update-golden", action="store_true", default=False)
