import textwrap
from pathlib import Path

import pytest
import yaml

from pipeline.contract.errors import ConfigError
from serve_app.release import plan as plan_module
from serve_app.release.plan import ReleasePlan, load_plan, plan_from_mapping, plan_to_mapping


def refuse(values, match):
    with pytest.raises(ConfigError, match=match):
        plan_from_mapping(values, source="plan")


def test_the_default_plan_is_four_days_from_5_percent():
    plan = plan_from_mapping({}, source="plan")

    assert [step.weight for step in plan.steps] == [0.05, 0.25, 0.5, 1.0]
    assert {step.dwell_s for step in plan.steps} == {86_400.0}
    assert plan == ReleasePlan()


def test_the_plan_that_is_explained_is_the_default():
    text = (Path(plan_module.__file__).parent / "CHECKS.md").read_text(encoding="utf-8")
    lines = text.split("## A plan\n")[1].split("\n## ")[0].splitlines()
    example = textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))

    values = yaml.safe_load(example)
    assert plan_from_mapping(values, source="CHECKS.md") == ReleasePlan()
    named = plan_to_mapping(ReleasePlan())
    assert {key: set(part) for key, part in values.items() if isinstance(part, dict)} == {
        key: set(part) for key, part in named.items() if isinstance(part, dict)
    }
    assert set(values) == set(named)


def test_a_plan_goes_through_json():
    plan = plan_from_mapping(
        {"steps": [{"weight": 0.1, "dwell_s": 60}], "thresholds": {"max_flip_rate": "1e-3"}},
        source="plan",
    )

    assert plan.thresholds.max_flip_rate == 0.001
    assert plan_from_mapping(plan_to_mapping(plan), source="again") == plan


def test_a_file_is_read_and_named_in_errors(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text("steps:\n  - {weight: 0.1, dwell_s: 1e1}\nsettle_s: 0\n")
    assert load_plan(file).steps[0].dwell_s == 10.0

    file.write_text("tresholds: {}\n")
    with pytest.raises(ConfigError, match=r"plan\.yaml: tresholds: .*Did you mean thresholds\?"):
        load_plan(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_plan(tmp_path / "none.yaml")
    file.write_text("")
    with pytest.raises(ConfigError, match="the file is empty"):
        load_plan(file)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"thresholds": {"max_p95_ratio": 1.1}}, r"unknown setting.*Did you mean max_p99_ratio\?"),
        ({"thresholds": {"bleu": 1.1}}, r"thresholds\.bleu: unknown setting.*Known settings here"),
        ({"steps": [{"wieght": 0.1}]}, r"steps\.0\.wieght: unknown setting.*Did you mean weight\?"),
        ({"steps": [{"dwell_s": 1.0}]}, r"steps\.0\.weight: the setting is missing.*Share of the"),
        ({"steps": []}, "at least 1 item"),
        ({"steps": 5}, "input should be a list"),
        ({"steps": [{"weight": 0.1}] * 21}, "at most 20 items"),
        ({"steps": [{"weight": "much"}]}, "valid number"),
        ({"steps": [{"weight": 0.0}]}, "greater than 0"),
        ({"steps": [{"weight": float("nan")}]}, "finite number"),
        ({"steps": [{"weight": 0.2}, {"weight": 0.2}]}, r"weight 0\.2 must be over 0\.2 before"),
        ({"steps": [{"weight": 1.0}]}, r"first weight 1 is over 0\.5.*Begin with less"),
        ({"hard_limits": {"unreachable_s": 90.0}}, "unreachable_s 90 is over crash_window_s 60"),
        ({"confidence": {"false_rollback": 0.0}}, "greater than 0"),
        ({"shadow": {"share": 1.5}}, "less than or equal to 1"),
        ({"shadow": None}, "should be a section"),
        ({"settle_s": True}, "valid number"),
        ({"\x00": 1}, "unknown setting"),
    ],
)
def test_what_cannot_be_a_plan_is_refused(values, match):
    refuse(values, match)
