import copy
import pickle

import pytest

from pipeline.contract import errors
from pipeline.contract.errors import ConfigError, TextlaneError, error_types

TYPES = error_types()


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_pickle_with_its_sentence_and_parts(kind, protocol):
    error = kind("broken", place="file.csv, row 3", value={"a": [1]}, remedy="Mend it.")

    twin = pickle.loads(pickle.dumps(error, protocol=protocol))

    assert type(twin) is kind
    assert str(twin) == str(error) == "file.csv, row 3: broken (got {'a': [1]}). Mend it."
    assert vars(twin) == vars(error)
    assert twin.args == error.args


@pytest.mark.parametrize("value", [None, "x", "'quoted'", "z" * 1000, b"\x00\xff", "☃"])
def test_a_value_reads_the_same_after_two_crossings(value):
    error = ConfigError("broken", value=value)

    twin = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))

    assert str(twin) == str(copy.copy(error)) == str(error)


def test_the_sentence_leaves_out_what_was_not_given():
    assert str(TextlaneError("broken")) == "broken"
    assert str(TextlaneError("broken", value=None)) == "broken (got None)"
    assert str(TextlaneError("broken", remedy="Mend it.")) == "broken. Mend it."


def test_a_full_stop_that_another_librarys_message_brought_is_not_doubled():
    assert str(TextlaneError("broken: no.\n", remedy="Mend it.")) == "broken: no. Mend it."
    assert str(TextlaneError("broken: no.", value=1)) == "broken: no (got 1)"
    assert str(TextlaneError("broken: no.")) == "broken: no."
    assert str(TextlaneError("broken...", remedy="Mend it.")) == "broken.... Mend it."


def test_a_long_value_is_shortened():
    error = TextlaneError("broken", value="x" * 5000)

    assert len(error.value) == 200
    assert error.value.endswith("...")


def test_the_tree_drawn_at_the_top_names_every_type():
    for kind in TYPES:
        assert f" {kind.__name__} " in f" {errors.__doc__} ".replace("\n", " ")
