"""A tiny bundle whose model takes as long as a real one: milliseconds for each text."""

import json

import numpy as np
import onnx
from bundles import VOCABULARY, write_tiny_bundle
from onnx import helper, numpy_helper

from pipeline.contract.bundle import FP32_NAME, load_bundle, seal_manifest
from pipeline.contract.folder import MANIFEST_NAME, hash_files

_WIDTH = 128


def write_slow_bundle(target, *, products=64):
    """Write a tiny bundle that also multiplies each token's vector so many times by a matrix.

    A product takes a core about 2 µs for each token; the answers stay as they are.
    """
    folder = write_tiny_bundle(target).folder
    model = onnx.load(folder / FP32_NAME)
    _add_work(model.graph, products)
    onnx.save(model, folder / FP32_NAME)
    reseal(folder)
    return load_bundle(folder)


def reseal(folder, **changes):
    """Write the manifest of a bundle anew, for its files as they are, with other values."""
    path = folder / MANIFEST_NAME
    values = json.loads(path.read_text())
    files = {name: digest for name, digest in hash_files(folder).items() if name != MANIFEST_NAME}
    path.write_text(json.dumps(seal_manifest({**values, "files": files, **changes})))


def _add_work(graph, products):
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((_WIDTH, _WIDTH)) / _WIDTH).astype(np.float32)
    table = rng.standard_normal((len(VOCABULARY), _WIDTH)).astype(np.float32)
    constants = {"work_matrix": matrix, "work_table": table, "work_none": np.float32([0.0])}
    graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in constants.items())
    graph.node[-1].output[0] = "own_logits"
    nodes = [helper.make_node("Gather", ["work_table", "input_ids"], ["work_0"])]
    nodes += [
        helper.make_node("MatMul", [f"work_{at}", "work_matrix"], [f"work_{at + 1}"])
        for at in range(products)
    ]
    nodes += [
        helper.make_node(
            "ReduceMean", [f"work_{products}"], ["work_mean"], axes=[1, 2], keepdims=0
        ),
        helper.make_node("Mul", ["work_mean", "work_none"], ["work_nothing"]),
        helper.make_node("Unsqueeze", ["work_nothing", "last_axis"], ["work_column"]),
        helper.make_node("Add", ["own_logits", "work_column"], ["logits"]),
    ]
    graph.initializer.append(numpy_helper.from_array(np.array([1]), "last_axis"))
    graph.node.extend(nodes)
