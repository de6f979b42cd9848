"""Whatever a record says, it is mapped or its reason is named."""

import random
from typing import Any

import pytest

from npusim.validate.mapping import workload_of
from npusim.validate.plan import plan_of
from npusim.validate.records import Record, read_records
from npusim.validate.validation import shipped_records
from npusim.validate.workload import NotMapped, Unmapped

ODD: dict[type, tuple[Any, ...]] = {
    bool: (None, "yes", 3),
    int: (0, 1, -1, 2**40, None, "7", 2.5, 17, True),
    float: (0.0, -1.0, None, "a", 5),
    str: ("", "x;y", "N/A", "1,2,3", None, 7),
}


def mutated(value: Any, rng: random.Random) -> Any:
    """A value of a record with something in it that does not belong there."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if rng.random() > 0.1}
        return {k: mutated(v, rng) if rng.random() < 0.3 else v for k, v in kept.items()}
    if isinstance(value, list):
        changed = [mutated(v, rng) if rng.random() < 0.3 else v for v in value]
        return rng.choice([changed, changed[:-1], [], [*changed, rng.choice([1, None, [2, 3]])]])
    return rng.choice(ODD.get(type(value), (1, [], "x", None)))


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_record_is_mapped_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    for record in read_records(shipped_records()).records:
        changes: dict[str, Any] = {"params": mutated(record.params, rng)}
        if rng.random() < 0.2:
            changes["dtype"] = rng.choice([None, "", "fp16", "DT_UNDEFINED", "float32/int8", ";"])
        try:
            workload_of(record.model_copy(update=changes))
        except NotMapped as reason:
            assert str(reason)


def test_what_no_mapping_expects_ends_one_record_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(record: Record) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("npusim.validate.plan.workload_of", fail)
    record = read_records(shipped_records()).records[0]
    found = plan_of(record.model_copy(update={"chip": "ascend910b2"}))
    assert isinstance(found, Unmapped)
    assert found.why == "its parameters are not understood (list index out of range)"


def test_lists_written_as_text_are_read() -> None:
    record = next(r for r in read_records(shipped_records()).records if r.op == "SwiGlu")
    plain = workload_of(record.model_copy(update={"dtype": "float16", "context": ""}))
    params = {key: str(value) for key, value in record.params.items()}
    text = record.model_copy(update={"dtype": "['float16']", "params": params, "context": ""})
    assert workload_of(text) == plain
