"""Explores what each linear costs in INT8 and proposes which to keep float."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipeline.config import JobConfig, Task
from pipeline.contract.bundle import FP32_NAME, INT8_NAME
from pipeline.contract.disk import explain_full_disk
from pipeline.contract.errors import ExportError, FolderError
from pipeline.contract.label_sets import given_labels, label_scores
from pipeline.contract.shards import Shards, ShardSplit, load_shards
from pipeline.export.build import modules_outside_encoder
from pipeline.export.exclusion_search import find_exclusions
from pipeline.export.external_data import load_model, save_model
from pipeline.export.figures import GATE_SPLIT, ScoreSettings, judge_int8, spread_rows
from pipeline.export.fill import DISK_NEEDS, demand_rows
from pipeline.export.int8_choice import write_int8
from pipeline.export.int8_graph import prepare_graph
from pipeline.export.onnx_graph import export_graph
from pipeline.export.onnx_session import LogitsFunction, open_model
from pipeline.export.partial_int8 import PartialInt8
from pipeline.export.row_logits import TokenRow, mean_error, run_rows
from pipeline.export.sensitivity_report import Effect, SensitivityReport
from pipeline.export.weighted_nodes import name_linears
from pipeline.model.trained import TrainedModel, load_trained
from pipeline.multi_label_quality import score_logits
from pipeline.quality import FloatArray, accuracy, join_labelled

_MOST_PROBES = 512
_MOST_CHOICE_ROWS = 64
"""As export: INT8's scales are chosen on so many rows."""
_TOGETHER = "all together"
_PLAIN_NAME, _FULL_NAME, _TRIAL_NAME = "plain.onnx", "full.onnx", "trial.onnx"
Advance = Callable[[], None]


def explore_sensitivity(job: JobConfig, *, console: Console) -> SensitivityReport:
    """Measure every linear alone in INT8 and find what the gate needs kept float.

    The job's own ``export.keep_float`` is left aside: the proposal is the whole list. It is
    tried as export would write it before it is proposed.

    Args:
        job: its checkpoint and shards are read, nothing of it is written.
        console: shows how far the work is.

    Raises:
        FolderError: (or a subtype) checkpoint or shards are missing, altered, unfinished
            or do not belong together.
        DataError: there are no validation rows.
        ExportError: a graph cannot be written or quantised.
    """
    trained, shards = load_trained(job.checkpoint_dir), load_shards(job.shards_dir)
    if trained.manifest["shards_fingerprint"] != shards.fingerprint:
        raise FolderError(
            "the checkpoint was trained on other shards than these",
            place=str(job.shards_dir),
            value=shards.fingerprint,
            remedy="Run `textlane train` with these settings first.",
        )
    demand_rows(shards, GATE_SPLIT)
    with (
        explain_full_disk(Path(job.output_dir), needs=DISK_NEEDS),
        tempfile.TemporaryDirectory(dir=job.output_dir, prefix=".sensitivity-") as folder,
    ):
        return _Exploration(job, trained, shards, Path(folder)).run(console)


@dataclass(frozen=True, kw_only=True)
class _Probes:
    rows: list[TokenRow]
    labels: list[NDArray[np.int32]]
    task: Task
    num_labels: int
    pad_token_id: int
    batch_rows: int

    def logits(self, run: LogitsFunction) -> list[FloatArray]:
        return run_rows(run, self.rows, pad_token_id=self.pad_token_id, batch_rows=self.batch_rows)

    def accuracy(self, logits: Sequence[FloatArray]) -> float:
        if self.task is Task.MULTI_LABEL:
            return score_logits(logits, self.labels, self.num_labels)["accuracy"]
        return accuracy(logits, self.labels)

    def decisions(self, logits: Sequence[FloatArray]) -> NDArray[Any]:
        # One line for each row (word) that bears a label.
        if self.task is Task.MULTI_LABEL:
            return given_labels(label_scores(np.stack(logits)))
        scores, _ = join_labelled(logits, self.labels)
        return np.asarray(scores.argmax(axis=-1)[:, None])

    def compare(self, name: str, run: LogitsFunction, right: Sequence[FloatArray]) -> Effect:
        logits = self.logits(run)
        flips = (self.decisions(logits) != self.decisions(right)).any(axis=1)
        return Effect(
            name=name,
            mean_error=mean_error(logits, right),
            label_flips=int(flips.sum()),
            accuracy_change=round(self.accuracy(logits) - self.accuracy(right), 9),
        )


class _Exploration:
    """One run over a model: the float graph, its INT8 twin and the trials between them."""

    def __init__(self, job: JobConfig, trained: TrainedModel, shards: Shards, folder: Path) -> None:
        self._job, self._trained, self._folder = job, trained, folder
        self._validation = shards.split(GATE_SPLIT)
        is_known = trained.architecture.factory is None
        self._outside = modules_outside_encoder(trained.model) if is_known else None
        self._probes = _Probes(
            rows=_spread(self._validation, _MOST_PROBES, self._validation.input_ids),
            labels=_spread(self._validation, _MOST_PROBES, self._validation.labels),
            task=Task(trained.task),
            num_labels=len(trained.labels),
            pad_token_id=trained.encoder.pad_token_id,
            batch_rows=job.evaluate.batch_rows,
        )

    def run(self, console: Console) -> SensitivityReport:
        plain, full = self._folder / _PLAIN_NAME, self._folder / _FULL_NAME
        export_graph(
            self._trained.model,
            plain,
            opset=self._job.export.opset,
            task=self._probes.task,
            num_labels=self._probes.num_labels,
            external_data_mb=self._job.export.external_data_mb,
        )
        reference = _Remembered(open_model(plain))
        right = self._probes.logits(reference)
        self._demand_finite(right)
        if not self._write_int8(full, ()):
            return self._report([], right, together=None, keep_float=())
        prepared = prepare_graph(plain, keep_float=self._outside)
        linears = name_linears(prepared.model.graph, prepared.products)
        partial = PartialInt8(prepared, load_model(full))

        def open_partial(names: Sequence[str]) -> LogitsFunction:
            nodes = {node for name in names for node in linears[name]}
            return self._open(partial, nodes)

        effects = []
        with _progress(console, "linears alone in INT8", total=len(linears)) as advance:
            for name in linears:
                effects.append(self._probes.compare(name, open_partial([name]), right))
                advance()
        effects.sort(key=lambda effect: (-effect.mean_error, effect.name))
        together = self._probes.compare(_TOGETHER, open_model(full), right)
        ranked = [effect.name for effect in effects]
        with _progress(console, "lists tried at the gate") as advance:

            def passes(kept: Sequence[str]) -> bool:
                advance()
                return self._passes(
                    reference, open_partial([name for name in ranked if name not in kept])
                )

            keep_float = self._propose(ranked, passes, reference)
        return self._report(effects, right, together=together, keep_float=keep_float)

    def _demand_finite(self, logits: Sequence[FloatArray]) -> None:
        if not all(np.isfinite(row).all() for row in logits):
            raise ExportError(
                "the float model gives logits that are not finite on validation rows",
                place=self._trained.checkpoint_file.name,
                remedy="Numbers overflow in it: train again with a lower train.base_lr or more "
                "train.weight_decay.",
            )

    def _propose(
        self,
        ranked: Sequence[str],
        passes: Callable[[Sequence[str]], bool],
        reference: LogitsFunction,
    ) -> Sequence[str] | None:
        found = find_exclusions(ranked, passes)
        if found is None:
            return None
        # Export chooses the scales anew for what is left, and its file is the one to be judged.
        longer = [tuple(ranked[:size]) for size in range(len(found) + 1, len(ranked))]
        for names in (found, *longer):
            path = self._folder / _TRIAL_NAME
            self._write_int8(path, names)
            if self._passes(reference, open_model(path)):
                return names
        return None

    def _passes(self, reference: LogitsFunction, int8: LogitsFunction) -> bool:
        settings = ScoreSettings(
            task=self._probes.task,
            num_labels=self._probes.num_labels,
            pad_token_id=self._probes.pad_token_id,
            batch_rows=self._probes.batch_rows,
            seed=self._job.seed,
        )
        models = {FP32_NAME: reference, INT8_NAME: int8}
        try:
            decision = judge_int8(models, self._validation, settings, self._job.export)
        except ExportError:  # INT8's logits are not finite; the float model's were looked at.
            return False
        return decision is not None and decision.passed

    def _write_int8(self, path: Path, names: Sequence[str]) -> bool:
        figures = write_int8(
            self._folder / _PLAIN_NAME,
            path,
            keep_float=self._outside,
            extra_keep_float=names,
            activations=self._job.export.int8_activations,
            rows=spread_rows(self._validation, most=_MOST_CHOICE_ROWS),
            pad_token_id=self._probes.pad_token_id,
        )
        return figures is not None

    def _open(self, partial: PartialInt8, nodes: set[str]) -> LogitsFunction:
        path = self._folder / _TRIAL_NAME
        save_model(partial.build(nodes), path)
        return open_model(path)

    def _report(
        self,
        effects: Sequence[Effect],
        right: Sequence[FloatArray],
        *,
        together: Effect | None,
        keep_float: Sequence[str] | None,
    ) -> SensitivityReport:
        return SensitivityReport(
            activations=self._job.export.int8_activations,
            rows=len(self._probes.rows),
            decisions=len(self._probes.decisions(right)),
            effects=tuple(effects),
            together=together,
            keep_float=keep_float,
        )


class _Remembered:
    """A model that answers each batch once: the gate asks the float model in every trial."""

    def __init__(self, run: LogitsFunction) -> None:
        self._run = run
        self._answers: dict[tuple[bytes, bytes, tuple[int, ...]], FloatArray] = {}

    def __call__(
        self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]
    ) -> FloatArray:
        key = (input_ids.tobytes(), attention_mask.tobytes(), input_ids.shape)
        if key not in self._answers:
            self._answers[key] = self._run(input_ids, attention_mask)
        return self._answers[key]


def _spread(
    split: ShardSplit, most: int, read: Callable[[int], NDArray[np.int32]]
) -> list[NDArray[np.int32]]:
    """Return of at most so many rows what ``read`` gives, evenly spread over the lengths."""
    order = np.argsort(split.lengths, kind="stable")
    places = np.linspace(0, len(order) - 1, num=min(most, len(order)), dtype=np.int64)
    return [read(int(order[place])) for place in places]


@contextmanager
def _progress(console: Console, doing: str, *, total: int | None = None) -> Iterator[Advance]:
    if not console.is_terminal:
        console.print(f"sensitivity: {doing}", highlight=False)
        yield lambda: None
        return
    columns = (TextColumn("sensitivity: {task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda: progress.advance(task)
