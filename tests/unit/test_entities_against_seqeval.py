"""Our entity figures against the package that others report theirs with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
from seqeval.scheme import IOB2

from pipeline.quality import entity_f1

TAGS = st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "B-two-words", "I-two-words"])
SENTENCES = st.lists(
    st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=9), min_size=1, max_size=6
)


def figures(row):
    return [row["precision"], row["recall"], row["f1"]]


@pytest.mark.slow
@given(SENTENCES)
def test_any_tags_score_as_in_seqevals_default_mode(sentences):
    true = [[tag for tag, _ in sentence] for sentence in sentences]
    predicted = [[tag for _, tag in sentence] for sentence in sentences]

    ours = entity_f1(true, predicted)

    theirs = [
        score(true, predicted, zero_division=0)
        for score in (precision_score, recall_score, f1_score)
    ]
    assert figures(ours) == pytest.approx(theirs)
    # One array per figure, types in the order of their names.
    columns = precision_recall_fscore_support(true, predicted, zero_division=0)
    by_type = [[*figures(row), row["support"]] for row in ours["by_type"].values()]
    assert by_type == [pytest.approx(row) for row in zip(*columns, strict=True)]


def test_an_inside_without_a_begin_is_an_entity_here_and_none_in_seqevals_strict_mode():
    true, predicted = [["B-A", "O", "B-A"]], [["I-A", "O", "B-A"]]

    ours = entity_f1(true, predicted)

    assert ours["recall"] == recall_score(true, predicted) == 1.0
    assert recall_score(true, predicted, mode="strict", scheme=IOB2) == 0.5
