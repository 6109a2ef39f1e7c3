"""Every error type crosses process walls unchanged and has one HTTP status."""

import pickle
import re

import pytest

from pipeline.contract import errors
from pipeline.contract.errors import error_types
from serve_app.error_answers import ERROR_KINDS, INTERNAL_CODE


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


def test_every_error_type_has_a_status_and_a_code():
    assert set(ERROR_KINDS) == set(error_types())
    assert all(400 <= kind.status <= 599 for kind in ERROR_KINDS.values())
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code) for kind in ERROR_KINDS.values())


def test_what_a_client_can_meet_has_a_code_of_its_own():
    codes = [
        kind.code
        for error, kind in ERROR_KINDS.items()
        if issubclass(error, errors.RequestError | errors.ServiceError)
    ]

    assert len(set(codes)) == len(codes)
    assert INTERNAL_CODE not in codes


def test_the_drawn_tree_names_every_type():
    drawn = {word for word in errors.__doc__.split() if word.endswith("Error")}

    assert drawn == {kind.__name__ for kind in error_types()}
