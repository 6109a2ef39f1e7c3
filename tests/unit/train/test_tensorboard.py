import struct

from record_samples import record_of, validation_of, write_history
from tensorboardX.proto.event_pb2 import Event as Point
from tensorboardX.proto.event_pb2 import SessionLog

from pipeline.train.events import Event
from pipeline.train.figures import FigureObserver
from pipeline.train.tensorboard import TENSORBOARD_DIR, TensorBoardSink


class Clock:
    """Moves on by a fixed time at each look."""

    def __init__(self, step_s):
        self._now_s, self._step_s = 1_800_000_000.0, step_s

    def __call__(self):
        self._now_s += self._step_s
        return self._now_s


def read_points(folder):
    """Return the points of all files as they lie there: a length, its check, content, check."""
    for path in sorted((folder / TENSORBOARD_DIR).iterdir()):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (size,) = struct.unpack_from("<Q", content, place)
            yield Point.FromString(content[place + 12 : place + 12 + size])
            place += size + 16


def read_curve(folder, tag):
    """Return steps and values of a curve as TensorBoard does: a start hides later steps."""
    found = []
    for point in read_points(folder):
        if point.session_log.status == SessionLog.START:
            found = [(step, value) for step, value in found if step < point.step]
        found += [(point.step, v.simple_value) for v in point.summary.value if v.tag == tag]
    return found


def train(folder, steps, *, clock=None, loss=0.5):
    observer = FigureObserver(folder, [TensorBoardSink(folder, clock=clock or Clock(0.01))])
    for step in steps:
        observer.on_step(record_of(step, loss=loss))
        if step % 2 == 0:
            observer.on_validation(validation_of(step))
    return observer


def test_curves_hold_every_step_and_every_measurement(tmp_path):
    train(tmp_path, [1, 2, 3]).close()

    assert read_curve(tmp_path, "train/loss") == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert read_curve(tmp_path, "train/tokens_per_second") == [(1, 3000), (2, 3000), (3, 3000)]
    assert read_curve(tmp_path, "train/memory_peak_bytes")[0] == (1, 34_000_000)
    assert [step for step, _ in read_curve(tmp_path, "validation/accuracy")] == [2]
    assert read_curve(tmp_path, "train/memory_reserved_bytes") == []


def test_resumed_training_has_no_step_twice(tmp_path):
    write_history(tmp_path, [])
    train(tmp_path, range(1, 8), loss=0.5).close()

    train(tmp_path, range(5, 10), loss=0.25, clock=Clock(1.0)).close()

    losses = read_curve(tmp_path, "train/loss")
    assert losses == [(step, 0.5 if step < 5 else 0.25) for step in range(1, 10)]
    assert [step for step, _ in read_curve(tmp_path, "validation/loss")] == [2, 4, 6, 8]
    assert len(list((tmp_path / TENSORBOARD_DIR).iterdir())) == 2


def test_points_reach_the_disk_every_five_seconds_without_a_close(tmp_path):
    observer = train(tmp_path, range(1, 11), clock=Clock(1.0))

    on_disk = [step for step, _ in read_curve(tmp_path, "train/loss")]

    assert len(on_disk) >= 5
    observer.close()


def test_events_stand_beside_the_curves_also_those_before_the_first_step(tmp_path):
    sink = TensorBoardSink(tmp_path, clock=Clock(0.01))

    sink.write_event(Event(step=4, kind="resumed", message="goes on", time_s=0.0))
    sink.write_figures({"loss": 1.0}, step=5)
    sink.write_event(Event(step=5, kind="skipped", message="overflow", time_s=0.0))
    sink.close()

    texts = [
        (point.step, value.tag, value.tensor.string_val[0].decode())
        for point in read_points(tmp_path)
        for value in point.summary.value
        if value.tensor.string_val
    ]
    assert texts == [
        (4, "events/resumed/text_summary", "goes on"),
        (5, "events/skipped/text_summary", "overflow"),
    ]


def test_training_without_a_step_leaves_no_file(tmp_path):
    TensorBoardSink(tmp_path).close()

    assert list(tmp_path.iterdir()) == []
