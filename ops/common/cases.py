"""Named workloads: the ``cases.toml`` that lies beside every operator.

```toml
[cases.decode_bf16_t1]
chip = "ascend910b2"
mode = "both"          # both | values | time
l2 = "cold"            # cold | warm
note = "one token"

[cases.decode_bf16_t1.params]
B = 1
```
"""

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from npusim.errors import ParameterError


class Case(BaseModel):
    """One named workload.

    Attributes:
        chip: chip it is meant for.
        mode: what to compute unless the user says otherwise.
        l2: cache state at the start.
        note: one sentence.
        params: raw parameters of the operator.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chip: str
    mode: Literal["both", "values", "time"] = "both"
    l2: Literal["cold", "warm"] = "cold"
    note: str = ""
    params: dict[str, Any] = {}


class _CaseFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    cases: dict[str, Case]


@lru_cache(maxsize=64)
def load_cases(path: Path) -> dict[str, Case]:
    """The cases of a file, by name, in file order.

    Raises:
        ParameterError: the file cannot be read, or an entry does not follow the schema.
    """
    try:
        return _CaseFile.model_validate(tomllib.loads(path.read_text("utf-8"))).cases
    except OSError as error:
        raise ParameterError(f"cases file {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"cases file {path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ParameterError(f"cases file {path}: {where}: {first['msg']}") from None
