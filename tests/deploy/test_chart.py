"""The Helm chart, rendered by the real helm: what a user wrote is what a pod gets, and Kubernetes takes it."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from typer.testing import CliRunner

from connectors.kafka.topics import RUN_PARTS
from deploy.commands.root import app
from deploy.settings.file import load_settings
from tests.cases import for_each
from tests.certificates import self_sign

ROOT = Path(__file__).parents[2]
CHART = ROOT / "docker/helm"
EXAMPLES = CHART / "examples"
WRITTEN = """\
# No mode, a cluster of its own, one limit in bytes, words of YAML 1.1.
kafka: {bootstrap_servers: "loop:9092"}
clusters:
  orders: {kafka: {bootstrap_servers: "orders:9092"}}
policies:
  throttle: {hard: {available_bytes_below: 50000000000}, min_hold: 1m30s}
"""
FULL = """
imagePullSecrets: [{name: registry}]
podAnnotations: {team: storage}
env: [{name: HEADGATE_KAFKA__SASL__MECHANISM, value: PLAIN}]
envFrom: [{secretRef: {name: all}}]
volumes: [{name: ca, configMap: {name: ca}}]
volumeMounts: [{name: ca, mountPath: /run/secrets/ca, readOnly: true}]
nodeSelector: {pool: small}
tolerations: [{key: dedicated, operator: Exists}]
affinity: {podAntiAffinity: {}}
serviceAccount: {name: headgate, automountToken: true}
ingress: {enabled: true, className: nginx, annotations: {a: b}, host: page.example.org, tlsSecret: page-tls}
prometheusOperator: {enabled: true, labels: {release: kps}, endpoint: {honorLabels: true}}
parts:
  decide:
    resources: {limits: {memory: 4Gi}}
    podAnnotations: {query: "yes"}
    env: [{name: HEADGATE_STREAM__MASTER, value: "local[4]"}]
    envFrom: [{secretRef: {name: own}}]
    volumes: [{name: more, secret: {secretName: more}}]
    volumeMounts: [{name: more, mountPath: /run/secrets/more}]
    nodeSelector: {pool: large, zone: a}
    tolerations: [{key: large, operator: Exists}]
    affinity: {nodeAffinity: {}}
"""
Manifest = dict[str, Any]
Secret = dict[str, str]


def program(name: str) -> str:
    """Find a program on the path, or where `go install` puts it."""
    found = shutil.which(name) or shutil.which(name, path=Path.home() / "go/bin")
    if found is None:
        pytest.skip(f"{name} is not on this machine")
    return found


def helm(*arguments: str | Path, version: str = "1.33", chart: Path = CHART) -> "subprocess.CompletedProcess[str]":
    command = [program("helm"), "template", "headgate", chart, "--kube-version", version, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def render(*arguments: str | Path, version: str = "1.33") -> list[Manifest]:
    run = helm(*arguments, version=version)
    assert run.returncode == 0, run.stderr
    return [each for each in yaml.safe_load_all(run.stdout) if each]


def one(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def settings_in(manifests: list[Manifest], name: str = "headgate") -> str:
    return str(one(manifests, "ConfigMap", name)["data"]["headgate.yaml"])


def pods(manifests: list[Manifest], *kinds: str) -> dict[str, Manifest]:
    """The pods of workloads, or of jobs, by their component."""
    templates = [each["spec"]["template"] for each in manifests if each["kind"] in kinds]
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in templates}


def workloads(manifests: list[Manifest]) -> dict[str, Manifest]:
    return pods(manifests, "Deployment", "StatefulSet")


# The settings


def test_a_map_of_settings_is_rendered_as_it_was_written_and_nothing_more(tmp_path: Path) -> None:
    written = yaml.safe_load(WRITTEN)
    values, rendered = tmp_path / "values.yaml", tmp_path / "headgate.yaml"
    values.write_text(yaml.safe_dump({"settings": written}))
    manifests = render("--values", values)
    assert yaml.safe_load(settings_in(manifests)) == written
    assert "settings" not in yaml.safe_load((CHART / "values.yaml").read_text()), "helm would merge them under a user's"
    rendered.write_text(settings_in(manifests))
    given = load_settings(rendered)
    assert list(given.clusters) == ["orders"]
    throttle: Any = given.policy_settings()["throttle"]
    assert (throttle.mode, throttle.soft) == ("active", None)
    assert throttle.hard.available_ratio_below is None


@pytest.mark.parametrize("text", [WRITTEN, "\n  kafka:\n    bootstrap_servers: loop:9092\n  clusters: {no: {}}\n"])
def test_a_settings_file_is_passed_whole_with_its_comments(text: str, tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").write_text(text)
    manifests = render("--set-file", f"settings={tmp_path / 'headgate.yaml'}")
    assert settings_in(manifests) == settings_in(manifests, "headgate-jobs") == text


@for_each(
    ("arguments", "sentence"),
    [
        ("", r"settings is empty: pass your file \(--set-file settings=headgate.yaml\)"),
        ("--set settings=words", "settings is no YAML map"),
        ("--set settings.http.host=127.0.0.1", "http.host is 127.0.0.1, which neither Kubernetes' probes"),
        ("--set settings.policies.throttle.sooft=1", "at '/settings/policies/throttle': .*'sooft' not allowed"),
        ("--set settings.kafka.bootstrap_server=loop:9092", "at '/settings/kafka': .*'bootstrap_server' not allowed"),
        ("--set-json settings.clusters.a.kafka.poll_interval=[]", "at '/settings/clusters/a/kafka/poll_interval'"),
        ("--set parts.decide.replica=2", "at '/parts/decide': .*'replica' not allowed"),
        ("--set parts.decider.replicas=2", "at '/parts': .*'decider' not allowed"),
        ("--set volumeMount=1", "at '': .*'volumeMount' not allowed"),
        ("--set image.tag=1", "at '/image/tag': got number, want string"),
        ("--set networkPolicy.egress[0].port=70000", "at '/networkPolicy/egress/0/port'"),
    ],
)
def test_helm_names_a_mistake_in_values_before_anything_is_installed(arguments: str, sentence: str) -> None:
    refused = helm(*arguments.split())
    assert refused.returncode == 1
    assert re.search(sentence, refused.stderr), refused.stderr


def test_a_mistake_in_a_map_is_the_only_one_that_the_schema_names() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    wrong: Manifest = {"settings": {"policies": {"throttle": {"sooft": {}}}}}
    (error,) = Draft202012Validator(schema).iter_errors(wrong)
    assert list(error.absolute_path) == ["settings", "policies", "throttle"]
    assert list(Draft202012Validator(schema).iter_errors({"settings": WRITTEN})) == []


# The pods


@pytest.mark.parametrize("version", ["1.29", "1.33"])
@pytest.mark.parametrize("values", ["full", "strimzi", "files"])
def test_kubernetes_takes_what_helm_renders(values: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "full.yaml").write_text(FULL + yaml.safe_dump({"settings": WRITTEN}))
    file = tmp_path / "full.yaml" if values == "full" else EXAMPLES / f"{values}.yaml"
    manifests = render("--values", file, version=version)
    for manifest in manifests:
        if not manifest["apiVersion"].startswith("monitoring.coreos.com"):
            kubernetes_validate.validate(manifest, version, strict=True)
    parts = workloads(manifests)
    assert set(parts) == set(RUN_PARTS)
    for kind in ("Service", "PodDisruptionBudget"):
        assert len([each for each in manifests if each["kind"] == kind]) == len(parts)
    for part, pod in parts.items():
        _is_confined(pod["spec"])
        container = pod["spec"]["containers"][0]
        assert container["args"] == [part, "--settings", "/etc/headgate/headgate.yaml"]
        probed = {container[f"{each}Probe"]["httpGet"]["port"] for each in ("startup", "liveness", "readiness")}
        assert probed == {"probes"}, "a listener of its own"
    for job in pods(manifests, "Job").values():
        _is_confined(job["spec"])


def _is_confined(pod: Manifest) -> None:
    """Nobody is root, and nobody writes into the image."""
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container["resources"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


def test_what_a_part_names_comes_after_the_lists_and_into_the_maps_of_all_pods(tmp_path: Path) -> None:
    (tmp_path / "full.yaml").write_text(FULL + yaml.safe_dump({"settings": WRITTEN}))
    parts = workloads(render("--values", tmp_path / "full.yaml"))
    query, other = parts["decide"]["spec"], parts["act"]["spec"]
    for pod in (query, other):
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("headgate", True)
    assert [query["nodeSelector"], other["nodeSelector"]] == [{"pool": "large", "zone": "a"}, {"pool": "small"}]
    assert [pod["affinity"].keys() - {"podAntiAffinity"} for pod in (query, other)] == [{"nodeAffinity"}, set()]
    tolerated = [[each["key"] for each in pod["tolerations"]] for pod in (query, other)]
    assert tolerated == [["dedicated", "large"], ["dedicated"]]
    names = [[each["name"] for each in pod["volumes"]] for pod in (query, other)]
    assert names == [["settings", "tmp", "ca", "more"], ["settings", "tmp", "data", "ca"]]
    query, other = (pod["containers"][0] for pod in (query, other))
    assert [each["secretRef"]["name"] for each in query["envFrom"]] == ["all", "own"]
    variables = [each["name"] for each in query["env"]]
    assert variables[-2:] == ["HEADGATE_KAFKA__SASL__MECHANISM", "HEADGATE_STREAM__MASTER"]
    assert {"name": "more", "mountPath": "/run/secrets/more"} not in other["volumeMounts"]
    notes = parts["decide"]["metadata"]["annotations"]
    assert (notes["team"], notes["query"]) == ("storage", "yes")


HTTP = [
    ("", "0.0.0.0", 9408, 9409),
    ("port: 9500, host: '::'", "::", 9500, 9501),
    ("probes_port: 8", "0.0.0.0", 9408, 8),
]


@for_each(("http", "host", "port", "probes"), HTTP)
def test_ports_and_probes_follow_the_settings(http: str, host: str, port: int, probes: int, tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").write_text(f"{WRITTEN}http: {{{http}}}\n")
    manifests = render("--set-file", f"settings={tmp_path / 'headgate.yaml'}")
    (container,) = workloads(manifests)["export"]["spec"]["containers"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"http": port, "probes": probes}
    listens = {each["name"].removeprefix("HEADGATE_HTTP__"): each["value"] for each in container["env"]}
    assert listens == {"HOST": host, "PORT": str(port), "PROBES_PORT": str(probes)}
    (served,) = one(manifests, "Service", "headgate-export")["spec"]["ports"]
    assert served == {"name": "http", "port": port, "targetPort": "http"}


def test_the_ingress_leads_to_the_page_which_answers_to_its_name(tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").write_text(f"{WRITTEN}http: {{host_names: [other.example.org]}}\n")
    (tmp_path / "full.yaml").write_text(FULL)
    manifests = render("--values", tmp_path / "full.yaml", "--set-file", f"settings={tmp_path / 'headgate.yaml'}")
    (rule,) = one(manifests, "Ingress", "headgate")["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert (rule["host"], backend) == ("page.example.org", {"name": "headgate-export", "port": {"name": "http"}})
    (container,) = workloads(manifests)["export"]["spec"]["containers"]
    names = next(each["value"] for each in container["env"] if each["name"] == "HEADGATE_HTTP__HOST_NAMES")
    assert json.loads(names) == ["other.example.org", "page.example.org"]


# The jobs


def test_before_anything_changes_each_part_is_checked_with_its_own_variables_and_files() -> None:
    manifests = render("--values", EXAMPLES / "files.yaml")
    jobs = pods(manifests, "Job")
    assert set(jobs) == {*(f"check-{part}" for part in RUN_PARTS), "topics"}
    for each in manifests:
        if each["kind"] == "Job":
            assert each["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
            assert each["spec"]["backoffLimit"] == 0
    for part, pod in workloads(manifests).items():
        job = jobs[f"check-{part}"]["spec"]
        (own,), (checked,) = pod["spec"]["containers"], job["containers"]
        assert checked["args"] == ["check", "--settings", "/etc/headgate/headgate.yaml"]
        assert (checked["env"], checked["volumeMounts"]) == (own["env"], own["volumeMounts"])
        files = [each for each in pod["spec"]["volumes"] if "secret" in each or each["name"] == "ca"]
        assert [each for each in job["volumes"] if each in files] == files
        assert {"name": "settings", "configMap": {"name": "headgate-jobs"}} in job["volumes"], "not there yet"


def test_jobs_can_be_left_out() -> None:
    off = ("--set", "jobs.check.enabled=false,jobs.topics.enabled=false")
    assert not pods(render("--values", EXAMPLES / "files.yaml", *off), "Job")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Secret:
    """A certificate and its key, as in a secret of the type kubernetes.io/tls."""
    folder = tmp_path_factory.mktemp("pair")
    self_sign(folder / "key", folder / "crt")
    return {"tls.crt": (folder / "crt").read_text(), "tls.key": (folder / "key").read_text()}


SECRET_KEYS = ("password", "zookeeper-password", "token")


def as_a_pod(manifests: list[Manifest], pod: Manifest, pair: Secret, folder: Path) -> tuple[str, dict[str, str]]:
    """The settings and variables that a pod has, with its files below the folder."""
    certificates = {"ca.crt": pair["tls.crt"], **pair}
    (container,) = pod["spec"]["containers"]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    for mount in container["volumeMounts"]:
        if mount["mountPath"].startswith("/run/secrets/"):
            source = volumes[mount["name"]].get("secret", {}).get("secretName", "") or "ca"
            held = certificates if source.endswith(("ca", "tls", "ca-cert")) else dict.fromkeys(SECRET_KEYS, "secret")
            for name, content in held.items():
                file = folder / mount["mountPath"].lstrip("/") / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
    text = settings_in(manifests, volumes["settings"]["configMap"]["name"])
    variables = {each["name"]: each.get("value") or "secret" for each in container["env"]}
    return text.replace("/run/secrets", f"{folder}/run/secrets"), variables


def check(text: str, variables: dict[str, str], folder: Path) -> tuple[int, str]:
    (folder / "headgate.yaml").write_text(text)
    result = CliRunner().invoke(app, ["check", str(folder / "headgate.yaml")], env=variables)
    return result.exit_code, f"{result.output}{result.exception or ''}"


@pytest.mark.parametrize("example", ["strimzi", "files"])
def test_each_pod_of_an_example_has_what_its_settings_want(example: str, pair: Secret, tmp_path: Path) -> None:
    manifests = render("--values", EXAMPLES / f"{example}.yaml")
    each_pod = workloads(manifests) | pods(manifests, "Job")
    assert len(each_pod) == 9
    for name, pod in each_pod.items():
        (folder := tmp_path / name).mkdir()
        status, said = check(*as_a_pod(manifests, pod, pair, folder), folder)
        assert status == 0, f"{name}: {said}"
        assert "no setting" not in said, "of a variable that Headgate does not read"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("--set-json parts.act.volumeMounts=[] --set-json volumeMounts=[]", "ca.crt"),
        ("--set settings.policies.throttle.soft.available_bytes_below=1GB", "soft"),
    ],
)
def test_the_job_refuses_what_check_refuses(wrong: str, sentence: str, pair: Secret, tmp_path: Path) -> None:
    manifests = render("--values", EXAMPLES / "files.yaml", *wrong.split())
    status, said = check(*as_a_pod(manifests, pods(manifests, "Job")["check-act"], pair, tmp_path), tmp_path)
    assert status != 0
    assert sentence in said


# Strimzi

USERS: list[Manifest] = list(yaml.safe_load_all((ROOT / "docker/strimzi-users.yaml").read_text()))


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_strimzi_and_kubernetes_take_each_user(version: str) -> None:
    schema = _closed(json.loads((ROOT / "tests/data/strimzi/kafkauser.json").read_text())[version])
    for user in USERS:
        assert [error.message for error in Draft202012Validator(schema).iter_errors(user)] == []
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", user["metadata"]["name"]), "a name of RFC 1123"
    user = json.loads(json.dumps(USERS[0]))
    user["spec"]["authorization"]["acls"][0]["resource"]["patternTyp"] = "prefix"
    assert len(list(Draft202012Validator(schema).iter_errors(user))) == 1, "a field that Strimzi would prune"


def _closed(schema: Any) -> Any:
    """Kubernetes prunes what a schema does not name, and `kubectl` refuses it; metadata is Kubernetes' own."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(each) for name, each in schema.items()}
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    return {"additionalProperties": False, **closed} if is_object else closed


def _secrets_named(values: Any) -> Iterator[tuple[str, str]]:
    match values:
        case {"secretKeyRef": {"name": name, "key": key}}:
            yield name, key
        case dict():
            for each in values.values():
                yield from _secrets_named(each)
        case list():
            for each in values:
                yield from _secrets_named(each)


def test_the_example_has_a_user_of_strimzi_for_each_part_and_the_key_of_its_secret() -> None:
    values = yaml.safe_load((EXAMPLES / "strimzi.yaml").read_text())
    users = {each["metadata"]["name"] for each in USERS}
    named = set(_secrets_named(values))
    assert {key for _, key in named} == {"password"}, "as Strimzi's User Operator calls it"
    assert {name for name, _ in named} == users - {"headgate-command"}, "which is for people"
    for part, own in {**values["parts"], **values["jobs"]}.items():
        variables = {each["name"]: each for each in own["env"]}
        assert variables["HEADGATE_KAFKA__SASL__USERNAME"]["value"] == f"headgate-{part}"
        for name, variable in variables.items():
            if name.endswith("PASSWORD"):
                user = variables[name.replace("PASSWORD", "USERNAME")]["value"]
                assert variable["valueFrom"]["secretKeyRef"]["name"] == user
