"""`iha bench`: what it prints and writes. Not how fast anything is."""

import json


def test_lines_of_every_path(iha, tmp_path):
    file = tmp_path / "speed.json"
    shown = iha("bench", "--work", "causal-512,short-train", "--dtypes", "float32", "--rounds", "1", "--output", file)
    lines = json.loads(file.read_text())
    assert [(line["work"], line["path"]) for line in lines] == [
        (work, path) for work in ("causal-512", "short-train") for path in ("iha", "composed", "torch")]
    for line in lines:
        assert line["seconds"] > 0 and line["peak_flops_per_second"] > 0
        # float32 sums of up to 512 terms differ by their order.
        assert line["error"] <= 512 * 2**-24
        assert line["extra_bytes"] is None or line["extra_bytes"] >= 0
    result_bytes = 12 * 512 * 64 * 4
    assert all(line["extra_bytes"] is None or line["extra_bytes"] >= result_bytes // 2 for line in lines[:3])
    assert "causal-512" in shown.stdout and "GFLOP/s" in shown.stdout


def test_explains(iha):
    assert "float64: composed" in iha("bench", "--explain").stdout


def test_unknown_work_is_refused(iha):
    failed = iha("bench", "--work", "everything", status=2)
    assert "everything" in failed.stderr
