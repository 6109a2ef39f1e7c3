"""Checks Kubernetes objects, KubeRay's among them, against the fields that their versions have."""

import json
from importlib.util import find_spec
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

KUBERAY = yaml.safe_load((Path(__file__).parent / "assets/kuberay_1_6_2.yml").read_text())
# The oldest that the manifests promise, and the newest that is known here.
KUBERNETES = ("1.32.0", "1.37.0")
_PLAIN = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}
_GROUPS = ("io.k8s.api.core.v1", "io.k8s.apimachinery.pkg.apis.meta.v1")


def kubernetes_is_here():
    """Return whether the package with Kubernetes' schemas is installed."""
    return find_spec("kubernetes_validate") is not None


class ManifestChecker:
    """Finds what the API server would drop or refuse."""

    def __init__(self, kubernetes):
        package = Path(find_spec("kubernetes_validate").submodule_search_locations[0])
        self._folder = package / f"kubernetes-json-schema/v{kubernetes}-local-strict"
        definitions = json.loads((self._folder / "_definitions.json").read_text())
        self._names = definitions["$defs"]
        self._id = definitions["$id"]
        self._registry = Resource.from_contents(definitions) @ Registry()

    def problems(self, manifest):
        """Return each fault of one object as ``place: what``; none for a good one."""
        kind, group = manifest["kind"], manifest["apiVersion"]
        if group == "ray.io/v1":
            return list(self._kuberay(manifest, kind, kind))
        name = "-".join([kind.lower(), group.replace("/", "-").replace(".k8s.io", "")])
        schema = json.loads((self._folder / f"{name}.json").read_text())
        return self._by_schema(manifest, schema, kind)

    def _kuberay(self, value, kind, place):
        if kind.startswith("[") and isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._kuberay(item, kind[1:-1], f"{place}[{index}]")
        elif kind.startswith("k8s:"):
            yield from self._kubernetes(value, kind.removeprefix("k8s:"), place)
        elif kind in KUBERAY and isinstance(value, dict):
            yield from self._fields(value, KUBERAY[kind], place)
        elif not _is_of(value, kind):
            yield f"{place}: {value!r} is not {kind}"

    def _fields(self, value, fields, place):
        types = {name.removesuffix("!"): kind for name, kind in fields.items()}
        for name in fields:
            if name.endswith("!") and name[:-1] not in value:
                yield f"{place}: {name[:-1]} is missing"
        for name, item in value.items():
            if name not in types:
                yield f"{place}.{name}: there is no such field"
            else:
                yield from self._kuberay(item, types[name], f"{place}.{name}")

    def _kubernetes(self, value, kind, place):
        (name,) = [f"{group}.{kind}" for group in _GROUPS if f"{group}.{kind}" in self._names]
        return self._by_schema(value, {"$ref": f"{self._id}#/$defs/{name}"}, place)

    def _by_schema(self, value, schema, place):
        validator = Draft202012Validator(schema, registry=self._registry)
        return [
            f"{place}{error.json_path[1:]}: {error.message}"
            for error in validator.iter_errors(value)
        ]


def _is_of(value, kind):
    if kind == "strings":
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if kind in _PLAIN:
        return isinstance(value, _PLAIN[kind]) and (
            kind == "boolean" or not isinstance(value, bool)
        )
    return value in kind.split(" | ")
