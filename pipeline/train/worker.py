"""What one rank does in a step and after it: learn, measure, decide, save."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pipeline.contract.errors import NotFiniteError, TrainingError
from pipeline.model.checkpoint_manifest import ROLLING
from pipeline.train.backoff import StepRunner
from pipeline.train.checkpoint import CheckpointLabel, capture_state
from pipeline.train.checkpoint_writer import CheckpointWriter
from pipeline.train.device_memory import MemoryReading, read_memory, reset_peak
from pipeline.train.group import Group, seed_step
from pipeline.train.guards import not_finite, skipped_too_often
from pipeline.train.history import StepRecord, ValidationRecord
from pipeline.train.loader import LoadedStep
from pipeline.train.memory_watch import MemoryWatch
from pipeline.train.recorder import Recorder
from pipeline.train.resume import Start
from pipeline.train.rng import capture_rng
from pipeline.train.schedule import lr_at
from pipeline.train.step import Optimisation
from pipeline.train.training_run import TrainingRun
from pipeline.train.validation import Validator


class Worker:
    """What one rank holds between steps.

    What is due is decided from what all ranks know alike, so all do the same without asking.
    """

    def __init__(
        self,
        run: TrainingRun,
        state: Optimisation,
        start: Start,
        *,
        group: Group,
        recorder: Recorder,
        writer: CheckpointWriter | None,
    ) -> None:
        """Begin where ``start`` says; the writer is rank 0's alone."""
        self._run, self._state, self._group = run, state, group
        self._recorder, self._writer = recorder, writer
        self._schedule = run.schedule
        self._best, self._skips = start.best, start.skips
        self._runner = StepRunner(
            state,
            group=group,
            micro_batch=start.micro_batch,
            on_out_of_memory=self._tell_out_of_memory,
            report_dir=run.checkpoint_dir,
        )
        self._step_now = start.step
        self._memory_watch = MemoryWatch()
        self._last: StepRecord | None = None
        self._is_best = False
        self._saved_step, self._saved_file = start.step, start.file
        self._validator: Validator | None = None
        self.is_done = False
        """Whether the last step has been done and, after the save, its checkpoint is there."""
        if start.message:
            recorder.event("resumed", start.message, step=start.step)

    def learn(self, steps: Iterator[LoadedStep]) -> StepRecord:
        """Do the next step, measure the validation rows if they are due, and tell of both.

        Raises:
            TrainingError: the step cannot be done or all are skipped; on every rank. The state
                before the step is in a checkpoint.
            FolderError: the checkpoint before could not be written; on rank 0.
        """
        if self._writer:
            self._writer.check()
        rng = capture_rng(self._state.device)
        # A forward pass may change buffers, such as BatchNorm's means, before its loss is known.
        buffers = [buffer.clone() for buffer in self._state.model.buffers()]
        started = time.perf_counter()
        loaded = next(steps)
        try:
            record = self._step(loaded, started=started)
        except NotFiniteError as error:
            self._leave_state_before(rng, buffers)
            raise self._tell_not_finite(error, step=loaded.step) from error
        except TrainingError:
            self._leave_state_before(rng, buffers)
            raise
        self._last = record
        self._recorder.step(record)
        self._watch_memory(record)
        self._count_skipped(record, loaded)
        measured = self._validate(record) if self._run.is_validated(record.step) else None
        self._is_best = measured is not None and measured.is_best
        self.is_done = self._is_last(record, has_measured=measured is not None)
        return record

    def save_if_due(self, record: StepRecord, *, notice: str | None) -> bool:
        """Save the step that :meth:`learn` did if that is due; return whether it was.

        Args:
            record: from :meth:`learn`.
            notice: why the state must be on the disk before anything else is done, or None.
        """
        kind = self._run.checkpoint_kind(record.step, is_last=self.is_done, is_best=self._is_best)
        if kind is None and notice is None:
            return False
        self._save(record, kind or ROLLING, rng=capture_rng(self._state.device))
        if self._writer and (self.is_done or notice is not None):
            self._writer.finish()
        if notice is not None:
            message = f"{notice}; step {record.step} is saved"
            self._recorder.event("preempted", message, step=record.step)
        return True

    def _step(self, loaded: LoadedStep, *, started: float) -> StepRecord:
        reset_peak(self._state.device)
        self._step_now = loaded.step
        lr = lr_at(self._schedule, loaded.step)
        self._state.set_lr(lr)
        begin = partial(seed_step, self._run.job.seed, step=loaded.step, rank=self._group.rank)
        result = self._runner.run(loaded.micro_batches, begin=begin, step=loaded.step)
        seconds = time.perf_counter() - started
        memory = read_memory(self._state.device)
        return StepRecord(
            step=loaded.step,
            epoch=loaded.epoch,
            loss=result.loss,
            lr=lr,
            grad_norm=None if result.is_skipped else result.grad_norm,
            tokens=result.tokens,
            padding_share=1.0 - result.tokens / result.padded_tokens,
            seconds=seconds,
            loss_scale=result.loss_scale,
            skipped=result.is_skipped,
            micro_batch=self._runner.micro_batch,
            longest=max((micro.input_ids.shape[1] for micro in loaded.micro_batches), default=0),
            memory_allocated_bytes=memory.allocated_bytes,
            memory_reserved_bytes=memory.reserved_bytes,
            memory_peak_bytes=memory.peak_bytes,
        )

    def _tell_out_of_memory(self, message: str, limit: int) -> None:
        self._recorder.event("out_of_memory", message, step=self._step_now)

    def _tell_not_finite(self, error: NotFiniteError, *, step: int) -> NotFiniteError:
        # The remedy is for whoever reads the error itself; the event keeps what happened.
        left = f"; the newest checkpoint is {self._saved_file}" if self._saved_file else ""
        self._recorder.event("not_finite", f"{error}{left}", step=step)
        precision = self._run.job.train.precision
        return not_finite(error, precision=precision, saved=self._saved_file)

    def _watch_memory(self, record: StepRecord) -> None:
        reading = MemoryReading(
            allocated_bytes=record.memory_allocated_bytes,
            reserved_bytes=record.memory_reserved_bytes,
            peak_bytes=record.memory_peak_bytes,
        )
        if found := self._memory_watch.observe(record.step, reading, record.longest):
            kind, message = found
            self._recorder.event(kind, message, step=record.step)

    def _count_skipped(self, record: StepRecord, loaded: LoadedStep) -> None:
        self._skips = self._skips.after(is_skipped=record.skipped)
        if self._skips.is_worth_telling:
            message = (
                f"the gradients overflowed at a loss scale of {record.loss_scale:g}, so the step "
                f"changed no weight; {self._skips.total} such steps so far"
            )
            self._recorder.event("skipped", message, step=record.step)
        if self._skips.is_hopeless:
            rows = [row for micro in loaded.micro_batches for row in micro.row_ids]
            raise skipped_too_often(
                self._skips,
                scale=record.loss_scale,
                row_ids=self._group.gather(rows),
                saved=self._saved_file,
            )

    def _validate(self, record: StepRecord) -> ValidationRecord:
        started = time.perf_counter()
        if self._validator is None:
            self._validator = Validator(
                self._run,
                self._state,
                group=self._group,
                on_out_of_memory=self._tell_out_of_memory,
            )
        try:
            figures = self._validator.measure(micro_batch=self._runner.micro_batch)
        except NotFiniteError as error:
            raise self._tell_not_finite(error, step=record.step) from error
        self._best = self._best.after(figures.value_of(self._best.metric), step=record.step)
        measured = ValidationRecord(
            step=record.step,
            epoch=record.epoch,
            **asdict(figures),
            is_best=self._best.step == record.step,
            seconds=time.perf_counter() - started,
        )
        self._recorder.validation(measured)
        return measured

    def _is_last(self, record: StepRecord, *, has_measured: bool) -> bool:
        if record.step == self._run.total_steps:
            return True
        patience = self._run.job.train.early_stopping_patience
        if not has_measured or not self._best.is_exhausted(patience):
            return False
        best = self._best
        message = (
            f"stopped after step {record.step} of {self._run.total_steps}: {best.num_worse} "
            f"measurements in a row with no better {best.metric} of the validation rows than "
            f"{best.value:.4f} after step {best.step}"
        )
        self._recorder.event("early_stop", message, step=record.step)
        return True

    def _leave_state_before(self, rng: dict[str, Any], buffers: list[Tensor]) -> None:
        # The failed step has changed no weights. What is before the first step, the seed makes;
        # what a resumed run begins with, is in its checkpoint.
        for buffer, before in zip(self._state.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        if self._last is not None and self._saved_step < self._last.step:
            self._save(self._last, ROLLING, rng=rng)
        if self._writer:
            self._writer.finish()

    def _save(self, record: StepRecord, kind: str, *, rng: dict[str, Any]) -> None:
        label = CheckpointLabel(
            step=record.step,
            loss=record.loss,
            kind=kind,
            is_best=self._is_best,
        )
        self._saved_step, self._saved_file = record.step, label.file_name
        all_rng = self._group.gather_objects(rng)
        if self._writer is None:
            return
        facts = {
            **self._run.facts,
            "schedule": asdict(self._schedule),
            "epoch": record.epoch,
            "steps_in_epoch": self._run.place_in_epoch(record.step),
            "best": asdict(self._best),
            "skips": asdict(self._skips),
            "micro_batch": {
                "set": self._run.job.train.micro_batch,
                "used": self._runner.micro_batch,
            },
            "world_size": self._group.world_size,
            "num_threads": torch.get_num_threads(),
        }
        state = capture_state(self._state, step=record.step, rng=all_rng, facts=facts)
        self._writer.submit(state, label)
