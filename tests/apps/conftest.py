"""The built program: IHA_BUILD_DIR (ctest sets it), else build/release."""

import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def binary():
    return pathlib.Path(os.environ.get("IHA_BUILD_DIR", SOURCE / "build" / "release")) / "bin" / "iha"


@pytest.fixture(scope="session")
def iha(binary):
    """iha(*arguments, status=0) runs the program, asserts its exit status (None: any) and gives the finished process."""

    def run(*arguments, status=0):
        command = [str(binary), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        shown = f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
        assert status is None or result.returncode == status, shown
        if result.returncode != 0:
            assert "Exception raised" not in result.stderr and "frame #" not in result.stderr, shown
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


@pytest.fixture(scope="session")
def text():
    """A text that is always there: these tests."""
    return SOURCE / "tests"


@pytest.fixture(scope="session")
def tiny_lm(text):
    """A language model that trains in a second or two."""
    return [
        *("train", "lm", "--text", text, "--d-model", 16, "--layers", 1, "--context", 32, "--batch", 4),
        *("--patterns", "causal_sliding:4,causal*3", "--max-bytes", 60000, "--max-validation-bytes", 2000),
        *("--sample", 20, "--threads", 1, "--log-every", 1),
    ]


@pytest.fixture(scope="session")
def tiny_compose():
    """Options of a comparison that trains in a second or two."""
    return [
        *("--train-relations", 200, "--validation-relations", 50, "--test-relations", 50),
        *("--d-model", 16, "--pseudo-heads", 2, "--batch", 8, "--steps", 6, "--warmup", 2, "--evaluate-every", 3),
        *("--log-every", 1),
    ]
