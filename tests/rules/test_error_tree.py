"""Every error type crosses process walls unchanged and has one HTTP status."""

import pickle

import pytest

from pipeline.contract import errors
from pipeline.contract.errors import error_types
from serve_app.ingress import STATUS_BY_ERROR


@pytest.mark.parametrize("kind", error_types(), ids=lambda kind: kind.__name__)
def test_error_survives_pickling(kind):
    error = kind("is wrong", place="file.csv:3", value="x" * 500, remedy="Mend it.")

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is kind
    assert str(copy) == str(error)
    assert (copy.problem, copy.place, copy.value, copy.remedy) == (
        error.problem,
        error.place,
        error.value,
        error.remedy,
    )


def test_every_error_type_has_exactly_one_status():
    assert set(STATUS_BY_ERROR) == set(error_types())
    assert all(400 <= status <= 599 for status in STATUS_BY_ERROR.values())


def test_the_drawn_tree_names_every_type():
    drawn = {word for word in errors.__doc__.split() if word.endswith("Error")}

    assert drawn == {kind.__name__ for kind in error_types()}
