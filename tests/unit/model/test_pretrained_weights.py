import pytest
import torch
from model_samples import TOKEN, build_architecture, write_hf_folder

from pipeline.contract.errors import MissingFileError, WeightsError
from pipeline.model.weights import build_new_model

VALUE = "encoder.layer.1.attention.self.value.weight"


def load(folder, **changes):
    return build_new_model(build_architecture(**changes), seed=1, pretrained=folder)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_tensors_are_loaded_with_and_without_prefix(tmp_path, prefix):
    written, _ = build_new_model(build_architecture(), seed=9, pretrained=None)

    model, notes = load(write_hf_folder(tmp_path, prefix=prefix))

    for name, tensor in model.state_dict().items():
        is_same = torch.equal(tensor, written.state_dict()[name])
        assert is_same is not name.startswith("classifier.weight"), name
    assert notes[0].startswith("39 tensors loaded from")


def test_pretrained_type_embeddings_of_the_second_text_are_loaded_and_used(tmp_path):
    types = torch.zeros(2, 12)
    types[1] = torch.linspace(-1, 1, 12)
    folder = write_hf_folder(tmp_path, tensors={"embeddings.token_type_embeddings.weight": types})
    pair = torch.tensor([[2, 5, 3, 9, 3]])

    single, pairs = (load(folder, sep_token_id=sep)[0].eval() for sep in (None, 3))

    with torch.no_grad():
        before, after = (model.embeddings(pair)[0] for model in (single, pairs))
    assert torch.equal(pairs.embeddings.token_type_embeddings.weight, types)
    assert torch.equal(before[:3], after[:3])
    assert not torch.isclose(before[3:], after[3:]).all(dim=1).any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite_is_named(tmp_path, value):
    tensor = torch.zeros(12, 12)
    tensor[3, 4] = value
    folder = write_hf_folder(tmp_path, tensors={VALUE: tensor})

    with pytest.raises(WeightsError, match=rf"NaN or infinite: {VALUE} \(1 of 144\)"):
        load(folder)


def test_missing_tensor_is_named(tmp_path):
    folder = write_hf_folder(tmp_path, tensors={VALUE: None})

    with pytest.raises(WeightsError, match=f"tensors are missing: {VALUE}"):
        load(folder)


def test_extra_tensor_is_named(tmp_path):
    folder = write_hf_folder(tmp_path, tensors={"encoder.layer.2.output.dense.bias": torch.ones(2)})

    with pytest.raises(WeightsError, match=r"tensors are extra: encoder\.layer\.2\.output"):
        load(folder)


def test_misshapen_tensor_is_named_with_both_shapes(tmp_path):
    folder = write_hf_folder(tmp_path, tensors={VALUE: torch.ones(12, 6)})

    with pytest.raises(WeightsError, match=rf"{VALUE} is torch.float32 \[12, 6\], not \[12, 12\]"):
        load(folder)


def test_whole_numbers_are_not_weights(tmp_path):
    folder = write_hf_folder(tmp_path, tensors={VALUE: torch.ones(12, 12, dtype=torch.int64)})

    with pytest.raises(WeightsError, match=f"misshapen: {VALUE} is torch.int64"):
        load(folder)


def test_half_precision_weights_become_fp32(tmp_path):
    folder = write_hf_folder(tmp_path, tensors={VALUE: torch.full((12, 12), 0.5).half()})

    tensor = load(folder)[0].state_dict()[VALUE]

    assert tensor.dtype is torch.float32
    assert tensor.unique().tolist() == [0.5]


def test_position_buffer_is_ignored_in_silence(tmp_path):
    buffer = {"embeddings.position_ids": torch.arange(16)[None]}

    _, notes = load(write_hf_folder(tmp_path, tensors=buffer))

    assert not any("position_ids" in note for note in notes)


@pytest.mark.parametrize("changes", [{"pooling": "mean"}, {"task": TOKEN}])
def test_pooler_and_foreign_head_that_are_not_used_are_noted(tmp_path, changes):
    head = {"cls.predictions.bias": torch.zeros(30)}

    _, notes = load(write_hf_folder(tmp_path, tensors=head), **changes)

    expected = "cls.predictions.bias, pooler.dense.bias, pooler.dense.weight"
    assert notes[-1] == f"not used by this task: {expected}"


def test_folder_without_pooler_names_the_remedy(tmp_path):
    gone = {"pooler.dense.weight": None, "pooler.dense.bias": None}

    with pytest.raises(WeightsError, match=r"pooler\.dense\.weight.*set model\.pooling to mean"):
        load(write_hf_folder(tmp_path, tensors=gone))


def test_folder_without_safetensors_is_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")

    with pytest.raises(MissingFileError, match=r"there are no weights.*never read"):
        load(tmp_path)


def test_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"no header here")

    with pytest.raises(WeightsError, match="not a safetensors file"):
        load(tmp_path)


def test_seed_decides_every_new_weight():
    first, same, other = (
        build_new_model(build_architecture(), seed=seed, pretrained=None)[0].state_dict()
        for seed in (1, 1, 2)
    )

    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])
    assert first["embeddings.LayerNorm.weight"].unique().tolist() == [1.0]
    assert first["embeddings.word_embeddings.weight"].std() == pytest.approx(0.02, rel=0.2)
