"""The example plan is the default, and the README explains every setting of a plan."""

import re
from pathlib import Path

from pydantic import BaseModel

from serve_app.release.plan import ReleasePlan, Step, load_plan

FOLDER = Path(__file__).parents[3] / "serve_app" / "release"


def setting_names(kind):
    for name, field in kind.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_names(field.annotation)


def test_the_example_plan_is_complete_and_holds_the_defaults():
    text = (FOLDER / "plan.yaml").read_text(encoding="utf-8")

    assert load_plan(FOLDER / "plan.yaml") == ReleasePlan()
    named = set(re.findall(r"^\s*-?\s*\{?(\w+):", text, flags=re.M)) | {"dwell_s"}
    assert named >= {*setting_names(ReleasePlan), *setting_names(Step)}


def test_the_readme_explains_every_setting():
    table = (FOLDER / "README.md").read_text(encoding="utf-8").partition("## The plan")[2]
    explained = set(re.findall(r"[`.](\w+)`", table.partition("## HTTP")[0]))

    sections = {"thresholds", "min_samples", "confidence", "shadow", "hard_limits", "steps"}
    names = {*setting_names(ReleasePlan), *setting_names(Step)} - sections
    assert names - explained == set()


def test_the_readme_names_files_that_are_there():
    table = (FOLDER / "README.md").read_text(encoding="utf-8").partition("## Where to look")[2]

    named = set(re.findall(r"`(\w+\.(?:py|html|yaml))`", table))
    assert {name for name in named if not (FOLDER / name).exists()} == set()
