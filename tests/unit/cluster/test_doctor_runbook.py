"""The runbook is the table of symptoms, and what the table names is there."""

import re
from pathlib import Path

import pytest
from drill_recording import build_transcripts
from drill_table import DRILLS

from cluster.__main__ import main
from cluster.doctor.diagnosis import SYMPTOMS
from cluster.doctor.report import build_runbook
from pipeline.config import JobConfig
from serve_app.config import ServeSettings

ROOT = Path(__file__).parents[3]
RUNBOOK = ROOT / "docs" / "runbook.md"


def test_the_runbook_is_made_from_the_table():
    assert RUNBOOK.read_text(encoding="utf-8") == build_runbook(), (
        "run: textlane doctor --runbook > docs/runbook.md"
    )


@pytest.mark.slow
def test_the_transcripts_are_what_doctor_says_of_the_recordings():
    text = (ROOT / "docs" / "doctor_transcripts.md").read_text(encoding="utf-8")

    assert text == build_transcripts(), (
        "run: python tests/drills/provoke.py all --transcripts > docs/doctor_transcripts.md"
    )


def test_the_command_prints_the_runbook_and_looks_at_nothing(capsys):
    assert main(["doctor", "--runbook"]) == 0
    assert capsys.readouterr().out == build_runbook()


def test_names_are_unique_and_each_entry_is_whole():
    names = [symptom.name for symptom in SYMPTOMS]

    assert len(set(names)) == len(names)
    for symptom in SYMPTOMS:
        assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", symptom.name)
        assert re.match("(Measured|Chosen|By definition|As )", symptom.chosen) or (
            "Measured" in symptom.chosen or "own limit" in symptom.chosen
        )
        assert symptom.seen.endswith(".")
        assert symptom.why.endswith(".")
        assert "{" not in symptom.cure.format(**symptom.cure_example).replace("{host", "")


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.name)
def test_each_symptom_has_a_drill_that_is_there(symptom):
    words = symptom.drill.split()

    if words[0] == "python":
        assert words[1] == "tests/drills/provoke.py"
        assert words[2] == symptom.name
        assert words[2] in DRILLS
    else:
        text = (ROOT / words[1]).read_text(encoding="utf-8")
        assert words[2] == "-k"
        assert re.search(rf"^def test_\w*{words[3]}", text, flags=re.M) or words[3] in text


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.name)
def test_a_cure_sets_only_what_there_is(symptom):
    cure = symptom.cure.format(**symptom.cure_example)
    for key in re.findall(r"--set ([\w.]+)=", cure):
        section, dot, name = key.rpartition(".")
        model = JobConfig.model_fields[section].annotation if dot else ServeSettings
        assert name in model.model_fields


def test_every_drill_is_of_a_symptom():
    assert set(DRILLS) <= {symptom.name for symptom in SYMPTOMS}
