"""The Kubernetes objects are valid for their versions and say what the README promises."""

import copy
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from manifest_checks import KUBERNETES, ManifestChecker, kubernetes_is_here

from cluster.ray_settings import RAY_SETTINGS
from cluster.serve_config import read_serve_file
from pipeline.config import load_job
from serve_app.config import settings_from_arguments

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "cluster/kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
OBJECTS = [
    pytest.param(manifest, id=f"{path.stem}-{manifest['kind']}")
    for path in FILES
    for manifest in yaml.safe_load_all(path.read_text())
]
RAY_KINDS = {"RayCluster": (), "RayJob": ("rayClusterSpec",), "RayService": ("rayClusterConfig",)}
# The Prometheus Operator's own kind; its schema is in no package that could be used here.
UNCHECKED = {"PodMonitor"}
SUBMITTER = "submitterPodTemplate"
OURS = {"app.kubernetes.io/part-of": "textlane"}


def read(name):
    return yaml.safe_load((FOLDER / name).read_text())


def cluster_of(manifest):
    spec = manifest["spec"]
    for key in RAY_KINDS[manifest["kind"]]:
        spec = spec[key]
    return spec


CLUSTERS = [
    pytest.param(cluster_of(parameter.values[0]), id=parameter.id)
    for parameter in OBJECTS
    if parameter.values[0]["kind"] in RAY_KINDS
]


def groups_of(cluster):
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def pod_templates(manifest):
    if manifest["kind"] in RAY_KINDS:
        submitters = [manifest["spec"][key] for key in manifest["spec"] if key == SUBMITTER]
        return [*submitters, *(group["template"] for group in groups_of(cluster_of(manifest)))]
    return [manifest["spec"]["template"]] if manifest["kind"] == "StatefulSet" else []


PODS = [
    pytest.param(template["spec"], id=f"{parameter.id}-{index}")
    for parameter in OBJECTS
    for index, template in enumerate(pod_templates(parameter.values[0]))
]


@pytest.fixture(scope="module", params=KUBERNETES)
def checker(request):
    if not kubernetes_is_here():
        pytest.skip("kubernetes-validate is not installed: pip install -e '.[dev]'")
    return ManifestChecker(request.param)


@pytest.mark.parametrize(
    "manifest", [one for one in OBJECTS if one.values[0]["kind"] not in UNCHECKED]
)
def test_every_field_exists_in_the_versions_named_and_has_its_type(manifest, checker):
    assert checker.problems(manifest) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda m: m["spec"].update(serveConfig="x"), "RayService.spec.serveConfig: there is no"),
        (
            lambda m: cluster_of(m)["workerGroupSpecs"][0].update(minReplicas="1"),
            "minReplicas: '1' is not integer",
        ),
        (lambda m: cluster_of(m)["autoscalerOptions"].update(version="v3"), "'v3' is not v1 | v2"),
        (lambda m: cluster_of(m).pop("headGroupSpec"), "headGroupSpec is missing"),
        (
            lambda m: pod_templates(m)[0]["spec"]["containers"][0].update(imagePolicy="x"),
            "imagePolicy",
        ),
        (
            lambda m: cluster_of(m)["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
            "is not strings",
        ),
    ],
)
def test_a_wrong_field_is_found(checker, change, fault):
    manifest = copy.deepcopy(read("rayservice.yaml"))
    change(manifest)

    (problem,) = checker.problems(manifest)

    assert fault in problem


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_head_does_no_work_and_workers_scale_by_the_second_autoscaler(cluster):
    head = cluster["headGroupSpec"]
    names = [group["groupName"] for group in cluster["workerGroupSpecs"]]

    assert (head["rayStartParams"]["num-cpus"], head["rayStartParams"]["num-gpus"]) == ("0", "0")
    assert cluster["enableInTreeAutoscaling"]
    assert cluster["autoscalerOptions"]["version"] == "v2"
    assert len(names) == 2
    assert {re.split("-", name)[0] for name in names} == {"cpu", "gpu"}
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert ("nvidia.com/gpu" in limits) == group["groupName"].startswith("gpu")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_ray_asks_for_the_token_of_a_secret_and_is_the_pinned_version(cluster):
    (pin,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.M)

    assert cluster["authOptions"] == {"mode": "token", "secretName": "textlane-ray-token"}
    assert cluster["rayVersion"] == pin


@pytest.mark.parametrize("name", ["rayservice.yaml", "raycluster.yaml"])
def test_the_heads_state_is_in_redis_whose_password_is_a_secret(name):
    options = cluster_of(read(name))["gcsFaultToleranceOptions"]
    service, redis = yaml.safe_load_all((FOLDER / "redis.yaml").read_text())

    name, port = options["redisAddress"].split(":")
    secret = options["redisPassword"]["valueFrom"]["secretKeyRef"]
    (given,) = redis["spec"]["template"]["spec"]["containers"][0]["env"]
    assert name == service["metadata"]["name"]
    assert int(port) == service["spec"]["ports"][0]["port"]
    assert secret == given["valueFrom"]["secretKeyRef"]


@pytest.mark.parametrize("pod", PODS)
def test_pods_run_as_nobody_special_with_probes_and_limits(pod):
    (container,) = pod["containers"]
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    if pod.get("restartPolicy") != "Never":  # Who runs once is probed by nobody.
        assert {"readinessProbe", "livenessProbe"} <= container.keys()
    assert {"cpu", "memory"} <= limits.keys()
    # Ray counts what the limit says; less memory behind it would be an eviction.
    assert requests["memory"] == limits["memory"]


@pytest.mark.parametrize("pod", PODS)
def test_images_have_a_version_and_are_those_of_our_files(pod):
    image, _, tag = pod["containers"][0]["image"].partition(":")
    ours = {f"textlane-{p.stem.replace('_', '-')}" for p in (ROOT / "cluster/images").glob("*")}

    assert image in ours | {"redis"}
    assert tag
    assert tag != "latest"


@pytest.mark.parametrize("pod", PODS)
def test_secrets_come_by_reference_and_no_variable_of_ray_is_unlisted(pod):
    listed = {setting.name for setting in RAY_SETTINGS}
    for variable in pod["containers"][0].get("env", []):
        name = variable["name"]
        assert not name.startswith("RAY_") or name in listed
        if re.search("TOKEN|KEY|PASSWORD|SECRET", name):
            assert "value" not in variable
            assert "secretKeyRef" in variable["valueFrom"]


def variables(group):
    (container,) = group["template"]["spec"]["containers"]
    return {one["name"]: one for one in container.get("env", [])}


def test_the_keys_are_wherever_the_application_may_be_built():
    # Settings are read once, in a task that Ray Serve may run on any node, the head's too.
    name = "TEXTLANE_SERVE__API_KEYS"
    groups = groups_of(cluster_of(read("rayservice.yaml")))

    given = [variables(group)[name]["valueFrom"]["secretKeyRef"] for group in groups]

    assert given == [{"name": "textlane-api-keys", "key": "keys", "optional": True}] * 3


def served_settings():
    config = yaml.safe_load(read("rayservice.yaml")["spec"]["serveConfigV2"])
    return settings_from_arguments(config["applications"][0]["args"])


def test_the_release_desk_can_write_and_nobody_can_change_the_bundle():
    settings = served_settings()
    claims = {
        one["metadata"]["name"]
        for one in yaml.safe_load_all((FOLDER / "shared_volume.yaml").read_text())
    }
    for group in groups_of(cluster_of(read("rayservice.yaml"))):
        pod = group["template"]["spec"]
        volumes = {one["name"]: one.get("persistentVolumeClaim") for one in pod["volumes"]}
        writable, kept = {}, set()
        for mount in pod["containers"][0]["volumeMounts"]:
            writable[mount["mountPath"]] = not mount.get("readOnly", False)
            claim = volumes[mount["name"]]
            if claim:
                kept.add(mount["mountPath"])
                assert claim["claimName"] in claims
                assert claim.get("readOnly", False) != writable[mount["mountPath"]]
        assert "/" + settings.release_folder.parts[1] in kept
        assert writable["/" + settings.release_folder.parts[1]]
        assert not writable["/" + Path(settings.bundle).parts[1]]


def test_ray_serve_takes_what_is_served():
    from ray.serve.schema import ServeDeploySchema  # Seconds, which other tests need not wait.

    config = yaml.safe_load(read("rayservice.yaml")["spec"]["serveConfigV2"])

    ServeDeploySchema.model_validate(config)
    # It passes over what it does not know.
    assert config.keys() <= ServeDeploySchema.model_fields.keys()


def test_what_is_served_is_a_good_serve_file_with_good_settings(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text(read("rayservice.yaml")["spec"]["serveConfigV2"])

    config = read_serve_file(path)
    settings = settings_from_arguments(config["applications"][0]["args"])

    assert config["proxy_location"] == "EveryNode"
    assert config["http_options"] == {"host": "0.0.0.0", "port": 8000}
    assert settings.replica_range("short")[1] > settings.replica_range("short")[0]


def test_the_replicas_that_are_always_there_fit_the_pods_that_are():
    manifest = read("rayservice.yaml")
    args = yaml.safe_load(manifest["spec"]["serveConfigV2"])["applications"][0]["args"]
    cpu = cluster_of(manifest)["workerGroupSpecs"][0]
    cpus = int(cpu["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])

    least = args["short_replicas"][0] + args["long_replicas"][0]
    most = args["short_replicas"][1] + args["long_replicas"][1]
    ingress = args["ingress_replicas"] * args["ingress_num_cpus"]
    assert least * args["lane_num_cpus"] + ingress <= cpu["minReplicas"] * cpus
    assert most * args["lane_num_cpus"] + ingress <= cpu["maxReplicas"] * cpus


def test_the_job_runs_a_file_of_job_configs_and_keeps_its_output_on_the_volume():
    words = read("rayjob.yaml")["spec"]["entrypoint"].split()
    file = words[words.index("--config") + 1].removeprefix("/opt/textlane/")
    sets = [word for before, word in pairwise(words) if before == "--set"]

    job = load_job(ROOT / file, sets=sets).settings

    assert words[:4] == ["python", "-m", "pipeline", "run"]
    assert Path(job.output_dir).is_relative_to("/shared")
    assert read("rayjob.yaml")["spec"]["backoffLimit"] > 0


def test_only_pods_of_textlane_reach_rays_own_ports():
    policy, redis = yaml.safe_load_all((FOLDER / "network_policy.yaml").read_text())
    ours = {"podSelector": {"matchLabels": OURS}}

    all_ports = [rule["from"] for rule in policy["spec"]["ingress"] if "ports" not in rule]
    to_everybody = [
        [port["port"] for port in rule["ports"]]
        for rule in policy["spec"]["ingress"]
        if {"podSelector": {}} in rule["from"]
    ]
    assert all_ports == [[ours]]
    assert to_everybody == [[8000]]
    assert [rule["from"] for rule in redis["spec"]["ingress"]] == [[ours]]
    # KubeRay labels each of its pods, whosever it is: that would be a way in.
    assert "created-by" not in str(policy["spec"]["ingress"])


@pytest.mark.parametrize("name", ["raycluster.yaml", "rayjob.yaml", "rayservice.yaml"])
def test_the_network_policy_selects_every_pod_a_jobs_submitter_too(name):
    templates = pod_templates(read(name))

    assert all(template["metadata"]["labels"].items() >= OURS.items() for template in templates)
    assert len(templates) == (4 if name == "rayjob.yaml" else 3)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_prometheus_may_ask_every_process_that_has_metrics(cluster):
    monitor = read("pod_monitor.yaml")["spec"]
    policy, _ = yaml.safe_load_all((FOLDER / "network_policy.yaml").read_text())
    opened = {
        port["port"]
        for rule in policy["spec"]["ingress"]
        if any("monitoring" in str(one) for one in rule["from"])
        for port in rule["ports"]
    }
    head, *workers = [
        {
            port["name"]: port["containerPort"]
            for port in group["template"]["spec"]["containers"][0]["ports"]
        }
        for group in groups_of(cluster)
    ]

    asked = {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]}
    assert asked == {"metrics", "as-metrics", "dash-metrics"}
    # Ray's own defaults (ray/_private/ray_constants.py, autoscaler and dashboard constants).
    assert {head[name] for name in asked} == {8080, 44217, 44227} == opened
    assert all(ports["metrics"] == 8080 for ports in workers)
    assert monitor["selector"]["matchLabels"] == OURS
    assert all(endpoint["honorLabels"] for endpoint in monitor["podMetricsEndpoints"])
