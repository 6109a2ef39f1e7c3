import onnx
import pytest
from int8_samples import Mixed, write_graph

from pipeline.contract.errors import ExportError
from pipeline.export.int8_graph import prepare_graph
from pipeline.export.weighted_nodes import module_path, name_linears, resolve_modules


@pytest.fixture(scope="module")
def mixed_graph(tmp_path_factory) -> onnx.GraphProto:
    path = write_graph(Mixed(), tmp_path_factory.mktemp("mixed") / "mixed.onnx")
    return prepare_graph(path, keep_float=None).model.graph


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("layers.1", ["/layers.1/MatMul"]),
        ("layers/1", ["/layers.1/MatMul"]),
        ("layers.10", ["/layers.10/MatMul"]),
        ("net.0.0", ["/net/net.0/net.0.0/MatMul"]),
        ("net.1", ["/net/net.1/MatMul"]),
        ("net", ["/net/net.0/net.0.0/MatMul", "/net/net.1/MatMul"]),
        ("net/net.1/MatMul", ["/net/net.1/MatMul"]),
        ("score.Gemm", ["/score/Gemm_MatMul"]),
        # Called twice, so that it has two nodes.
        ("shared", ["/shared/MatMul", "/shared_1/MatMul"]),
        ("text", ["/text/Gemm_MatMul", "/text_1/Gemm_MatMul"]),
    ],
)
def test_a_name_means_exactly_the_weights_below_it(mixed_graph, name, nodes) -> None:
    assert resolve_modules(mixed_graph, [name]) == nodes


def test_all_layers_are_below_their_list(mixed_graph) -> None:
    assert len(resolve_modules(mixed_graph, ["layers", "layers.3"])) == 12


@pytest.mark.parametrize("name", ["layer", "layers.12", "ayers.1", "net.2", "1", "layers.1.weight"])
def test_a_name_that_is_only_like_a_module_matches_nothing(mixed_graph, name) -> None:
    with pytest.raises(ExportError, match="must stay float"):
        resolve_modules(mixed_graph, [name])


def test_the_nearest_names_are_listed(mixed_graph) -> None:
    with pytest.raises(ExportError, match=r"\(got 'layer\.1'\)\. The nearest .*layers\.1[,.]"):
        resolve_modules(mixed_graph, ["layer.1"])


def test_a_name_like_no_other_is_answered_with_the_modules_of_the_model(mixed_graph) -> None:
    with pytest.raises(ExportError, match="nearest names are embedding, shared, "):
        resolve_modules(mixed_graph, ["qqq"])


def test_the_embeddings_are_a_weight_that_can_be_named(mixed_graph) -> None:
    assert resolve_modules(mixed_graph, ["embedding"]) == ["/embedding/Gather"]


def test_every_linear_has_a_name_that_finds_it_again(mixed_graph) -> None:
    products = [node.name for node in mixed_graph.node if node.op_type == "MatMul"]

    linears = name_linears(mixed_graph, products)

    assert sorted(node for nodes in linears.values() for node in nodes) == sorted(products)
    assert {"shared", "layers.10", "net.0.0", "text", "score"} <= linears.keys()
    for name, nodes in linears.items():
        assert set(resolve_modules(mixed_graph, [name])) == set(nodes)


@pytest.mark.parametrize(
    ("node", "path"),
    [
        ("/encoder/layer.0/output/dense/MatMul", "encoder layer 0 output dense MatMul"),
        ("/net/net.0/net.0.1/Gemm", "net 0 1 Gemm"),
        ("/MatMul_1", "MatMul_1"),
    ],
)
def test_a_path_reads_as_modules_are_named_in_torch(node, path) -> None:
    assert module_path(node) == tuple(path.split())
