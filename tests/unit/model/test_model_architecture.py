import pytest
from model_samples import MULTI_LABEL, SEQUENCE, TOKEN, build_architecture, write_hf_folder

from pipeline.config import ModelSettings
from pipeline.contract.errors import ConfigError, MissingFileError, WeightsError
from pipeline.model.architecture import build_random_architecture, read_hf_architecture

HEAD = {"task": SEQUENCE, "num_labels": 3, "pad_token_id": 0}


def read(folder, **settings):
    model = ModelSettings.model_validate({"max_seq_len": 16, **settings})
    return read_hf_architecture(folder, model, **HEAD)


def test_sizes_come_from_config_json_and_the_head_from_the_job(tmp_path):
    assert read(write_hf_folder(tmp_path)) == build_architecture()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("model_type", None),
        ("hidden_act", "relu"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("hidden_size", "wide"),
        ("num_hidden_layers", None),
        ("num_attention_heads", 5),
    ],
)
def test_config_that_the_encoder_does_not_compute_is_refused_by_key(tmp_path, key, value):
    folder = write_hf_folder(tmp_path, config={key: value})

    with pytest.raises(WeightsError, match=key):
        read(folder)


def test_absent_position_type_means_absolute(tmp_path):
    folder = write_hf_folder(tmp_path, config={"position_embedding_type": None})

    assert read(folder).max_position_embeddings == 16


def test_text_longer_than_the_positions_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"16 positions.*got 17.*Set model\.max_seq_len to 16"):
        read(write_hf_folder(tmp_path), max_seq_len=17)


def test_pairs_need_a_second_token_type(tmp_path):
    folder = write_hf_folder(tmp_path, config={"type_vocab_size": 1})
    settings = ModelSettings(max_seq_len=16)

    assert not read_hf_architecture(folder, settings, **HEAD).takes_pairs
    with pytest.raises(WeightsError, match=r"type_vocab_size must be 2 or more for pairs.*got 1"):
        read_hf_architecture(folder, settings, **HEAD, sep_token_id=3)


def test_only_the_multi_label_task_has_multi_hot_labels():
    sizes = {
        task: build_architecture(task=task).multi_hot_size
        for task in (SEQUENCE, TOKEN, MULTI_LABEL)
    }

    assert sizes == {SEQUENCE: None, TOKEN: None, MULTI_LABEL: 3}


def test_folder_without_config_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match=r"config\.json"):
        read(tmp_path)


def test_random_start_takes_its_sizes_from_the_job():
    settings = ModelSettings(hidden_size=8, num_layers=3, num_heads=2, max_seq_len=20)

    shape = build_random_architecture(settings, vocab_size=77, **HEAD)

    assert (shape.hidden_size, shape.intermediate_size, shape.num_layers) == (8, 32, 3)
    assert (shape.vocab_size, shape.max_position_embeddings) == (77, 20)
