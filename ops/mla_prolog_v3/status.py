"""Status codes of the aclnn API, and the error that carries one."""

from enum import IntEnum

from npusim.errors import ParameterError


class Status(IntEnum):
    """Status of the first-phase API, by the names of its page."""

    ACLNN_ERR_PARAM_NULLPTR = 161001
    ACLNN_ERR_PARAM_INVALID = 161002
    ACLNN_ERR_RUNTIME_ERROR = 361001
    ACLNN_ERR_INNER_TILING_ERROR = 561002


NULLPTR = Status.ACLNN_ERR_PARAM_NULLPTR
INVALID = Status.ACLNN_ERR_PARAM_INVALID
RUNTIME = Status.ACLNN_ERR_RUNTIME_ERROR
TILING = Status.ACLNN_ERR_INNER_TILING_ERROR


def refusal(status: Status, message: str) -> ParameterError:
    """The error for a refused call; status and name are in it and end the message."""
    return ParameterError(
        f"mla_prolog_v3: {message} [{status.name} {status.value}]",
        status=status.value,
        status_name=status.name,
    )
