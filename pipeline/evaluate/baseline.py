"""What a bag of words reaches on the same rows: TF-IDF and logistic regression."""

from collections.abc import Sequence

import numpy as np

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ConfigError
from pipeline.contract.shards import Shards, ShardSplit

BASELINE_NAME = "TF-IDF + logistic regression"
_INVERSE_PENALTIES = (1.0, 4.0, 16.0)


def predict_baseline(shards: Shards) -> IntArray:
    """Return the baseline's label of every test row, int64 ``[rows]``, in row order.

    Word 1- and 2-grams of the whole cleaned texts (the model sees only ``max_seq_len``
    tokens of them; the two texts of a pair are one bag), sublinear term frequency,
    L2-regularised logistic regression. The strength of the penalty is the one that does best
    on the validation rows, so that the model is not compared with a baseline that nobody
    tuned.

    Raises:
        ConfigError: scikit-learn is not installed.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise ConfigError(
            "the baseline needs scikit-learn, which is not installed",
            place="evaluate.baseline",
            value=True,
            remedy="Run `pip install 'textlane[demo]'`, or set evaluate.baseline to false.",
        ) from error
    train, validation = shards.split("train"), shards.split("validation")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\b\w+\b")
    train_matrix = vectorizer.fit_transform(_texts(train))
    validation_matrix = vectorizer.transform(_texts(validation))
    train_labels, validation_labels = _labels(train), _labels(validation)
    best_model, best_hits = None, -1
    for inverse_penalty in _INVERSE_PENALTIES:
        model = LogisticRegression(C=inverse_penalty, max_iter=1000)
        model.fit(train_matrix, train_labels)
        hits = int(np.sum(model.predict(validation_matrix) == validation_labels))
        if hits > best_hits:
            best_model, best_hits = model, hits
    assert best_model is not None
    predicted = best_model.predict(vectorizer.transform(_texts(shards.split("test"))))
    return np.asarray(predicted, dtype=np.int64)


def _whole_texts(split: ShardSplit) -> Sequence[int]:
    # Later windows of an over-long text have no text of their own.
    return np.flatnonzero(split.windows == 0).tolist()


def _texts(split: ShardSplit) -> Sequence[str]:
    return [f"{split.text(row)} {split.text_pair(row)}".strip() for row in _whole_texts(split)]


def _labels(split: ShardSplit) -> IntArray:
    return np.array([split.labels(row)[0] for row in _whole_texts(split)], dtype=np.int64)
