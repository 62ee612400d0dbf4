"""Exit statuses, help, configuration files, and messages for what cannot be done."""

import json
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = [
    ["train", "lm"],
    ["train", "compose"],
    ["compare", "lm"],
    ["compare", "compose"],
    ["inspect"],
    ["view"],
    ["plan"],
    ["run"],
    ["check"],
    ["bench"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_a_sentence_an_example_and_defaults(iha, command):
    shown = iha(*command, "--help").stdout
    assert "Example:\n  iha " + " ".join(command) in shown
    options = [line for line in shown.splitlines() if line.startswith("  --")]
    assert options
    # A sentence follows each option, on its line or the next.
    lines = shown.splitlines()
    for line in options:
        rest = line[2:].split("  ")
        following = lines[lines.index(line) + 1]
        assert len(rest) > 1 or following.startswith(" " * 20), line


def test_the_program_itself_lists_its_commands(iha):
    shown = iha("--help").stdout
    for command in ("train", "compare", "inspect", "view", "run", "check", "plan"):
        assert f"\n  {command} " in shown


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["trian"],
        ["train"],
        ["train", "compose", "--steps", "many"],
        ["train", "compose", "--steps", "-1"],
        ["train", "compose", "--variant", "nothing"],
        ["train", "compose", "--no-such-option"],
        ["train", "lm"],
        ["train", "lm", "--text", ".", "--patterns", "causl"],
        ["check"],
        ["check", "x.safetensors", "--engine", "magic"],
        ["run", "x.safetensors"],
        ["train", "compose", "--config"],
        ["train", "compose", "--config", "/nowhere/config.json"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_wrong_usage_exits_with_2(iha, arguments):
    result = iha(*arguments, status=2)
    assert result.stderr and not result.stdout


def test_what_fails_exits_with_1_and_one_line(iha, tmp_path):
    for arguments in (
        ["run", tmp_path / "none.safetensors", "--output", tmp_path / "out"],
        ["train", "lm", "--text", tmp_path / "none", "--output", tmp_path / "run"],
        ["train", "compose", "--d-model", 30, "--heads", 4, "--output", tmp_path / "run"],
    ):
        result = iha(*arguments, status=1)
        assert result.stderr.startswith("iha: ") and result.stderr.count("\n") == 1, result.stderr
        assert not result.stdout


def test_a_configuration_is_what_a_run_keeps(iha, tmp_path, tiny_compose):
    first = iha("train", "compose", *tiny_compose, "--json", "--threads", 1, "--output", tmp_path / "a")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["steps"] == 6 and config["d-model"] == 16 and config["variant"] == "interleaved"
    again = iha(
        *("train", "compose", "--config", tmp_path / "a" / "config.json"),
        *("--output", tmp_path / "b", "--json", "--threads", 1),
    )
    kept = json.loads((tmp_path / "b" / "config.json").read_text())
    assert kept == {**config, "output": str(tmp_path / "b")}
    assert json.loads(again.stdout)["test"] == json.loads(first.stdout)["test"]


def test_the_command_line_goes_before_the_configuration(iha, tmp_path, tiny_compose):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"steps": 4, "variant": "plain", "evaluate-every": 0}))
    result = iha("train", "compose", "--config", config, *tiny_compose, "--output", tmp_path / "run", "--json")
    summary = json.loads(result.stdout)
    assert summary["steps"] == 6 and summary["mixer"] == "plain"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"steps": null}', '{"steps": {"a": 1}}', '{"stepz": 3}', '{"steps": "x"}'])
def test_a_bad_configuration_is_wrong_usage(iha, tmp_path, content):
    config = tmp_path / "config.json"
    config.write_text(content)
    iha("train", "compose", "--config", config, "--output", tmp_path / "run", status=2)


def test_a_run_is_not_overwritten_unasked(iha, tmp_path, tiny_compose):
    arguments = ["train", "compose", *tiny_compose, "--output", tmp_path / "run"]
    iha(*arguments)
    assert "--resume" in iha(*arguments, status=1).stderr
    iha(*arguments, "--overwrite")
    iha(*arguments, "--resume")


def test_quickstart_runs_its_whole_main_job(binary, tmp_path):
    if binary.parent.parent.name != "release":
        pytest.skip("scripts/quickstart runs the preset release")
    script = SOURCE / "scripts" / "quickstart"
    command = [script, "--skip-build", "--fast", "--output", "quick start"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    shown = result.stdout
    assert shown.index("$ build/release/bin/iha train lm") < shown.index("bits a byte on")
    assert shown.index("bits a byte on") < shown.index("$ build/release/bin/iha compare compose")
    rows = json.loads((tmp_path / "quick start" / "summary.json").read_text())
    assert [row["mixer"] for row in rows] == [
        *("plain", "plain_8", "plain_8_free", "plain_residual_norm", "plain_equal_compute"),
        *("mixed", "averaged", "interleaved"),
    ]
    assert "causal_strided:8" in (tmp_path / "quick start" / "report.html").read_text()
    assert subprocess.run([script, "--no-such"], capture_output=True).returncode == 2
