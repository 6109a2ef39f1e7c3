import pytest

from pipeline.config import load_job
from pipeline.contract.errors import ConfigError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: demo\noutput_dir: out\ndata: {files: [a.csv]}\n")
    return path


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.files=5", r"data\.files: input should be a list \(got 5\)\. Write a list, such as"),
        ("data.files=5", r"such as data\.files=\[\"a\.csv\"\]\."),
        (
            "data.files=[]",
            r"data\.files: the list should have at least 1 item \(got \[\]\)\. Write",
        ),
        ("data.files=['']", r"data\.files\.0: .*at least 1 character"),
        ("data.validation_files=['']", r"data\.validation_files\.0: .*at least 1 character"),
        ("data.validation_files=[5]", r"data\.validation_files\.0: .*valid string"),
        ("data.test_files={}", r"data\.test_files: input should be a list"),
        ("data.test_files=", r"data\.test_files: input should be a list \(got None\)"),
        ("data.label_names=[a]", r"data\.label_names: input should be a mapping .*=\{\"0\": \"neg"),
        ("data=5", r"--set: data: input should be a section, .* Set what is in it, as data\.NAME"),
        (f"data.test_files=[{'x' * 4097}]", r"data\.test_files\.0: .*at most 4096 characters"),
        ('data.test_files=["a\\0.csv"]', r"data\.test_files\.0: a NUL character stands in it\."),
        ("data.files=['ftp://me:key@host/a.csv']", r"data\.files\.0: the location holds a passw"),
        ("data.encoding=utf-16", r"data\.encoding: .*'auto', 'utf-8', 'latin-1' or 'cp1252'"),
        ("data.encoding=", r"data\.encoding: .*'auto', 'utf-8', 'latin-1' or 'cp1252'"),
        ("data.encoding=[auto]", r"data\.encoding: .*'auto', 'utf-8', 'latin-1' or 'cp1252'"),
        ("data.text_column=''", r"data\.text_column: .*at least 1 character"),
        (f"data.text_column={'x' * 257}", r"data\.text_column: .*at most 256 characters"),
        ("data.text_pair_column=''", r"data\.text_pair_column: .*at least 1 character"),
        ("data.text_pair_column=[b]", r"data\.text_pair_column: .*valid string"),
        ("data.text_pair_column=true", r"data\.text_pair_column: .*valid string"),
        ('data.text_pair_column="a\\0b"', r"data\.text_pair_column: a NUL character stands in it"),
        (f"data.split_column={'x' * 257}", r"data\.split_column: .*at most 256 characters"),
        ("data.split_column=''", r"data\.split_column: .*at least 1 character"),
        ("data.split_column={}", r"data\.split_column: .*valid string"),
        ('data.split_column="\\0"', r"data\.split_column: a NUL character stands in it\. Take it"),
        ("data.label_separator=''", r"data\.label_separator: .*at least 1 character"),
        (f"data.label_separator={'-' * 17}", r"data\.label_separator: .*at most 16 characters"),
        ("data.label_separator=5", r"data\.label_separator: .*valid string"),
    ],
)
def test_setting_that_cannot_be_is_refused_by_name(file, setting, message):
    with pytest.raises(ConfigError, match=message):
        load_job(file, ["task=multi_label_classification", setting])


def test_password_of_a_location_is_not_repeated(file):
    with pytest.raises(ConfigError) as caught:
        load_job(file, ["data.files=['ftp://me:geheim@host/a.csv']"])

    assert "geheim" not in str(caught.value)


def test_index_arrives_as_a_number(file):
    data = load_job(file, ["data.text_column=0", "data.text_pair_column=1"]).settings.data

    assert (data.text_column, data.text_pair_column) == ("0", "1")


@pytest.mark.parametrize("setting", ["files", "validation_files", "test_files"])
def test_one_location_needs_no_list_around_it(file, setting):
    data = load_job(file, [f"data.{setting}=rows.csv"]).settings.data

    assert getattr(data, setting) == ("rows.csv",)
