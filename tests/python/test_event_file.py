"""Event files, read back by tensorboard."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader


@pytest.fixture(scope="module")
def run(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    program("io_files", "events", folder)
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


def test_scalars(run):
    read = run.Scalars("train/loss")
    assert [event.step for event in read] == list(range(160))
    for event in read[:150]:
        assert event.value == pytest.approx(1 / (event.step + 1), rel=1e-7)
    times = [event.wall_time for event in read]
    assert times == sorted(times) and times[0] > 1.7e9


def test_a_resumed_run_replaces_what_it_repeats(run):
    assert [event.value for event in run.Scalars("train/loss")[150:]] == [-float(step) for step in range(150, 160)]


def test_steps_and_values_are_large(run):
    (event,) = run.Scalars("far")
    assert event.step == 2**40 and event.value == pytest.approx(3e38)


def test_text(run):
    (event,) = run.Tensors("sample")
    assert event.step == 199
    assert event.tensor_proto.string_val[0].decode() == "def f():\n    return '\ufffd <b>'"
    assert run.SummaryMetadata("sample").plugin_data.plugin_name == "text"


def test_a_file_cut_anywhere_keeps_its_whole_records(program, tmp_path):
    program("io_files", "events", tmp_path / "a")
    (first, _) = sorted((tmp_path / "a").iterdir(), key=lambda path: path.name[-1])
    data = first.read_bytes()
    cut = tmp_path / "events.out.tfevents.1.cut"
    cut.write_bytes(data[: len(data) // 2])
    events = list(EventFileLoader(str(cut)).Load())
    assert 50 < len(events) < 202
