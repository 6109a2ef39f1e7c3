"""Settings of the prepare stage: where the text is, what becomes of it, how it is bucketed."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.fields import ColumnName, Count, Locations, Share
from pipeline.contract.settings import Settings


class Task(StrEnum):
    """What the model predicts."""

    SEQUENCE = "sequence_classification"
    """One label for a text: ``logits [batch, num_labels]``."""
    TOKEN = "token_classification"
    """One label for each word: ``logits [batch, seq, num_labels]``."""
    MULTI_LABEL = "multi_label_classification"
    """Any number of labels for a text: ``logits [batch, num_labels]``, each judged alone."""


class DataSettings(Settings):
    """Where the labelled text is and what becomes of it."""

    files: Annotated[Locations, Field(min_length=1)]
    """Files, folders, globs, URIs (``s3://…``), or ``package://NAME/PATH``, in a list or a
    single one; ``.gz``, ``.bz2`` and ``.xz`` are decompressed. A relative path starts where
    the command runs. What the job itself wrote is left out of a folder or glob."""
    validation_files: Locations = ()
    """Files whose rows are the validation split; empty takes a share of ``files``."""
    test_files: Locations = ()
    """Files whose rows are the test split; empty takes a share of ``files``."""
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet", "conll"] = "auto"
    """File format; ``auto`` goes by the file name's ending."""
    encoding: Literal["auto", "utf-8", "latin-1", "cp1252"] = "auto"
    """Of text files; ``auto`` and ``utf-8`` take UTF-8 with or without a byte order mark,
    the others count only where they are asked for."""
    text_column: ColumnName = "text"
    """Column of the text; for CSV and TSV also its index from 0, for CoNLL its index only."""
    text_pair_column: ColumnName | None = None
    """Column of the second text of a pair; null for single texts."""
    label_column: ColumnName = "label"
    """Column of the label; for CSV and TSV also its index, for CoNLL its index, ``-1`` the last."""
    label_separator: Annotated[str, Field(min_length=1, max_length=16)] | None = None
    """Multi-label only: splits one field or string into labels, such as ``;``."""
    label_names: dict[str, str] = Field(default_factory=dict)
    """Label as it stands in the file → name to show; empty keeps the labels as they are."""
    split_column: ColumnName | None = None
    """Column that says train, validation (valid, val, dev, eval) or test; null splits by hash."""
    sample_rows: Count | None = None
    """Rows kept in all, balanced over the labels and chosen by the seed; null keeps all."""
    validation_share: Share = 0.1
    """Share of rows for validation, by hash of the text, so that it is stable."""
    test_share: Share = 0.1
    """Share of rows for the test, by hash of the text, so that it is stable."""
    stratify: bool = False
    """Give every label the same shares; rows added later may then move a few others."""
    strip_html: bool = False
    """Drop HTML tags and read entities, in training and in serving alike."""
    on_too_long: Literal["truncate", "window", "reject"] = "truncate"
    """Texts over ``model.max_seq_len``: cut; or (train rows) several rows; or not used."""
    window_stride: Annotated[int, Field(ge=0)] = 32
    """Tokens that neighbouring windows of one text share (``on_too_long: window``)."""
    on_bad_rows: Literal["quarantine", "fail"] = "quarantine"
    """``quarantine`` writes rejected rows to a file, ``fail`` stops at the first one."""
    max_bad_share: Share = 0.01
    """Share of rejected rows above which prepare stops."""

    @model_validator(mode="after")
    def _leave_rows_for_training(self) -> "DataSettings":
        if self.validation_share + self.test_share >= 1.0:
            raise ValueError(
                f"validation_share {self.validation_share} + test_share {self.test_share} "
                "leave nothing to train on. Lower one of them."
            )
        by_share = self.split_column is None and not (self.validation_files and self.test_files)
        if by_share and (self.validation_share == 0.0 or self.test_share == 0.0):
            raise ValueError(
                "validation_share and test_share must both be over 0: INT8 is judged on the "
                "validation rows and the report on the test rows. Set 0.1."
            )
        return self

    @model_validator(mode="after")
    def _split_in_one_way(self) -> "DataSettings":
        if self.split_column and (self.validation_files or self.test_files):
            raise ValueError(
                f"split_column {self.split_column!r} and validation_files or test_files both say "
                "where a row belongs. Take one of them out."
            )
        return self


class BucketSettings(Settings):
    """How rows of similar length are put together."""

    num_buckets: Annotated[int, Field(ge=1, le=64)] = 8
    """Length classes, usually 8–16; fewer when there are fewer distinct lengths."""
    window_batches: Count = 128
    """Batches whose rows are sorted together: larger pads less and shuffles less."""
    max_padding: Share = 0.1
    """Padding of one forward pass at most: lower pads less, in more and smaller passes."""
    max_shard_bytes: Annotated[int, Field(ge=1 << 16)] = 64 << 20
    """Bytes of rows in one shard file at most; a single larger row gets its own file."""
