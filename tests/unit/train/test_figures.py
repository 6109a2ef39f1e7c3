from pathlib import Path

from record_samples import record_of, validation_of, write_history

from pipeline.train.events import Event
from pipeline.train.figures import (
    FIGURES,
    FigureObserver,
    count_skipped,
    step_figures,
    validation_figures,
)


class ListSink:
    """Keeps what it is given."""

    def __init__(self):
        self.written, self.events, self.is_closed = [], [], False

    def write_figures(self, figures, *, step):
        self.written.append((step, figures))

    def write_event(self, event):
        self.events.append(event)

    def close(self):
        self.is_closed = True


class BrokenSink(ListSink):
    def close(self):
        raise OSError("disk full")


def test_every_figure_has_a_name_and_every_name_a_figure():
    record = record_of(1, memory_reserved_bytes=1)

    given = step_figures(record, num_skipped=0) | validation_figures(
        validation_of(1, entity_f1=0.5)
    )

    assert list(given) == [figure.name for figure in FIGURES]


def test_figures_that_a_step_does_not_have_are_left_out():
    figures = step_figures(record_of(1, grad_norm=None), num_skipped=0)

    assert not {"grad_norm", "memory_reserved_bytes"} & set(figures)
    assert "validation_entity_f1" not in validation_figures(validation_of(1))


def test_skipped_total_goes_on_from_the_history_before_the_first_step(tmp_path):
    write_history(tmp_path, [record_of(step, skipped=step % 2 == 0) for step in range(1, 9)])
    sink = ListSink()
    observer = FigureObserver(tmp_path, [sink])

    observer.on_step(record_of(8, skipped=True))
    observer.on_step(record_of(9))
    observer.on_step(record_of(10, skipped=True))

    assert [figures["skipped_steps_total"] for _, figures in sink.written] == [4, 4, 5]
    assert count_skipped(tmp_path, before_step=5) == 2
    assert count_skipped(tmp_path / "nothing", before_step=5) == 0


def test_all_sinks_are_told_and_closed_though_one_cannot_close(tmp_path):
    sinks = [ListSink(), BrokenSink(), ListSink()]
    observer = FigureObserver(tmp_path, sinks)
    event = Event(step=1, kind="skipped", message="overflow", time_s=0.0)

    observer.on_validation(validation_of(3))
    observer.on_event(event)
    try:
        observer.close()
    except OSError as error:
        problem = str(error)

    assert problem == "disk full"
    assert [sink.is_closed for sink in sinks] == [True, False, True]
    assert all(sink.events == [event] for sink in sinks)
    assert all(sink.written == [(3, validation_figures(validation_of(3)))] for sink in sinks)


def test_readme_has_exactly_the_figures_of_the_code():
    readme = Path(__file__).parents[3] / "pipeline/train/README.md"

    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in readme.read_text(encoding="utf-8").splitlines()
        if "| `textlane_train_" in line
    ]

    assert rows == [
        (f"`textlane_train_{figure.name}`", f"`{figure.tag}`", figure.meaning) for figure in FIGURES
    ]
