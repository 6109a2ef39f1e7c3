from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field, model_validator

from pipeline.contract.errors import ConfigError
from pipeline.contract.settings import (
    Settings,
    describe_settings,
    load_settings,
    settings_from_mapping,
)


class Inner(Settings):
    rate: Annotated[float, Field(gt=0, strict=False)] = 0.5
    """Steps in a second."""
    steps: int = 3
    mode: Literal["fast", "exact"] = "fast"
    names: dict[str, str] = Field(default_factory=dict)
    files: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _fit(self):
        if self.mode == "exact" and self.steps > 10:
            raise ValueError(f"mode exact allows 10 steps, not {self.steps}. Lower steps.")
        return self


class Outer(Settings):
    hint: ClassVar[str] = "APP.md explains them."
    name: str
    """What it is called."""
    inner: Inner = Inner()


def load(text="name: x", *, sets=(), foreign=(), path=None):
    path.write_text(text)
    return load_settings(Outer, file=path, env_prefix="APP", foreign_prefixes=foreign, sets=sets)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "job.yaml"


def test_the_file_beats_the_default_the_environment_the_file_and_set_the_environment(
    file, monkeypatch
):
    monkeypatch.setenv("APP_INNER__STEPS", "5")
    monkeypatch.setenv("APP_INNER__RATE", "2e-4")
    text = "name: x\ninner: {steps: 4, rate: 0.25, mode: exact}"

    loaded = load(text, sets=["inner.steps=6"], path=file)

    assert loaded.settings.inner == Inner(steps=6, rate=2e-4, mode="exact")
    assert {key: (value, origin) for key, value, origin in describe_settings(loaded)} == {
        "name": ("x", str(file)),
        "inner.rate": (2e-4, "environment APP_INNER__RATE"),
        "inner.steps": (6, "--set"),
        "inner.mode": ("exact", str(file)),
        "inner.names": ({}, "default"),
        "inner.files": ([], "default"),
    }


def test_the_last_set_of_a_key_wins(file):
    loaded = load(sets=["inner.steps=4", "inner.steps=5"], path=file)

    assert loaded.settings.inner.steps == 5


def test_a_section_set_as_a_whole_replaces_the_files_and_its_origin(file):
    text = 'name: x\ninner: {names: {"0": old, "1": other}}'

    loaded = load(text, sets=['inner.names={"0": new}'], path=file)

    assert loaded.settings.inner.names == {"0": "new"}
    assert loaded.origins["inner.names.0"] == "--set"


def test_the_nearest_section_names_the_origin(file, monkeypatch):
    monkeypatch.setenv("APP_INNER", "{steps: 9}")

    loaded = load(sets=["inner.names={a: b}"], path=file)

    assert loaded.origins["inner.steps"] == "environment APP_INNER"
    assert loaded.origins["inner.names.a"] == "--set"


def test_variables_of_another_schema_are_left_alone(file, monkeypatch):
    monkeypatch.setenv("APP_OTHER__PORT", "1")
    monkeypatch.setenv("APPLE", "1")

    assert load(foreign=("APP_OTHER__",), path=file).settings == Outer(name="x")


def test_number_keys_of_yaml_become_text(file):
    assert load("name: x\ninner: {names: {0: a}}", path=file).settings.inner.names == {"0": "a"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("inner.stpes=1", r"--set: inner\.stpes: unknown setting \(got 1\)\. Did you mean steps\?"),
        ("iner={}", r"iner: unknown setting .* Did you mean inner\?"),
        ("inner.zzz=1", r"Known settings here: files, mode, names, rate, steps\."),
        ("rate=1", r"--set: rate: unknown setting \(got 1\)\. Did you mean inner\.rate\?"),
        ("inner.rate=x", r"\(got 'x'\)\. It means: Steps in a second\. APP\.md explains them\."),
        ("inner.mode=x", r"\(got 'x'\)\. APP\.md explains them\."),
        ("inner.files=5", r"inner\.files: input should be a list .* such as inner\.files=\["),
        ("inner.names=5", r"inner\.names: input should be a mapping .* such as inner\.names=\{"),
        ("inner=5", r"inner: input should be a section, which is a mapping of settings \(got 5\)"),
        ("inner.steps=many", r"inner\.steps: input should be a valid integer \(got 'many'\)"),
        ("inner.steps=3.5", r"inner\.steps: .*integer"),
        ("inner.steps=true", r"inner\.steps: .*integer"),
        ("inner.rate=0", r"inner\.rate: input should be greater than 0 \(got 0\)"),
        ("inner.rate=.inf", r"inner\.rate: input should be a finite number"),
        ("inner.mode=slow", r"inner\.mode: input should be 'fast' or 'exact' \(got 'slow'\)"),
        ("name=7", r"name: input should be a valid string \(got 7\)"),
        ("name.deep=7", r"name is a single value, not a section .* Set name itself\."),
        ("inner.files=[1]", r"--set: inner\.files\.0: input should be a valid string"),
        ("inner=3", r"--set: inner: "),
        ("steps", r"--set needs key=value \(got 'steps'\)\. Write --set a\.b=1\."),
        ("=1", r"--set needs key=value"),
        ("inner.steps=[1", r"--set: the value is not YAML"),
    ],
)
def test_what_cannot_be_used_is_refused_with_field_value_and_remedy(file, item, message):
    with pytest.raises(ConfigError, match=message):
        load(sets=[item], path=file)


def test_an_impossible_pair_is_refused_with_both_numbers(file):
    with pytest.raises(ConfigError, match=r"inner: mode exact allows 10 steps, not 11\. Lower"):
        load(sets=["inner.mode=exact", "inner.steps=11"], path=file)


def test_an_error_names_the_variable_that_caused_it(file, monkeypatch):
    monkeypatch.setenv("APP_INNER__STEPS", "many")

    with pytest.raises(ConfigError, match=r"^environment APP_INNER__STEPS: inner\.steps: "):
        load(path=file)


def test_a_missing_setting_is_named(file):
    with pytest.raises(
        ConfigError, match=r"name: the setting is missing\. Add it.* It means: What"
    ):
        load("inner: {}", path=file)
    with pytest.raises(ConfigError, match=r"^the defaults: name: the setting is missing"):
        load_settings(Outer, file=None, env_prefix="APP")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            r"job\.yaml: the file is empty; it must hold a mapping of sections\. APP\.md explains",
        ),
        ("# nothing", r"the file is empty"),
        ("- a", r"must hold a mapping .*\. Write `key: value` lines\. APP\.md explains"),
        ("a: [", r"job\.yaml:1: not valid YAML: expected the node .* Correct this line .* APP\.md"),
        ("a: b: c", r"job\.yaml:1: not valid YAML: mapping values are not allowed here\. Correct"),
        ("a: 2026-99-99", r"job\.yaml: not valid YAML: .* Correct .* APP\.md explains"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(file, text, message):
    with pytest.raises(ConfigError, match=message):
        load(text, path=file)


def test_a_file_that_is_not_there_is_refused_with_a_remedy(file):
    with pytest.raises(ConfigError, match=r"cannot be read: No such file or directory\. Name an"):
        load_settings(Outer, file=file, env_prefix="APP")


def test_settings_are_frozen_and_the_given_mapping_is_not_changed():
    values = {"name": "x", "inner": {"steps": 4}}

    loaded = settings_from_mapping(
        Outer, values, source="test", env_prefix="APP", sets=["inner.steps=5"]
    )

    assert values == {"name": "x", "inner": {"steps": 4}}
    with pytest.raises(ValueError, match="frozen"):
        loaded.settings.name = "y"
