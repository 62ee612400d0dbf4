"""`iha train`: what a run leaves, and going on after kill -9."""

import json
import signal
import subprocess
import time

import pytest
from safetensors.numpy import load_file


def losses(folder):
    lines = (folder / "train.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return {record["step"]: record["loss"] for record in records if "loss" in record}


@pytest.fixture(scope="module")
def lm_run(iha, tiny_lm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm") / "run"
    iha(*tiny_lm, "--steps", 40, "--evaluate-every", 20, "--rate", 0.01, "--output", folder)
    return folder


def test_a_language_model_leaves_a_whole_run(lm_run):
    summary = json.loads((lm_run / "summary.json").read_text())
    assert 0 < summary["bits_per_byte"] < 8 and 0 < summary["gzip_bits_per_byte"] < 8
    assert summary["bits_per_byte"] == summary["validation"]["bits_per_byte"]
    assert len(summary["sample"]) >= 20 and summary["parameters"] > 0
    assert sorted(losses(lm_run)) == list(range(1, 41))
    assert losses(lm_run)[40] < losses(lm_run)[1]
    page = (lm_run / "report.html").read_text()
    assert "causal_sliding:4" in page and "bigrams" in page and "://" not in page.replace("http://www.w3.org", "")


def test_the_model_is_readable_from_python_tied_weights_once(lm_run):
    tensors = load_file(lm_run / "model.safetensors")
    assert tensors["embedding.weight"].shape == (256, 16)
    assert not any(name.startswith("readout") for name in tensors)
    model = json.loads((lm_run / "model.json").read_text())
    assert model["layers"][0]["patterns"] == "causal_sliding:4,causal*3"


def test_the_event_file_is_read_by_tensorboard(lm_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(lm_run), size_guidance={"scalars": 0})
    events.Reload()
    read = {event.step: event.value for event in events.Scalars("train/loss")}
    assert read == pytest.approx(losses(lm_run))
    assert [event.step for event in events.Scalars("validation/bits_per_byte")] == [20, 40]


def test_resume_after_kill_9_is_bit_for_bit(binary, iha, tiny_lm, tmp_path):
    arguments = [*tiny_lm, "--steps", 60, "--dropout", 0.2, "--checkpoint-every", 3, "--accumulate", 2]
    iha(*arguments, "--output", tmp_path / "whole")
    killed = tmp_path / "killed"
    for wait_for in (8, 25):
        command = [str(binary), *map(str, arguments), "--output", str(killed), "--resume"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (killed / "train.jsonl").exists() or len(losses_so_far(killed)) < wait_for:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    iha("train", "lm", "--config", killed / "config.json", "--resume", "--threads", 1)
    assert losses(killed) == losses(tmp_path / "whole")
    assert (killed / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()
    ends = ["checkpoints/step-0000000060/training.safetensors", "checkpoints/step-0000000060/model.safetensors"]
    for end in ends:
        assert (killed / end).read_bytes() == (tmp_path / "whole" / end).read_bytes()


def losses_so_far(folder):
    """As losses(), of a file whose last line may be half written."""
    whole = (folder / "train.jsonl").read_text().rpartition("\n")[0]
    return [line for line in whole.splitlines() if '"loss"' in line]


def test_resume_refuses_another_seed_and_leaves_the_run_as_it_is(iha, tiny_lm, tmp_path):
    run = tmp_path / "run"
    iha(*tiny_lm, "--steps", 4, "--output", run)
    before = {name: (run / name).read_bytes() for name in ("config.json", "model.json")}
    refused = iha(*tiny_lm, "--steps", 4, "--seed", 99, "--output", run, "--resume", status=1)
    assert '"seed":99' in refused.stderr
    refused = iha(*tiny_lm, "--steps", 4, "--weight-decay", 0.3, "--output", run, "--resume", status=1)
    assert 'decay 0.3' in refused.stderr
    assert before == {name: (run / name).read_bytes() for name in before}
    iha(*tiny_lm, "--steps", 4, "--evaluate-every", 2, "--output", run, "--resume")


def test_resume_refuses_another_schedule_and_another_model(iha, tiny_lm, tmp_path):
    iha(*tiny_lm, "--steps", 4, "--output", tmp_path / "run")
    assert "steps 4" in iha(*tiny_lm, "--steps", 5, "--output", tmp_path / "run", "--resume", status=1).stderr
    other = iha(*tiny_lm, "--steps", 4, "--untied", "--output", tmp_path / "run", "--resume", status=1)
    assert "missing" in other.stderr


def test_a_damaged_checkpoint_is_an_error(iha, tiny_lm, tmp_path):
    iha(*tiny_lm, "--steps", 4, "--output", tmp_path / "run")
    model = tmp_path / "run" / "checkpoints" / "step-0000000004" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:100])
    result = iha(*tiny_lm, "--steps", 4, "--output", tmp_path / "run", "--resume", status=1)
    assert "model.safetensors" in result.stderr


def test_a_diverging_run_names_its_step(iha, tiny_lm, tmp_path):
    result = iha(*tiny_lm, "--steps", 50, "--rate", 1000, "--warmup", 0, "--clip", 0, "--output", tmp_path / "run", status=None)
    if result.returncode == 0:
        pytest.skip("it did not diverge")
    assert "step" in result.stderr and "finite" in result.stderr


@pytest.mark.parametrize("variant", ["plain", "plain_residual_norm", "averaged", "mixed", "interleaved"])
def test_every_kind_of_variant_trains(iha, tiny_compose, tmp_path, variant):
    result = iha("train", "compose", *tiny_compose, "--variant", variant, "--output", tmp_path / "run", "--json")
    summary = json.loads(result.stdout)
    assert summary["mixer"] == variant and 0 <= summary["test"]["accuracy"] <= 1
    assert summary["test"]["majority"] >= 0.5
    page = (tmp_path / "run" / "report.html").read_text()
    assert ("alpha_q" in page) == (variant in ("averaged", "mixed", "interleaved"))


def test_the_same_seed_gives_the_same_run(iha, tiny_compose, tmp_path):
    def run(name, seed):
        arguments = ["train", "compose", *tiny_compose, "--seed", seed, "--output", tmp_path / name, "--threads", 1]
        iha(*arguments)
        return (tmp_path / name / "model.safetensors").read_bytes()

    assert run("a", 1) == run("b", 1)
    assert run("c", 2) != run("d", 1)


def test_nothing_is_drawn_without_a_terminal(iha, tiny_compose, tmp_path):
    assert iha("train", "compose", *tiny_compose, "--output", tmp_path / "run").stderr == ""


@pytest.fixture(scope="module")
def planted_run(iha, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "run"
    small = ["--tokens", 16, "--d-model", 24, "--batch", 4, "--held-out", 8, "--threads", 1]
    often = ["--steps", 20, "--evaluate-every", 10, "--log-every", 5]
    result = iha("train", "planted", *small, *often, "--output", folder, "--json")
    return folder, json.loads(result.stdout)


def test_learned_heads_leave_their_gates_and_a_hardened_model(planted_run):
    folder, summary = planted_run
    assert summary == json.loads((folder / "summary.json").read_text())
    assert len(summary["gates"]) == 3
    for head in summary["gates"]:
        assert list(head["gates"]) == ["causal_sliding:1", "global", "sliding:8", "strided:8"]
        assert sum(head["gates"].values()) == pytest.approx(1, abs=1e-5)
    records = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    name = "gate blocks.0.attention, head 2: strided:8"
    assert [record["step"] for record in records if name in record] == [5, 10, 15, 20]
    page = (folder / "report.html").read_text()
    assert "gates of blocks.0.attention, head 0" in page
    hardened = json.loads((folder / "hardened" / "model.json").read_text())
    assert hardened["layers"][0]["patterns"] == summary["chosen"] and "learned" not in summary["chosen"]
    tensors = load_file(folder / "hardened" / "model.safetensors")
    assert not any("gates" in name for name in tensors)
    assert "blocks.0.attention.gates.temperature" in load_file(folder / "model.safetensors")


def test_a_language_model_of_learned_heads_is_hardened_too(iha, text, tmp_path):
    small = ["--d-model", 16, "--layers", 1, "--heads", 2, "--context", 32, "--batch", 4, "--sample", 5]
    data = ["--text", text, "--max-bytes", 60000, "--max-validation-bytes", 1000]
    patterns = ["--patterns", "learned(causal|causal_sliding:2),causal_dynamic:8:1", "--gate-cost", 0.1]
    iha("train", "lm", *small, *data, *patterns, "--steps", 5, "--log-every", 1, "--output", tmp_path / "run")
    hardened = json.loads((tmp_path / "run" / "hardened" / "model.json").read_text())
    assert hardened["layers"][0]["patterns"] in ("causal,causal_dynamic:8:1", "causal_sliding:2,causal_dynamic:8:1")
    assert "gates of blocks.0.attention, head 0" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("patterns, keys", [("causal_dynamic:8:2*2", 24), ("causal_sliding:23*2", 24)])
def test_needles_train_and_are_tested_at_another_length(iha, tmp_path, patterns, keys):
    small = ["--tokens", 64, "--test-tokens", 160, "--distance", 24, "--keys", 2, "--length", 4]
    run = ["--questions", 8, "--d-model", 16, "--batch", 4, "--steps", 6, "--held-out", 6, "--patterns", patterns, "--output", tmp_path / "run", "--json"]
    summary = json.loads(iha("train", "needle", *small, *run).stdout)
    assert summary["keys_read"] == keys and summary["test_tokens"] == 160
    assert 0 <= summary["test"]["accuracy"] <= 1 and summary["test"]["chance"] == 0.125
    assert (tmp_path / "run" / "report.html").exists()
