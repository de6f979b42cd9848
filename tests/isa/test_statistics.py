from small_programs import double_program

from npusim.isa.statistics import cube_work, path_bytes, tensor_traffic


def test_bytes_by_path_and_tensor():
    program = double_program(rows=32, cols=64)
    assert path_bytes(program) == {"GM_TO_UB": 32 * 64 * 4, "UB_TO_GM": 32 * 64 * 4}
    traffic = {t.tensor.name: (t.read_bytes, t.written_bytes) for t in tensor_traffic(program)}
    assert traffic == {"x": (8192, 0), "y": (0, 8192)}


def test_a_program_without_mmads_has_no_cube_work():
    assert cube_work(double_program(rows=32, cols=64)) == []
