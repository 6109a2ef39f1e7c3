"""Measures the validation rows during training, over all ranks, without touching what is learned.

Every rank measures its share of the rows; only sums are exchanged, so all ranks hold the same
figures, bit for bit, and decide alike on the best weights and on stopping early.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pipeline.contract.errors import NotFiniteError
from pipeline.contract.label_sets import given_labels, label_scores
from pipeline.contract.shards import load_shards
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.data.slices import SliceSettings, slice_starts
from pipeline.quality import ClassScore, entities_of, is_bio, mean_f1, precision_recall_f1, tags_of
from pipeline.train.backoff import describe_retry, halve_below, row_too_large
from pipeline.train.group import Group
from pipeline.train.micro_batches import MicroBatch, MicroBatchReader, split_micro_batches
from pipeline.train.out_of_memory import (
    FailedPass,
    OutOfMemory,
    describe_failure,
    free_caches,
    gather_shortages,
    is_out_of_memory,
)
from pipeline.train.rng import keep_rng
from pipeline.train.step import Optimisation, row_losses
from pipeline.train.training_run import TrainingRun

_Counts = NDArray[np.float64]
_Result = tuple[_Counts, NDArray[np.float32]]
"""Loss of each row, and logits, of one pass."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the validation rows say of the weights."""

    loss: float
    accuracy: float
    macro_f1: float
    entity_f1: float | None
    """None unless the labels are BIO tags."""

    def value_of(self, metric: str) -> float:
        """Return the figure that a ``train.best_metric`` names."""
        value = getattr(self, metric)
        assert isinstance(value, float), f"{metric} was to be refused when the run was planned"
        return value


class Validator:
    """Holds the validation rows of one rank."""

    def __init__(
        self,
        run: TrainingRun,
        state: Optimisation,
        *,
        group: Group,
        on_out_of_memory: Callable[[str, int], None] = lambda message, limit: None,
    ) -> None:
        """Map the rows; they are dealt to the ranks by length, so that all have as much work.

        Args:
            run: names the shards.
            state: the model.
            group: this worker's rank and its sums over all ranks.
            on_out_of_memory: called on every rank with a sentence and the new limit of rows in
                a pass on the rank that ran out.
        """
        shards = load_shards(run.shards_dir, verify=False)
        split = shards.split("validation")
        self._state, self._group = state, group
        self._on_out_of_memory = on_out_of_memory
        self._limit: int | None = None
        self._architecture = run.architecture
        self._bucket_edges, self._max_padding = shards.bucket_edges, run.job.buckets.max_padding
        is_tagged = run.architecture.is_token_task and is_bio(shards.labels)
        self._tags = shards.labels if is_tagged else []
        self._lengths = split.lengths
        self._rows = np.argsort(self._lengths, kind="stable")[group.rank :: group.world_size]
        self._split = split

    def measure(self, *, micro_batch: int) -> Figures:
        """Return the figures over all ranks' rows; modes and generators stay as they were.

        A rank whose memory runs out repeats the pass, and runs all later ones, with half as many
        rows; ranks need not agree on that, as only sums are exchanged.

        Args:
            micro_batch: rows in one forward pass at most.

        Raises:
            NotFiniteError: the loss of a row is not finite; on every rank, with the rows.
            TrainingError: a row does not fit alone; on every rank.
        """
        num_labels = self._architecture.num_labels
        sums, bad_rows = np.zeros(6 + 3 * num_labels), []
        failed: FailedPass | None = None
        with _evaluating(self._state.model), keep_rng(self._state.device), torch.no_grad():
            for micro, result in self._run_all(micro_batch):
                if isinstance(result, FailedPass):
                    failed = result
                    continue
                losses, logits = result
                is_bad = ~np.isfinite(losses)
                bad_rows += [row for row, bad in zip(micro.row_ids, is_bad, strict=True) if bad]
                sums += self._count(micro, losses, logits)
        total = torch.from_numpy(np.append(sums, failed is not None)).to(self._state.device)
        self._group.sum_(total)
        *found, num_failed = total.tolist()
        if num_failed:
            self._tell(gather_shortages(failed, self._group), micro_batch=micro_batch)
        return self._figures(np.array(found), bad_rows)

    def _run_all(self, micro_batch: int) -> Iterator[tuple[MicroBatch, _Result | FailedPass]]:
        """Yield what becomes of every pass; one that did not fit comes again, divided.

        A row that does not fit alone is the last.
        """
        self._limit = min(self._limit or micro_batch, micro_batch)
        for micro in self._read(micro_batch):
            waiting = split_micro_batches([micro], self._limit)
            while waiting:
                result = self._try(waiting[0])
                yield waiting[0], result
                if not isinstance(result, FailedPass):
                    waiting = waiting[1:]
                    continue
                if result.shortage.rows == 1:
                    return
                self._limit = halve_below(self._limit, result.shortage.rows)
                waiting = split_micro_batches(waiting, self._limit)

    def _try(self, micro: MicroBatch) -> _Result | FailedPass:
        try:
            return self._run(micro)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = describe_failure(
                error, micro, rank=self._group.rank, device=self._state.device
            )
        # Only now, without the error, nothing holds the tensors of the failed pass.
        free_caches(self._state.device)
        return failed

    def _tell(self, found: OutOfMemory, *, micro_batch: int) -> None:
        worst, when = min(found.shortages, key=lambda shortage: shortage.rows), "in validation"
        if worst.rows == 1:
            raise row_too_large(worst, when=when)
        limit = halve_below(micro_batch, worst.rows)
        self._on_out_of_memory(describe_retry(worst, when=when, limit=limit), limit)

    def _read(self, micro_batch: int) -> Iterator[MicroBatch]:
        slices = SliceSettings(
            micro_batch=micro_batch,
            bucket_edges=self._bucket_edges,
            max_padding=self._max_padding,
        )
        reader = MicroBatchReader(
            self._split,
            slices=slices,
            pad_token_id=self._architecture.pad_token_id,
            is_token_task=self._architecture.is_token_task,
            multi_hot_size=self._architecture.multi_hot_size,
        )
        for begin, end in pairwise(slice_starts(self._lengths[self._rows], slices).tolist()):
            yield from reader.read(self._rows[begin:end], epoch=0)

    def _run(self, micro: MicroBatch) -> _Result:
        there, dtype = micro.to(self._state.device), self._state.autocast_dtype
        is_mixed = dtype is not torch.float32
        with torch.autocast(self._state.device.type, dtype=dtype, enabled=is_mixed):
            logits = self._state.model(there.input_ids, there.attention_mask)
        logits = logits.float()
        losses = row_losses(logits, there.labels).double()
        return losses.cpu().numpy(), logits.cpu().numpy()

    def _count(self, micro: MicroBatch, losses: _Counts, logits: NDArray[np.float32]) -> _Counts:
        """Return ``[loss, weight, right, *entities (3), *labels (3 of each)]`` of one pass."""
        labels, num_labels = micro.labels.numpy(), self._architecture.num_labels
        if self._architecture.multi_hot_size is not None:
            true, given = labels > 0, given_labels(label_scores(logits))
            right = (true == given).all(axis=1).sum()
            by_label = [(true & given).sum(axis=0), given.sum(axis=0), true.sum(axis=0)]
        else:
            is_labelled = labels != IGNORED_LABEL
            wanted, found = labels[is_labelled], logits.argmax(axis=-1)[is_labelled]
            right = (wanted == found).sum()
            by_label = [
                np.bincount(values, minlength=num_labels)
                for values in (wanted[wanted == found], found, wanted)
            ]
        head = [losses.sum(), micro.num_labelled, right]
        return np.concatenate([head, _count_entities(logits, labels, self._tags), *by_label])

    def _figures(self, sums: _Counts, bad_rows: list[int]) -> Figures:
        loss, weight, right = sums[:3].tolist()
        if not math.isfinite(loss):
            raise NotFiniteError(
                "the loss of validation rows is not finite",
                place=f"rows {', '.join(map(str, self._group.gather(bad_rows)))}",
            )
        entities, by_label = sums[3:6].astype(int).tolist(), sums[6:].astype(int).reshape(3, -1)
        return Figures(
            loss=loss / max(weight, 1.0),
            accuracy=right / max(weight, 1.0),
            macro_f1=mean_f1([_score(*counts) for counts in by_label.T.tolist()]),
            entity_f1=precision_recall_f1(*entities)["f1"] if self._tags else None,
        )


def _score(hits: int, predicted: int, support: int) -> ClassScore:
    shares = precision_recall_f1(hits, predicted, support)
    return ClassScore(**shares, support=support, predicted=predicted)


def _count_entities(
    logits: NDArray[np.float32], labels: NDArray[np.integer], names: Sequence[str]
) -> list[int]:
    """Return the entities found rightly, found, and there; all 0 without BIO names."""
    counts = [0, 0, 0]
    for row_logits, row_labels in zip(logits, labels, strict=True) if names else ():
        true_tags, found_tags = tags_of(row_logits, row_labels.astype(np.int32), names)
        true, found = set(entities_of(true_tags)), set(entities_of(found_tags))
        for at, entities in enumerate((true & found, found, true)):
            counts[at] += len(entities)
    return counts


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    # Each module's own mode is put back: a user's model may keep parts of it in eval mode.
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, is_training in modes:
            module.training = is_training
