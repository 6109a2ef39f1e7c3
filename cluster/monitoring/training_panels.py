"""The dashboard's row on training."""

from cluster.monitoring.panels import Query, Row, panel, query

_PREFIX = "ray_textlane_train_"


def _curve(figure: str, legend: str = "{{job}}", *, needs: str | None = None) -> Query:
    return query(f'{_PREFIX}{figure}{{job=~"$job"}}', legend, needs=needs)


TRAINING = Row(
    title="Training",
    panels=(
        panel(
            "Loss",
            "short",
            "Mean loss of the step's rows, and of the validation rows at each measurement. The "
            "second rising while the first falls is overfitting.",
            _curve("loss", "{{job}} training"),
            _curve("validation_loss", "{{job}} validation"),
        ),
        panel(
            "Quality on the validation rows",
            "percentunit",
            "Accuracy, macro F1 and, for BIO word labels, entity F1.",
            _curve("validation_accuracy", "{{job}} accuracy"),
            _curve("validation_macro_f1", "{{job}} macro F1"),
            _curve("validation_entity_f1", "{{job}} entity F1", needs="word labels"),
        ),
        panel(
            "Tokens a second",
            "short",
            "Tokens without padding, all workers. Alert: under half of the last 2 hours' mean.",
            _curve("tokens_per_second"),
        ),
        panel(
            "Learning rate",
            "sci",
            "Linear warm-up, then cosine.",
            _curve("lr"),
        ),
        panel(
            "Gradient norm",
            "short",
            "L2 norm before clipping. Bursts come before a divergence.",
            _curve("grad_norm"),
        ),
        panel(
            "Loss scale and skipped steps",
            "short",
            "fp16 only: the scale halves with each skipped step. Alert: 30 in 30 minutes.",
            _curve("loss_scale", "{{job}} scale"),
            query(
                f'increase({_PREFIX}skipped_steps_total{{job=~"$job"}}[30m])',
                "{{job}} skipped in 30 minutes",
                needs="skipped steps",
            ),
        ),
        panel(
            "Padding",
            "percentunit",
            "Share of the computed tokens that are padding; buckets keep it under 10 %.",
            _curve("padding_share"),
        ),
        panel(
            "Rows in one pass",
            "short",
            "Halves when memory runs out, and stays so.",
            _curve("micro_batch"),
        ),
        panel(
            "Memory of rank 0",
            "bytes",
            "CUDA tensors, what torch's allocator holds, and the step's peak; on a CPU the "
            "process's memory. Held far above allocated is fragmentation, a steady rise a leak.",
            _curve("memory_allocated_bytes", "{{job}} allocated"),
            _curve("memory_peak_bytes", "{{job}} peak"),
            _curve("memory_reserved_bytes", "{{job}} held", needs="a GPU"),
        ),
    ),
)
