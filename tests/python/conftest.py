"""Where the build is: IHA_BUILD_DIR (ctest sets it), else build/release."""

import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def build_dir():
    return pathlib.Path(os.environ.get("IHA_BUILD_DIR", SOURCE / "build" / "release"))


@pytest.fixture(scope="session")
def torch_library(build_dir):
    """The shared library that torch.ops.load_library takes."""
    return build_dir / "lib" / "libiha_torch.so"


@pytest.fixture(scope="session")
def program(build_dir):
    """program(name, *arguments) runs bin/<name> and gives the finished process; a failure is an error unless check=False."""

    def run(name, *arguments, check=True):
        command = [str(build_dir / "bin" / name), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert not check or result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
        return result

    return run


@pytest.fixture(scope="session")
def cases():
    """The case files, sorted; skips where there are none."""
    folder = pathlib.Path(os.environ.get("IHA_CASES", SOURCE.parent / "shared" / "cases"))
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pytest.skip(f"no case files in {folder}")
    return files
