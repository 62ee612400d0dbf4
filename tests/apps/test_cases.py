"""`iha run` and `iha check` on case files."""

import json

import numpy
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file


def metadata_of(path):
    with safe_open(path, "numpy") as file:
        return file.metadata()


@pytest.mark.parametrize("engine", ["operator", "oracle"])
def test_every_case_passes(iha, cases, engine):
    lines = iha("check", *cases, "--engine", engine).stdout.splitlines()
    assert len(lines) == len(cases)
    for line, case in zip(lines, cases):
        assert line.startswith("ok ") and case.name in line and "largest error" in line


def expectations(case):
    """{name: values} of the tensors that `iha run` must write; read one by one, for numpy lacks the inputs' bfloat16."""
    with safe_open(case, "numpy") as file:
        return {name.removeprefix("expected."): file.get_tensor(name) for name in file.keys() if name.startswith("expected.")}


@pytest.mark.parametrize(
    "name",
    [
        *("paper_global_collapse_p2", "lse_gradients_p2_sinks", "parts_p3", "bf16_p2_gradients"),
        *("bitnet_decoder_p3", "seed2_three_heads"),
    ],
)
def test_run_writes_what_check_compares(iha, cases, tmp_path, name):
    case = next(path for path in cases if path.stem == name)
    iha("run", case, "--output", tmp_path / "out.safetensors")
    written = load_file(tmp_path / "out.safetensors")
    expected = expectations(case)
    wanted = set(expected) | ({"out", "lse", "parts"} if metadata_of(case)["op"] == "attention" else {"out"})
    assert wanted <= set(written)
    bf16 = name.startswith("bf16")
    gradients = max((numpy.abs(value).max() for key, value in expected.items() if key.startswith("grad_")), default=0)
    for key, value in expected.items():
        assert written[key].dtype in (numpy.float32, numpy.float64) and written[key].shape == value.shape
        finite = numpy.isfinite(value)
        most = numpy.abs(value[finite]).max()
        most = gradients if most < 1e-10 else most  # zero but for rounding
        numpy.testing.assert_array_equal(finite, numpy.isfinite(written[key]))
        numpy.testing.assert_allclose(written[key][finite], value[finite], rtol=0, atol=(2e-2 if bf16 else 3e-4) * most)


def spoilt(case, path, change):
    tensors = load_file(case)
    change(tensors)
    save_file(tensors, path, metadata_of(case))


def test_a_wrong_expectation_is_off(iha, cases, tmp_path):
    good = next(path for path in cases if path.stem == "defaults")
    bad = tmp_path / "bad.safetensors"

    def change(tensors):
        tensors["expected.out"].flat[7] += 0.01

    spoilt(good, bad, change)
    result = iha("check", good, bad, status=1)
    first, second = result.stdout.splitlines()
    assert first.startswith("ok ") and second.startswith("FAIL") and "out[" in second
    assert "1 of 2 cases" in result.stderr


def test_nan_and_a_finite_number_for_minus_infinity_are_off(iha, cases, tmp_path):
    good = next(path for path in cases if path.stem == "rows_that_see_nothing")
    bad = tmp_path / "bad.safetensors"

    def change(tensors):
        lse = tensors["expected.lse"]
        lse[numpy.isinf(lse)] = -1e30

    spoilt(good, bad, change)
    assert iha("check", bad, status=1).stdout.startswith("FAIL")


def test_what_is_no_case_is_told_by_line(iha, cases, tmp_path):
    garbage = tmp_path / "garbage.safetensors"
    garbage.write_bytes(b"\xff" * 100)
    truncated = tmp_path / "truncated.safetensors"
    truncated.write_bytes(cases[0].read_bytes()[:-9])
    no_case = tmp_path / "no_case.safetensors"
    save_file({"a": numpy.zeros(3, numpy.float32)}, no_case)
    unexpected = tmp_path / "unexpected.safetensors"
    tensors = {name: value for name, value in load_file(cases[-1]).items() if not name.startswith("expected.")}
    save_file(tensors, unexpected, metadata_of(cases[-1]))
    files = [garbage, tmp_path / "absent.safetensors", truncated, no_case, unexpected]
    lines = iha("check", *files, cases[0], status=1).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["FAIL"] * 5 + ["ok"]
    assert "expectation" in lines[4]


def test_json_lists_every_tensor(iha, cases):
    case = next(path for path in cases if path.stem == "parts_p3")
    (verdict,) = json.loads(iha("check", "--json", case).stdout)
    assert verdict["pass"] and {each["name"] for each in verdict["tensors"]} == {"out", "lse", "parts"}
    assert all(each["error"] <= 1 for each in verdict["tensors"])


def test_an_output_that_cannot_be_written_fails(iha, cases):
    iha("run", cases[0], "--output", "/nowhere/at/all.safetensors", status=1)
