"""`iha compare`: processes side by side, its table, summary and page."""

import json
import math

import pytest


@pytest.fixture(scope="module")
def comparison(iha, tiny_compose, tiny_lm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    iha(*tiny_lm, "--steps", 3, "--output", folder / "lm")
    shown = iha(
        *("compare", "compose", *tiny_compose, "--variants", "plain,interleaved", "--seeds", 2, "--jobs", 2),
        *("--output", folder / "both", "--language-run", folder / "lm"),
    )
    return folder / "both", shown


def test_the_summary_is_a_list_of_the_mixers(comparison):
    folder, _ = comparison
    rows = json.loads((folder / "summary.json").read_text())
    assert [row["mixer"] for row in rows] == ["plain", "interleaved"]
    for row in rows:
        assert {"parameters", "seeds", "accuracy_mean", "accuracy_std", "exact_mean", "seconds"} <= set(row)
        assert row["seeds"] == 2
        runs = [json.loads((folder / "runs" / f"{row['mixer']}-seed{seed}" / "summary.json").read_text()) for seed in (0, 1)]
        values = [run["test"]["accuracy"] for run in runs]
        mean = sum(values) / 2
        assert math.isclose(row["accuracy_mean"], mean)
        assert math.isclose(row["accuracy_std"], math.sqrt(sum((value - mean) ** 2 for value in values)))
        assert row["parameters"] == runs[0]["parameters"]


def test_the_table_names_every_column(comparison):
    folder, shown = comparison
    for word in ("accuracy", "exact match", "constant", "parameters", "GFLOP", "plain", "interleaved"):
        assert word in shown.stdout
    assert shown.stdout == (folder / "table.txt").read_text()
    assert shown.stderr == ""


def test_the_page_is_one_file_with_both_parts(comparison):
    folder, _ = comparison
    page = (folder / "report.html").read_text()
    for words in ("where each head looks", "Mixing weights: interleaved", "What it does not show", "2-simplicial", "gzip"):
        assert words in page, words
    assert "src=" not in page


def test_a_run_does_not_depend_on_its_neighbours(iha, comparison, tiny_compose, tmp_path):
    folder, _ = comparison
    iha("train", "compose", *tiny_compose, "--variant", "plain", "--seed", 1, "--threads", 1, "--output", tmp_path / "alone")
    alone = (tmp_path / "alone" / "model.safetensors").read_bytes()
    assert alone == (folder / "runs" / "plain-seed1" / "model.safetensors").read_bytes()


def test_a_sweep_chooses_each_rate_on_validation_data(iha, tiny_compose, tmp_path):
    iha(
        *("compare", "compose", *tiny_compose, "--variants", "plain,mixed", "--seeds", 1),
        *("--sweep", "0.0000001,0.01", "--output", tmp_path / "sweep", "--json"),
    )
    entries = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [(entry["mixer"], entry["rate"]) for entry in entries] == [
        *(("plain", 1e-7), ("plain", 0.01), ("mixed", 1e-7), ("mixed", 0.01)),
    ]
    for mixer in ("plain", "mixed"):
        own = [entry for entry in entries if entry["mixer"] == mixer]
        (chosen,) = [entry for entry in own if entry["chosen"]]
        assert chosen["validation_accuracy_mean"] == max(entry["validation_accuracy_mean"] for entry in own)
        config = json.loads((tmp_path / "sweep" / "runs" / f"{mixer}-seed0" / "config.json").read_text())
        assert config["rate"] == chosen["rate"]


def test_a_failing_run_fails_the_comparison_with_its_reason(iha, tiny_compose, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "plain-seed0").write_text("a file where the run's folder belongs")
    result = iha("compare", "compose", *tiny_compose, "--variants", "plain", "--output", tmp_path, status=1)
    assert "plain-seed0 failed" in result.stderr and "iha: " in result.stderr.split("failed: ")[1]


def test_resume_runs_only_what_is_missing(iha, tiny_compose, tmp_path):
    arguments = ["compare", "compose", *tiny_compose, "--variants", "plain", "--seeds", 2, "--output", tmp_path / "x"]
    iha(*arguments)
    kept = tmp_path / "x" / "runs" / "plain-seed0" / "summary.json"
    before = kept.stat().st_mtime_ns
    other = tmp_path / "x" / "runs" / "plain-seed1" / "summary.json"
    other.unlink()
    iha(*arguments, "--resume")
    assert kept.stat().st_mtime_ns == before and other.exists()


def test_language_models_side_by_side(iha, text, tmp_path):
    iha(
        *("compare", "lm", "--text", text, "--max-bytes", 60000, "--max-validation-bytes", 2000, "--mixers", "plain,modes"),
        *("--d-model", 16, "--layers", 1, "--context", 32, "--batch", 4, "--steps", 4, "--seeds", 1),
        *("--output", tmp_path / "lm"),
    )
    rows = json.loads((tmp_path / "lm" / "summary.json").read_text())
    assert [row["mixer"] for row in rows] == ["plain", "modes"]
    assert all(0 < row["bits_per_byte_mean"] < 9 for row in rows)
