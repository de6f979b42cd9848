import pytest


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether the golden tables are to be written instead of compared."""
    return bool(request.config.getoption("--update-golden"))
