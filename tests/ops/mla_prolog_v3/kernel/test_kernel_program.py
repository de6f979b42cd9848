"""What the kernel's program consists of: bytes, tiles, flags, memory."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runs import build, random_completion

from npusim.chips.load import load_chip
from npusim.errors import CapacityError
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.isa.statistics import tensor_traffic
from npusim.isa.verify import verify
from npusim.ops.common.cases import load_cases
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.stages.sync import announces, awaits

Call = Callable[..., Any]

WEIGHTS = ("weight_dq", "weight_dkv_kr", "weight_uq_qr", "weight_uk")
DQ, DKV, UQ, UK = 7168 * 1536, 7168 * 576, 1536 * 32 * 192, 32 * 128 * 512 * 2


def case_program(name: str) -> tuple[Any, Program]:
    """The program of a named case on its own chip."""
    assert OPERATOR.cases_file is not None
    case = load_cases(OPERATOR.cases_file)[name]
    chip = load_chip(case.chip)
    p = OPERATOR.parse(case.params, chip, Validity.DOCUMENTED)
    controls = OPERATOR.make_inputs(p, 0, frozenset({"cache_index", "actual_seq_len"}))
    return chip, build(p, chip, controls)


@pytest.fixture(scope="module")
def seed_case() -> tuple[Any, Program]:
    return case_program("seed_a2_int8")


def executed(program: Program, opcode: Opcode, core: int | None = None) -> Counter[Any]:
    """Executed rows of an opcode by (core, pipe, arguments)."""
    found: Counter[Any] = Counter()
    for c in range(program.cores) if core is None else [core]:
        for instance in program.instances_of(c):
            rows = program.blocks[program.block[instance]].rows
            for row in rows[rows["opcode"] == opcode]:
                found[c, int(row["pipe"]), tuple(row["args"].tolist())] += 1
    return found


def test_every_named_case_has_a_legal_program() -> None:
    assert OPERATOR.cases_file is not None
    for name in load_cases(OPERATOR.cases_file):
        if not name.startswith("long_"):
            verify(*reversed(case_program(name)))


# Bytes


def test_seed_case_reads_every_weight_byte_once(seed_case: tuple[Any, Program]) -> None:
    traffic = {t.tensor.name: t for t in tensor_traffic(seed_case[1])}
    read = {name: traffic[name].read_bytes for name in WEIGHTS}
    assert read == dict(zip(WEIGHTS, (DQ, DKV, UQ, UK), strict=True))
    assert sum(read.values()) == 28_770_304


def test_seed_case_traffic_of_activations(seed_case: tuple[Any, Program]) -> None:
    traffic = {t.tensor.name: t for t in tensor_traffic(seed_case[1])}
    # 24 cores of mm1 and 9 of mm2 read all tokens, 16 of mm3 the whole latent.
    assert traffic["token_x"].read_bytes == (24 + 9) * 8 * 7168
    assert traffic["cq"].read_bytes == 16 * 8 * 1536
    assert traffic["mm_cq"].written_bytes == traffic["mm_cq"].read_bytes == 8 * 1536 * 4
    assert traffic["mm_ckvkr"].written_bytes == traffic["mm_ckvkr"].read_bytes == 8 * 576 * 4
    assert traffic["mm_qcqr"].written_bytes == traffic["mm_qcqr"].read_bytes == 8 * 6144 * 4
    assert traffic["qc"].written_bytes == traffic["qc"].read_bytes == 8 * 32 * 128 * 2
    assert traffic["mm_qn"].written_bytes == traffic["mm_qn"].read_bytes == 8 * 32 * 512 * 2
    assert traffic["query_rope"].written_bytes == 2 * traffic["query_rope"].read_bytes
    assert traffic["query"].written_bytes == 8 * 32 * 512
    assert traffic["kv_cache"].written_bytes == 8 * 512
    assert traffic["kr_cache"].written_bytes == 8 * 64 * 2


def test_seed_case_workspace(seed_case: tuple[Any, Program]) -> None:
    assert seed_case[1].workspace_bytes == 616_704


# Tiles


def test_seed_case_mmads(seed_case: tuple[Any, Program]) -> None:
    mmads = executed(seed_case[1], Opcode.MMAD)
    tiles = Counter((c, args[:3]) for (c, _, args) in mmads for _ in range(mmads[c, _, args]))
    assert {k: n for k, n in tiles.items() if k[0] == 0} == {
        (0, (8, 64, 256)): 2 * 7 * 4,
        (0, (8, 256, 128)): 3 * 4,
        (0, (8, 128, 128)): 3 * 4 + 2 * 4,
    }
    assert {k: n for k, n in tiles.items() if k[0] == 23} == {(23, (8, 64, 256)): 7 * 4}


def test_latent_is_loaded_once_where_it_stays_in_l1_and_once_per_tile_elsewhere(
    call: Call,
) -> None:
    chip = load_chip("A2")
    for rows, loads_per_core in ((64, 1), (65, 9)):
        p = call(B=1, S=rows, N=128, weight_quant_mode=2)
        program = build(p, chip, OPERATOR.make_inputs(p, 0, frozenset({"cache_index"})))
        traffic = {t.tensor.name: t for t in tensor_traffic(program)}
        # 22 cores of 6 heads: five N-tiles of 256 (the last 128), or nine of 128. The last
        # core has two heads: two N-tiles, or three.
        copies = 22 if loads_per_core == 1 else 21 * 9 + 3
        assert traffic["cq"].read_bytes == copies * rows * 1536


def test_query_weight_of_the_first_head_is_loaded_ahead(seed_case: tuple[Any, Program]) -> None:
    program = seed_case[1]
    order = [
        (i.opcode, i.srcs[0].slot if i.srcs else None, i.args.get("flag"))
        for _, _, i in program.walk(0)
        if i.pipe == Pipe.MTE2 and i.opcode in (Opcode.COPY, Opcode.CROSS_WAIT)
    ]
    tail = order[-6:]
    assert tail == [
        (Opcode.COPY, "b", None),
        (Opcode.CROSS_WAIT, None, 7),
        (Opcode.COPY, "a", None),
        (Opcode.CROSS_WAIT, None, 7),
        (Opcode.COPY, "b", None),
        (Opcode.COPY, "a", None),
    ]


# Flags


def test_seed_case_cross_core_flags(seed_case: tuple[Any, Program]) -> None:
    program = seed_case[1]
    group, everyone = int(CrossMode.GROUP), int(CrossMode.ALL_OF_KIND)

    def sets(core: int) -> dict[tuple[int, int], int]:
        return {
            args[:2]: n for (_, _, args), n in executed(program, Opcode.CROSS_SET, core).items()
        }

    # MM_CQ, MM_CKVKR and two N-tiles on 6, two heads on 8; cores without heads set 6 twice.
    assert sets(0) == {(group, 6): 4, (group, 8): 2}
    assert sets(23) == {(group, 6): 2}
    # Three barriers, two dequantised heads, NORM_CQ, CKVKR_FREE before and after the step.
    assert sets(24) == {(everyone, 7): 3, (group, 7): 2, (group, 6): 1, (group, 9): 2}
    assert sets(71) == {(everyone, 7): 3, (group, 6): 1, (group, 9): 2}
    assert program.surplus_flags == {(core, 9): 1 for core in range(24)}


@pytest.mark.parametrize("heads", range(1, 40))
def test_sparse_flags_pair_up_and_cover_every_head(heads: int) -> None:
    sets = [h for h in range(heads) if announces(h, heads)]
    waits = [h for h in range(heads) if awaits(h, heads)]
    assert len(sets) == len(waits)
    for head in range(heads):
        waited = sum(1 for h in waits if h <= head)
        assert sets[waited - 1] >= head
    if heads <= 15:
        assert sets == waits == list(range(heads))
    else:
        assert sets == [h for h in range(heads) if h % 2 == 0 or h == heads - 1]


@pytest.mark.parametrize("aic", [*range(1, 33)])
@pytest.mark.parametrize(
    "raw",
    [{}, {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}, {"weight_quant_mode": 1}],
    ids=["bf16", "int8", "partial"],
)
def test_programs_are_legal_and_run_to_the_end_for_every_core_count(
    call: Call, raw: dict[str, int], aic: int
) -> None:
    chip = load_chip("A2", {"cores.aic": aic})
    p = call(B=1, S=3, N=32, **raw)
    program = build(p, chip, OPERATOR.make_inputs(p, 0, frozenset({"cache_index"})))
    verify(program, chip)
    assert random_completion(program, aic, slowest_core=9).min() > 0


# Memory


def test_on_chip_buffers_fill_the_memories(seed_case: tuple[Any, Program]) -> None:
    chip, program = seed_case
    sizes = Counter[Space]()
    for kind in CoreKind:
        for buffer in program.buffers[kind]:
            sizes[buffer.space] += buffer.size_bytes
    assert sizes == {
        Space.L1: chip.sizes.l1,
        Space.L0A: chip.sizes.l0a,
        Space.L0B: chip.sizes.l0b,
        Space.L0C: chip.sizes.l0c,
        Space.UB: chip.sizes.ub,
    }


def test_scratch_that_is_too_small_is_refused(call: Call) -> None:
    p = call(B=1, S=1, N=1)
    inputs = OPERATOR.make_inputs(p, 0, frozenset({"cache_index"}))
    with pytest.raises(CapacityError) as error:
        build(p, load_chip("A2"), inputs, {"ub_bytes": 16384})
    assert str(error.value) == (
        "AIV buffer x: 6144 B asked of UB, 5600 B of 16384 B available; use a smaller tile"
    )


# Building


def test_blocks_are_shared_by_cores_and_steps(call: Call) -> None:
    chip = load_chip("A2")
    p = call(B=4, S=128, He=7168, N=128, BlockSize=128)
    inputs = OPERATOR.make_inputs(p, 0, frozenset({"cache_index"}))
    program = build(p, chip, inputs)
    assert len(program.block) > 10_000
    assert len(program.blocks) < 80
    assert sum(len(block) for block in program.blocks) < 3_000


def test_data_never_shapes_the_program(call: Call) -> None:
    chip = load_chip("A2")
    p = call(B=2, S=3, N=8, weight_quant_mode=2, kv_cache_quant_mode=1)
    inputs = OPERATOR.make_inputs(p, 0)
    other = OPERATOR.make_inputs(p, 1) | {"cache_index": inputs["cache_index"]}
    one, two = build(p, chip, inputs), build(p, chip, other)
    assert np.array_equal(one.block, two.block)
    assert np.array_equal(one.bases, two.bases)


def test_the_scalar_unit_reads_one_index_per_token_and_stage(call: Call) -> None:
    chip = load_chip("A2", {"cores.aic": 2})
    p = call(B=2, S=3)
    program = build(p, chip, OPERATOR.make_inputs(p, 0))
    assert sum(executed(program, Opcode.SCALAR_LOAD).values()) == 2 * 6
    p = call(T=5, cache_mode="PA_BLK_BSND", actual_seq_len=(2, 2, 5))
    program = build(p, chip, OPERATOR.make_inputs(p, 0))
    # Four AIVs have 2, 1, 1 and 1 tokens in sequences 0, 2, 2, 2, and read the sums up to there.
    assert sum(executed(program, Opcode.SCALAR_LOAD).values()) == 2 * 5 + 1 + 3 + 3 + 3
