from pathlib import Path

import pytest

from pipeline.config import JobConfig, Task, load_job, resolve_location
from pipeline.contract.errors import ConfigError
from pipeline.contract.settings import describe_settings

MINIMAL = "name: demo\noutput_dir: out\ndata: {files: [a.csv]}\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(MINIMAL)
    return path


def test_a_minimal_job_has_the_missions_numbers(file):
    job = load_job(file).settings

    assert job.train.base_lr == 3e-4
    assert job.train.warmup_share == 0.05
    assert (job.train.loss_scale, job.train.loss_scale_growth_steps) == (65536.0, 2000)
    assert job.train.checkpoint_every_steps == 500
    assert (job.train.keep_checkpoints, job.train.permanent_every_steps) == (3, 5000)
    assert job.export.opset == 14
    assert 8 <= job.buckets.num_buckets <= 16
    assert job.task is Task.SEQUENCE


def test_the_four_folders_lie_in_the_output_folder(file):
    job = load_job(file).settings

    folders = [job.shards_dir, job.checkpoint_dir, job.report_dir, job.bundle_dir]
    assert folders == [Path("out") / n for n in ("shards", "checkpoint", "report", "bundle")]


def test_environment_and_set_override_the_file(file, monkeypatch):
    monkeypatch.setenv("TEXTLANE_TRAIN__BASE_LR", "1e-4")
    monkeypatch.setenv("TEXTLANE_SEED", "5")

    loaded = load_job(file, ["seed=6", "task=token_classification"])

    job = loaded.settings
    assert (job.train.base_lr, job.seed, job.task) == (1e-4, 6, Task.TOKEN)
    origins = {key: origin for key, _, origin in describe_settings(loaded)}
    assert origins["train.base_lr"] == "environment TEXTLANE_TRAIN__BASE_LR"
    assert (origins["seed"], origins["name"]) == ("--set", str(file))
    assert origins["train.epochs"] == "default"


def test_the_serving_settings_of_the_environment_are_not_the_jobs(file, monkeypatch):
    monkeypatch.setenv("TEXTLANE_SERVE__PORT", "8000")

    assert load_job(file).settings.name == "demo"


def test_every_setting_says_what_it_means():
    def fields(model, prefix=""):
        for name, field in model.model_fields.items():
            inner = field.annotation
            if hasattr(inner, "model_fields"):
                yield from fields(inner, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", field.description

    undescribed = [name for name, description in fields(JobConfig) if not description]

    assert undescribed == []


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["train.base_lrr=1"], r"unknown setting .* Did you mean base_lr\?"),
        (["train.base_lr=fast"], r"--set: train\.base_lr: .*valid number"),
        (["train.base_lr=.inf"], r"train\.base_lr: .*finite number"),
        (["train.base_lr=.nan"], r"train\.base_lr: .*(finite number|greater than 0)"),
        (["train.base_lr=0"], r"train\.base_lr: .*greater than 0"),
        (["train.epochs=0"], r"train\.epochs: .*greater than or equal to 1"),
        (["train.epochs=1.5"], r"train\.epochs: .*integer"),
        (["data.files=[]"], r"data\.files: .*at least 1 item"),
        (["data.test_share=1.5"], r"data\.test_share: .*less than or equal to 1"),
        (["name=../up"], r"name: string should match pattern"),
        (["seed=-1"], r"seed: .*greater than or equal to 0"),
        (["model.max_seq_len=2"], r"model\.max_seq_len: .*greater than or equal to 3"),
        (["export.opset=18"], r"export\.opset: .*less than or equal to 17"),
        (["ray.use_gpu=maybe"], r"ray\.use_gpu: .*valid boolean"),
        (
            ["task=ranking"],
            r"task: .*'sequence_classification', 'token_classification' or 'multi_label",
        ),
        (
            ["data.validation_share=0.5", "data.test_share=0.5"],
            r"validation_share 0\.5 \+ test_share 0\.5 leave nothing to train on\. Lower one",
        ),
        *[
            (
                [f"ray.num_workers={given}"],
                r"ray\.num_workers: it must be a whole number from 1, or",
            )
            for given in ("0", "two", "true", "1.5", "[1]", "[0, 2]", "[1, 2, 3]", "null")
        ],
        (["ray.num_workers=[3, 1]"], r"num_workers \[3, 1\] has its least over its most"),
        (["train.validate_every_steps=0", "train.final_weights=best"], r"need measurements"),
        (["data.test_share=0"], r"must both be over 0.* Set 0\.1"),
        (["model.hidden_size=130"], r"hidden_size 130 is not a multiple of num_heads 4"),
        (["train.micro_batch=64"], r"micro_batch 64 is over global_batch 32\. Lower micro_batch"),
        (["train.precision=fp16"], r"fp16 needs ray\.use_gpu true.*Set train\.precision to bf16"),
        (
            ["task=token_classification", "evaluate.baseline=true"],
            r"evaluate\.baseline needs task sequence_classification.*to false",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(file, sets, message):
    with pytest.raises(ConfigError, match=message):
        load_job(file, sets)


def test_pretrained_weights_decide_the_width_themselves(file):
    job = load_job(file, ["model.hidden_size=130", "model.pretrained=weights"]).settings

    assert job.model.pretrained == "weights"


def test_a_model_of_ones_own_decides_its_width_itself(file):
    sets = ["model.factory=my_models.text:build", "model.hidden_size=130"]

    assert load_job(file, sets).settings.model.factory == "my_models.text:build"


def test_arguments_of_a_factory_keep_their_types_and_exponents_become_numbers(file):
    given = "width: 64, dropout: 0.1, is_deep: true, rate: 1e-4, norm: group"
    file.write_text(f"{MINIMAL}model: {{factory: 'a:b', factory_arguments: {{{given}}}}}\n")

    arguments = load_job(file, ["model.factory_arguments.depth=2"]).settings.model.factory_arguments

    assert arguments == {
        "width": 64,
        "dropout": 0.1,
        "is_deep": True,
        "rate": 1e-4,
        "norm": "group",
        "depth": 2,
    }
    assert [type(value) for value in arguments.values()] == [int, float, bool, float, str, int]


@pytest.mark.parametrize(
    "factory", ["my_models.text", "my_models:text:build", "my_models..text:b", "models/text.py:b"]
)
def test_a_factory_that_is_no_import_path_is_refused(file, factory):
    with pytest.raises(ConfigError, match=r"is no import path\. Write package\.module:function"):
        load_job(file, [f"model.factory={factory}"])


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["model.factory_arguments.width=3"], "given without factory. Set factory or take"),
        (
            ["model.factory=a:b", "model.factory_arguments={num_labels: 3, vocab_size: 5}"],
            "factory_arguments holds num_labels, vocab_size, which the factory is given anyway",
        ),
    ],
)
def test_arguments_without_use_are_refused(file, sets, message):
    with pytest.raises(ConfigError) as caught:
        load_job(file, sets)

    assert message in str(caught.value)


def test_plain_locations_stay_as_they_are():
    assert resolve_location("data/*.csv") == "data/*.csv"
    assert resolve_location("s3://bucket/key") == "s3://bucket/key"


def test_a_package_location_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "tl_sample_package"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "data" / "rows.csv").write_text("text,label")
    monkeypatch.syspath_prepend(tmp_path)

    found = resolve_location("package://tl_sample_package/data/rows.csv")

    assert found == str(package / "data" / "rows.csv")
    with pytest.raises(ConfigError, match=r"'tl_sample_package' has no 'data/none\.csv'"):
        resolve_location("package://tl_sample_package/data/none.csv")


@pytest.mark.parametrize("location", ["package://no_such_package_/a", "package:///a", "package://"])
def test_a_package_that_is_not_there_is_refused(location):
    with pytest.raises(ConfigError, match="is not installed"):
        resolve_location(location)


def test_a_missing_package_comes_with_the_command_that_installs_it():
    with pytest.raises(ConfigError, match=r"pip install --no-deps no-such-package\b"):
        resolve_location("package://no_such_package/a")
