"""The safetensors reader and writer against the format's own package, both ways."""

import json
import struct

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

METADATA = {"format": "pt", "note": 'Grüße "quoted"\n\\ 🙂', "": ""}


def tensors_of_all_types():
    random = np.random.default_rng(5)
    bits = lambda type_, *shape: torch.from_numpy(random.integers(0, 256, (*shape, type_.itemsize), dtype=np.uint8)).view(type_)
    integers = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
    floats = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
              torch.complex64]
    tensors = {f"bits.{type_}".replace("torch.", ""): bits(type_, 3, 5).squeeze(-1) for type_ in integers + floats}
    tensors["small"] = torch.arange(-3, 3, dtype=torch.int64)
    tensors["flags"] = torch.tensor([True, False, True])
    tensors["scalar"] = torch.tensor(0.1, dtype=torch.float64)
    tensors["empty"] = torch.empty(0, 7)
    tensors["name with spaces, ü and \t"] = torch.tensor([1.5], dtype=torch.bfloat16)
    return tensors


def as_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def test_python_reads_what_is_written(program, tmp_path):
    tensors = tensors_of_all_types()
    safetensors.torch.save_file(tensors, tmp_path / "in", metadata=METADATA)
    program("io_files", "copy", tmp_path / "in", tmp_path / "out")
    read = safetensors.torch.load_file(tmp_path / "out")
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape, name
        assert as_bytes(read[name]) == as_bytes(tensor), name
    with safetensors.safe_open(tmp_path / "out", "np") as file:
        assert file.metadata() == METADATA


def test_elements_mean_what_python_says(program, tmp_path):
    tensors = tensors_of_all_types()
    safetensors.torch.save_file(tensors, tmp_path / "in")
    listed = {}
    for line in program("io_files", "list", tmp_path / "in").stdout.split("\n")[:-1]:
        *name, type_, shape, values = line.split("\t")
        listed["\t".join(name)] = (type_, [int(size) for size in shape.split()], values.split())
    assert listed.keys() == tensors.keys()
    with safetensors.safe_open(tmp_path / "in", "pt") as file:
        for name, (type_, shape, values) in listed.items():
            assert type_ == file.get_slice(name).get_dtype() and shape == list(tensors[name].shape), name
            if values == ["-"]:
                assert tensors[name].dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool)
                continue
            expected = tensors[name].reshape(-1).to(torch.float64).numpy()
            np.testing.assert_array_equal(np.array([float.fromhex(value) for value in values]), expected, err_msg=name)
    assert listed["bits.float32"][2] != ["-"] and listed["small"][2] != ["-"]


def test_files_without_tensors(program, tmp_path):
    safetensors.numpy.save_file({}, tmp_path / "in")
    program("io_files", "copy", tmp_path / "in", tmp_path / "out")
    assert safetensors.numpy.load_file(tmp_path / "out") == {}


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 10, 0])
def test_a_lie_is_an_error_message(program, tmp_path, length):
    (tmp_path / "bad").write_bytes(struct.pack("<Q", length) + json.dumps({}).encode())
    result = program("io_files", "list", tmp_path / "bad", check=False)
    assert result.returncode == 1 and "bad: " in result.stderr


def test_cases_read_here_and_there(program, cases):
    """Every value of a few case files, element by element."""
    for case in cases[::7]:
        with safetensors.safe_open(case, "np") as file:
            lines = program("io_files", "list", case).stdout.splitlines()
            assert [line.split("\t")[0] for line in lines] == sorted(file.keys())
            for line in lines:
                name, _, _, values = line.split("\t")
                found = np.array([float.fromhex(value) for value in values.split()])
                if file.get_slice(name).get_dtype() != "BF16":
                    np.testing.assert_array_equal(found, file.get_tensor(name).astype(np.float64).reshape(-1))
