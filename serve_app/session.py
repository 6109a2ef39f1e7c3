"""One ONNX Runtime session over ``int64 [batch, seq]`` arrays; no Ray, no HTTP."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray, group_by_tokens, pad_rows
from pipeline.contract.errors import ConfigError, FolderError, InferenceError
from pipeline.contract.runtime_options import disabled_optimizers

_INPUT_NAMES = ["input_ids", "attention_mask"]
_OUTPUT_NAME = "logits"
_logger = logging.getLogger(__name__)

Row = NDArray[np.int32]
Logits = NDArray[np.float32]


class ScoringSession:
    """A loaded model; safe to call from several threads at once."""

    def __init__(
        self,
        model_path: Path,
        *,
        pad_token_id: int,
        num_labels: int,
        num_threads: int,
        device: str = "cpu",
    ) -> None:
        """Load a model file onto ``cpu`` or ``cuda``.

        Raises:
            ConfigError: the installed ONNX Runtime cannot use that device.
            FolderError: ONNX Runtime refuses the file, or its inputs and outputs are others.
        """
        providers = _providers(device)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.inter_op_num_threads = 1
        # The arena stays as it is: bounded over random shapes, and no policy held less for long
        # (measured 2026-12-02, tests/perf/RESULTS.md).
        options.log_severity_level = 4  # What goes wrong is raised; twice would confuse.
        # Spinning threads of an idle lane would take the cores of a busy one.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(
                str(model_path),
                options,
                providers=providers,
                disabled_optimizers=disabled_optimizers(device),
            )
        except Exception as error:  # onnxruntime's own types share no base of their own
            raise FolderError(
                f"ONNX Runtime cannot load the model: {error}", place=str(model_path)
            ) from error
        inputs = [value.name for value in self._session.get_inputs()]
        outputs = [value.name for value in self._session.get_outputs()]
        if sorted(inputs) != sorted(_INPUT_NAMES) or _OUTPUT_NAME not in outputs:
            raise FolderError(
                f"the model must map {_INPUT_NAMES} to {_OUTPUT_NAME!r}",
                place=str(model_path),
                value={"inputs": inputs, "outputs": outputs},
                remedy="Export the bundle again with this version.",
            )
        self._model_path = model_path
        self._pad_token_id = pad_token_id
        self._num_labels = num_labels

    def run(self, input_ids: IntArray, attention_mask: IntArray) -> Logits:
        """Return logits, ``float32 [batch, num_labels]`` or ``[batch, seq, num_labels]``.

        Args:
            input_ids: ``int64 [batch, seq]``.
            attention_mask: ``int64 [batch, seq]``, 1 on real tokens.

        Raises:
            InferenceError: the run failed or gave a number that is not finite.
        """
        feeds = {"input_ids": input_ids, "attention_mask": attention_mask}
        try:
            logits = np.asarray(self._session.run([_OUTPUT_NAME], feeds)[0], dtype=np.float32)
        except Exception as error:  # as above
            raise InferenceError("the model failed on this text") from error
        if not np.isfinite(logits).all():
            raise InferenceError("the model gave logits that are not finite")
        return logits

    def score_group(self, rows: Sequence[Row]) -> list[Logits | InferenceError]:
        """Return each row's logits, run as one padded batch; what failed is its error.

        A row's logits are ``[num_labels]``, or ``[its own length, num_labels]``. When the
        batch fails, its rows run again one by one, so that a bad row fails alone.
        """
        try:
            return list(self._score_padded(rows))
        except InferenceError as error:
            if len(rows) == 1:
                return [error]
            _logger.warning("%d rows run one by one, together they failed: %s", len(rows), error)
        return [outcome for row in rows for outcome in self.score_group([row])]

    def _score_padded(self, rows: Sequence[Row]) -> Iterable[Logits]:
        logits = self.run(*pad_rows(rows, pad_value=self._pad_token_id))
        if logits.ndim == 2:
            return list(logits)
        return [logits[index, : len(row)] for index, row in enumerate(rows)]

    def warm_up(self, shapes: Iterable[tuple[int, int]]) -> None:
        """Run once for each (batch, seq), so that no request pays for the first allocation.

        Raises:
            InferenceError: the model cannot run at a shape it must serve.
            FolderError: it scores another number of labels than the bundle names.
        """
        for shape in shapes:
            input_ids = np.full(shape, self._pad_token_id, dtype=np.int64)
            logits = self.run(input_ids, np.ones(shape, dtype=np.int64))
            if logits.shape[-1] != self._num_labels:
                raise FolderError(
                    f"the bundle names {self._num_labels} labels, the model scores others",
                    place=str(self._model_path),
                    value=logits.shape[-1],
                )


def score_rows(
    session: ScoringSession,
    rows: Sequence[Row],
    *,
    max_batch_tokens: int,
    max_batch_requests: int,
    on_group: Callable[[Sequence[int]], None] | None = None,
) -> list[Logits | InferenceError]:
    """Return each row's logits or error in the order of the rows, run in padded groups.

    Args:
        session: the model.
        rows: token ids, each ``int32 [seq]``.
        max_batch_tokens: padded tokens of one model run.
        max_batch_requests: rows of one model run.
        on_group: is told the lengths of each group after its run.
    """
    outcomes: dict[int, Logits | InferenceError] = {}
    groups = group_by_tokens(
        [len(row) for row in rows],
        max_batch_tokens=max_batch_tokens,
        max_batch_requests=max_batch_requests,
    )
    for group in groups:
        scored = session.score_group([rows[index] for index in group])
        outcomes.update(zip(group, scored, strict=True))
        if on_group:
            on_group([len(rows[index]) for index in group])
    return [outcomes[index] for index in range(len(rows))]


def _providers(device: str) -> list[str]:
    wanted = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[device]
    available = onnxruntime.get_available_providers()
    if wanted not in available:
        raise ConfigError(
            f"the installed ONNX Runtime has no {wanted}, only {', '.join(available)}",
            place="device",
            value=device,
            remedy="Install onnxruntime-gpu in onnxruntime's place, or set device to cpu.",
        )
    return list(dict.fromkeys([wanted, "CPUExecutionProvider"]))
