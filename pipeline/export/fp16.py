"""FP16: half the bytes of the FP32 model, for devices that compute in half precision."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.export.external_data import DEFAULT_EXTERNAL_DATA_MB, load_model
from pipeline.export.fusion import save_optimizer_model
from pipeline.export.onnx_session import LogitsFunction
from pipeline.export.parity import ParityCell, ParityResult, check_parity

FP16_TOLERANCE = 5e-2
"""Largest difference from torch's logits, as a share of the largest logit (at least 1).

Measured 2026-12-02 on the CPU, six layers of MiniLM under a head from the seed: 0.0013 of a
largest logit of 11.4, 0.0008 of 1. Chosen well above that, as deeper models add up more, and
far below what a lost mask or a number cut to 10,000 does.
"""


def write_fp16(
    source: Path, target: Path, *, external_data_mb: int = DEFAULT_EXTERNAL_DATA_MB
) -> None:
    """Write the FP16 model of an FP32 one, fused or not; inputs and logits keep their types.

    Operators that must not lose precision or have no half version stay float32, casts around
    them (``onnxruntime.transformers.float16``, ``DEFAULT_OP_BLOCK_LIST``). Numbers over 10,000
    are cut to it, that of the mask being just that.

    Raises:
        ExportError: the source cannot be read or the result not be written.
    """
    # Imported late: the package adds its folder to sys.path when it is imported.
    import onnxruntime.transformers.optimizer  # noqa: F401  # float16 is found through that path
    from onnxruntime.transformers.onnx_model import OnnxModel

    model = OnnxModel(load_model(source))
    # Symbolic, as the other inference does not know fused operators.
    model.convert_float_to_float16(use_symbolic_shape_infer=True, keep_io_types=True)
    save_optimizer_model(model, target, external_data_mb=external_data_mb)


def check_fp16_parity(
    candidate: LogitsFunction, cells: Sequence[ParityCell], *, name: str
) -> ParityResult:
    """Compare an FP16 model with torch, allowing ``FP16_TOLERANCE`` of the largest logit.

    Half precision keeps 11 bits, so its error grows with the size of what is computed
    (Micikevicius et al. 2018, "Mixed Precision Training", https://arxiv.org/abs/1710.03740).

    Raises:
        ExportError: a difference is larger; it names the worst cell.
    """
    largest = max((float(np.max(np.abs(cell.logits))) for cell in cells), default=0.0)
    atol = FP16_TOLERANCE * max(1.0, largest)
    return check_parity(candidate, cells, atol=atol, name=name, setting=None)
