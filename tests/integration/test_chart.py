"""The chart as Helm renders it: forms, rights, Pod Security, and what the operator reads of it."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from house import ROOT
from penstock.api.operator_config import StoreConfig, parse_operator_config
from penstock.api.topology import DURABILITY_IN_CLUSTER
from penstock_operator.cluster.kubernetes_api.names import auth_secret_name, namespaces_map_name
from scenes.called_rights import Right, called_rights
from worlds.kubernetes_forms import faults_of

# Long enough to build Helm from its module, once on a machine; `make lint` has done so before.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

CHART = str(ROOT / "charts/penstock")
KUBERNETES = ("--kube-version", "1.35.4")
NAMESPACE = "streams"
SERVED = ("team-a", "team-b")
OUR_GROUPS = ("penstock.dev", "monitoring.coreos.com")
SETTINGS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "disk": ("store.storageClassName=fast", "uninstall.deleteTopologies=true"),
    "process": ("store.durability=Process",),
    "destroying": ("crds.keep=false", "store.keepVolumes=false", "uninstall.deleteTopologies=true"),
    "everything": (
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "metrics.dashboard.enabled=true",
        "images.store.repository=redis",
        "images.pullSecrets={one,two}",
        "store.priorityClassName=stores",
        "maxCores=7500m",
        "store.tolerations[0].key=a,store.tolerations[0].operator=Exists",
        "store.nodeSelector.disk=ssd",
        "store.auth.existingSecret=vault",
        "store.auth.formerPasswordSeconds=120",
        "operator.tolerations[0].key=a,operator.tolerations[0].operator=Exists",
        "operator.nodeSelector.disk=ssd",
        "operator.priorityClassName=system-cluster-critical",
        "operator.podAnnotations.note=text",
        "operator.podLabels.team=streams",
        "worker.nodeSelector.disk=ssd",
    ),
    "openshift": (
        "podSecurity.anyUser=true",
        "images.registry=registry.example.org/team",
        "worker.serviceAccounts={reader}",
        "worker.tmpSize=5Gi",
    ),
    "served": (
        "namespaces={team-a,team-b}",
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
    ),
    "little": (
        "operator.replicas=1",
        "crds.enabled=false",
        "networkPolicy.enabled=false",
        "uninstall.enabled=false",
        "rbac.podsOfAllNamespaces=false",
        "rbac.aggregated=false",
        "schedules.guarded=false",
    ),
}
Object = dict[str, Any]


@cache
def helm() -> str:
    """The path of a Helm; skips where there is none and none can be built."""
    found = subprocess.run([ROOT / "tools/helm.sh"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *arguments], capture_output=True, text=True, check=False)


def render(*settings: str, release: str = "penstock") -> subprocess.CompletedProcess[str]:
    sets = [part for setting in settings for part in ("--set", setting)]
    return run_helm("template", release, CHART, "--namespace", NAMESPACE, *KUBERNETES, *sets)


def parsed(text: str) -> list[Object]:
    return [thing for thing in yaml.load_all(text, yaml.CSafeLoader) if thing]


@cache
def _rendered(settings: str) -> list[Object]:
    answer = render(*SETTINGS[settings])
    assert answer.returncode == 0, answer.stderr
    return parsed(answer.stdout)


def objects(settings: str = "defaults", kind: str | None = None) -> list[Object]:
    return [thing for thing in _rendered(settings) if kind is None or thing["kind"] == kind]


def named(kind: str, name: str, settings: str = "defaults", namespace: str = NAMESPACE) -> Object:
    (found,) = (
        thing
        for thing in objects(settings, kind)
        if thing["metadata"]["name"] == name and thing["metadata"].get("namespace") in (None, namespace)
    )
    return found


def pod_specs(settings: str) -> Iterator[tuple[str, Object]]:
    for thing in objects(settings):
        title = f"{thing['kind']} {thing['metadata']['name']}"
        if thing["kind"] == "Pod":
            yield title, thing["spec"]
        elif "template" in thing.get("spec", {}):
            yield title, thing["spec"]["template"]["spec"]


def rules(
    name: str, kind: str = "Role", settings: str = "defaults", namespace: str = NAMESPACE
) -> set[tuple[str, str]]:
    """Every (resource, verb) that a role grants."""
    return {
        (resource, verb)
        for rule in named(kind, name, settings, namespace)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_helm_finds_nothing_to_complain_about() -> None:
    linted = run_helm("lint", "--strict", "--quiet", *KUBERNETES, CHART)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_object_has_the_form_that_kubernetes_asks_for(settings: str) -> None:
    for thing in objects(settings):
        group = thing["apiVersion"].split("/")[0]
        faults = faults_of(thing)
        if thing["kind"] == "CustomResourceDefinition" or group in OUR_GROUPS:
            continue
        assert faults == [], thing["metadata"]["name"]


def test_the_check_of_forms_finds_faults() -> None:
    deployment = copy.deepcopy(named("Deployment", "penstock-operator"))
    deployment["spec"]["template"]["spec"]["containers"][0]["ports"] = [
        {"containerPort": "80", "prot": "TCP"}
    ]
    del deployment["spec"]["selector"]
    assert faults_of(deployment) == [
        "Deployment.spec.selector: is required",
        "Deployment.spec.template.spec.containers[0].ports[0].containerPort: '80' is no int",
        "Deployment.spec.template.spec.containers[0].ports[0].prot: there is no such field",
    ]


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_object_is_of_the_namespace_and_carries_the_recommended_labels(settings: str) -> None:
    across = {
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    for thing in objects(settings):
        metadata = thing["metadata"]
        is_served = settings == "served" and metadata.get("namespace") in SERVED
        if not is_served:
            assert metadata.get("namespace") == (None if thing["kind"] in across else NAMESPACE), metadata
        assert metadata["labels"]["app.kubernetes.io/name"] == "penstock"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_pod_fits_pod_security_restricted(settings: str) -> None:
    seen = 0
    for title, spec in pod_specs(settings):
        seen += 1
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), title
        assert spec["securityContext"]["runAsNonRoot"] is True, title
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, title
        for volume in spec.get("volumes", ()):
            assert set(volume) - {"name"} <= {"configMap", "secret", "emptyDir", "projected"}, title
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, title
            assert security["capabilities"] == {"drop": ["ALL"]}, title
            assert security["readOnlyRootFilesystem"] is True, title
            assert container["resources"]["limits"]["memory"], title
    assert seen >= 2


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_operator_understands_its_configuration(settings: str) -> None:
    text = named("ConfigMap", "penstock-operator", settings)["data"]["config.yaml"]
    config = parse_operator_config(text)
    assert (config.fullname, config.namespace) == ("penstock", NAMESPACE)
    registry = "registry.example.org/team/" if settings == "openshift" else ""
    assert config.images.operator == f"{registry}penstock-operator:0.1.0"
    assert config.images.worker == f"{registry}penstock-worker:0.1.0"
    assert config.any_user == (settings == "openshift")
    assert config.store.durability == ("Process" if settings == "process" else "Disk")
    assert config.store.has_claim == (settings != "process")
    assert config.store.keep_volumes == (settings != "destroying")
    assert config.cores_max == (7.5 if settings == "everything" else None)
    made = {(thing["kind"], thing["metadata"]["name"]) for thing in objects(settings)}
    for kind, name in (
        ("ServiceAccount", config.store.service_account),
        ("Service", config.store.headless_service),
        ("Service", config.store.local_service),
    ):
        assert (kind, name) in made


def test_user_and_groups_are_left_to_the_platform_where_it_gives_them() -> None:
    for settings, given in (("defaults", {"runAsUser", "runAsGroup", "fsGroup"}), ("openshift", set())):
        for title, spec in pod_specs(settings):
            fixed = {name for name in spec["securityContext"] if name.endswith(("AsUser", "Group"))}
            assert fixed == given, title


def test_values_reach_the_operator() -> None:
    config = parse_operator_config(
        named("ConfigMap", "penstock-operator", "openshift")["data"]["config.yaml"]
    )
    assert (config.worker.tmp_size, config.worker.service_accounts) == ("5Gi", ("reader",))
    config = parse_operator_config(
        named("ConfigMap", "penstock-operator", "everything")["data"]["config.yaml"]
    )
    assert config.images.store == "redis:0.1.0"
    assert [secret.name for secret in config.image_pull_secrets] == ["one", "two"]
    assert config.priority_class_name == "stores"
    linux = {"kubernetes.io/os": "linux"}
    assert config.store.node_selector == config.worker.node_selector == {"disk": "ssd", **linux}
    assert [one.key for one in config.store.tolerations] == ["a"]


def test_a_change_of_the_configuration_restarts_the_operator() -> None:
    def checksum(settings: str) -> str:
        template = named("Deployment", "penstock-operator", settings)["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum("defaults") != checksum("disk")


def test_no_role_grants_more_than_it_names() -> None:
    for thing in (*objects("everything", "Role"), *objects("everything", "ClusterRole")):
        for rule in thing["rules"]:
            for part in ("apiGroups", "resources", "verbs"):
                assert "*" not in rule[part], thing["metadata"]["name"]
            assert not {"serviceaccounts", "roles", "rolebindings"} & set(rule["resources"])
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert rule["resources"] == ["secrets"]
                assert set(rule["resourceNames"]) <= {
                    "penstock-store-auth",
                    "penstock-store-workers",
                    "vault",
                }
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])


def test_the_operator_has_the_rights_that_its_code_makes_use_of_and_no_other() -> None:
    of_cluster = granted(f"{NAMESPACE}-penstock-operator", "ClusterRole")
    # Nodes are in no namespace, and pods are in this one too.
    assert granted("penstock-operator", "Role") | of_cluster == called_rights()


def granted(name: str, kind: str, settings: str = "defaults", namespace: str = NAMESPACE) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in named(kind, name, settings, namespace)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_in_a_further_namespace_the_operator_has_the_rights_for_topologies_and_no_other() -> None:
    """Stores, their volumes, and the Lease are in the release's."""
    elsewhere = {"statefulsets", "persistentvolumeclaims", "leases", "nodes", "persistentvolumes"}
    needed = {right for right in called_rights() if right[1] not in elsewhere}
    for namespace in SERVED:
        assert granted("penstock-operator", "Role", "served", namespace) == needed
        assert rules("penstock-agent", "Role", "served", namespace) == rules("penstock-agent")
    for kind, name in (
        ("Role", "penstock-operator"),
        ("Role", "penstock-agent"),
        ("ClusterRole", f"{NAMESPACE}-penstock-operator"),
    ):
        assert granted(name, kind, "served") == granted(name, kind), "no more than without"


def test_rights_in_a_further_namespace_are_the_releases_accounts_alone() -> None:
    bound = [one for one in objects("served", "RoleBinding") if one["metadata"]["namespace"] in SERVED]
    accounts = {"penstock-operator", "penstock-agent", "penstock-uninstall"}
    assert {(one["metadata"]["namespace"], one["roleRef"]["name"]) for one in bound} == {
        (namespace, account) for namespace in SERVED for account in accounts
    }
    for one in bound:
        (subject,) = one["subjects"]
        assert subject["namespace"] == NAMESPACE
        assert subject["name"] == one["roleRef"]["name"]


def test_secrets_of_a_further_namespace_are_the_workers_part_of_the_passwords_alone() -> None:
    for namespace in SERVED:
        role = named("Role", "penstock-operator", "served", namespace)
        read = {
            name: set(rule["verbs"])
            for rule in role["rules"]
            if "secrets" in rule["resources"]
            for name in rule.get("resourceNames", ["any"])
        }
        assert read == {"penstock-store-workers": {"get", "update"}, "any": {"create"}}


def test_operator_and_agents_are_told_which_namespaces_are_served() -> None:
    text = named("ConfigMap", "penstock-operator", "served")["data"]["config.yaml"]
    assert parse_operator_config(text).served == (NAMESPACE, *SERVED)
    told = named("ConfigMap", "penstock-namespaces", "served")
    assert told["metadata"]["name"] == namespaces_map_name("penstock")
    assert told["data"]["namespaces"].split() == list(SERVED)
    assert not [one for one in objects() if one["metadata"]["name"] == "penstock-namespaces"]
    assert "namespaces" not in named("ConfigMap", "penstock-operator")["data"]["config.yaml"]


def test_stores_are_reached_by_workers_of_namespaces_that_are_served_and_no_others() -> None:
    store, _ = named("NetworkPolicy", "penstock-stores", "served")["spec"]["ingress"]
    peers = [peer for peer in store["from"] if "namespaceSelector" in peer]
    assert {
        (
            peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"],
        )
        for peer in peers
    } == {(namespace, component) for namespace in SERVED for component in ("worker", "spark-worker")}
    for namespace in SERVED:
        assert named("NetworkPolicy", "penstock-workers", "served", namespace)["spec"]["policyTypes"] == [
            "Ingress"
        ]


def test_schedules_are_guarded_and_metrics_read_in_all_namespaces_that_are_served() -> None:
    binding = named("ValidatingAdmissionPolicyBinding", f"{NAMESPACE}-penstock-schedules", "served")["spec"]
    (guarded,) = binding["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert guarded["values"] == [NAMESPACE, *SERVED]
    monitor = named("ServiceMonitor", "penstock", "served")["spec"]
    assert monitor["namespaceSelector"]["matchNames"] == [NAMESPACE, *SERVED]
    for namespace in SERVED:
        assert named("Service", "penstock-metrics", "served", namespace)
    alerts = yaml.safe_dump(named("PrometheusRule", "penstock", "served"))
    assert 'namespace=~"streams|team-a|team-b"' in alerts
    assert "PenstockNamespaceNotServed" in alerts
    assert "PenstockNamespaceNotServed" not in yaml.safe_dump(
        named("PrometheusRule", "penstock", "everything")
    )


def test_the_operator_looks_at_nodes_and_pods_of_the_cluster_and_no_further() -> None:
    cluster_role = f"{NAMESPACE}-penstock-operator"
    looks = {("nodes", "list"), ("nodes", "watch"), ("persistentvolumes", "get")}
    assert rules(cluster_role, "ClusterRole") == {*looks, ("pods", "list")}
    assert rules(cluster_role, "ClusterRole", "little") == looks


def test_the_operator_does_not_touch_what_users_write() -> None:
    verbs = {
        verb for resource, verb in rules("penstock-operator") if resource in {"topologies", "latencyslas"}
    }
    assert verbs == {"list", "watch"}


def test_the_operator_writes_into_the_status_of_schedules_and_reads_it_with_them() -> None:
    verbs = {verb for resource, verb in rules("penstock-operator") if resource == "schedules/status"}
    assert verbs == {"patch"}


def test_schedules_are_deleted_and_written_by_the_operator_and_the_garbage_collector_alone() -> None:
    name = f"{NAMESPACE}-penstock-schedules"
    policy = named("ValidatingAdmissionPolicy", name)["spec"]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    # Not schedules/status: that is the agents'.
    assert (rule["apiGroups"], rule["resources"]) == (["penstock.dev"], ["schedules"])
    assert set(rule["operations"]) == {"CREATE", "UPDATE", "DELETE"}
    assert policy["failurePolicy"] == "Fail"
    ours = next(one for one in policy["variables"] if one["name"] == "isOurs")["expression"]
    users = json.loads(ours.removeprefix("request.userInfo.username in "))
    accounts = {user.removeprefix("system:serviceaccount:") for user in users}
    assert accounts == {
        f"{NAMESPACE}:penstock-operator",
        f"{NAMESPACE}:penstock-uninstall",
        "kube-system:generic-garbage-collector",
        "kube-system:namespace-controller",
        "system:kube-controller-manager",
    }
    binding = named("ValidatingAdmissionPolicyBinding", name)["spec"]
    assert (binding["policyName"], binding["validationActions"]) == (name, ["Deny"])
    where = binding["matchResources"]["namespaceSelector"]["matchLabels"]
    assert where == {"kubernetes.io/metadata.name": NAMESPACE}
    assert not objects("little", "ValidatingAdmissionPolicy")
    told = parsed(render("schedules.alsoWrittenBy={system:serviceaccount:backup:velero}").stdout)
    (policy,) = (one["spec"] for one in told if one["kind"] == "ValidatingAdmissionPolicy")
    assert "system:serviceaccount:backup:velero" in policy["variables"][0]["expression"]


def test_who_views_or_edits_a_namespace_views_or_edits_topologies_too() -> None:
    def aggregated_to(role: str, settings: str = "defaults") -> set[tuple[str, str]]:
        label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
        names = [
            thing["metadata"]["name"]
            for thing in objects(settings, "ClusterRole")
            if thing["metadata"]["labels"].get(label) == "true"
        ]
        return set().union(*(rules(name, "ClusterRole", settings) for name in names))

    written = {"topologies", "latencyslas"}
    seen = {*written, "schedules"}
    seen |= {f"{resource}/status" for resource in seen}
    sees = {(one, verb) for one in seen for verb in ("get", "list", "watch")}
    assert aggregated_to("view") == sees | {("topologies/scale", "get")}
    writes = {(one, verb) for one in written for verb in ("create", "update", "patch", "delete")}
    writes |= {("topologies/scale", verb) for verb in ("update", "patch")}
    assert aggregated_to("edit") == aggregated_to("admin") == writes
    assert not aggregated_to("view", "little") | aggregated_to("edit", "little")


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_pod_goes_to_a_node_of_linux(settings: str) -> None:
    linux = ("kubernetes.io/os", "linux")
    for title, spec in pod_specs(settings):
        assert linux in spec["nodeSelector"].items(), title
    text = named("ConfigMap", "penstock-operator", settings)["data"]["config.yaml"]
    config = parse_operator_config(text)
    assert linux in config.store.node_selector.items()
    assert linux in config.worker.node_selector.items()


def test_an_agent_reads_schedules_and_reports_on_them() -> None:
    assert rules("penstock-agent") == {
        ("topologies", "list"),
        ("schedules", "get"),
        ("schedules", "list"),
        ("schedules", "watch"),
        ("schedules/status", "patch"),
    }


def test_the_hooks_account_is_there_for_the_hook_only() -> None:
    bound = [thing for thing in objects() if thing["metadata"]["name"].endswith("penstock-uninstall")]
    in_namespace = {"ServiceAccount", "Role", "RoleBinding", "Job"}
    assert {thing["kind"] for thing in bound} == in_namespace
    for thing in bound:
        assert thing["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert not [thing for thing in objects("little") if "uninstall" in thing["metadata"]["name"]]


def test_an_uninstall_destroys_what_it_is_asked_to_and_no_more() -> None:
    def arguments(settings: str) -> set[str]:
        (job,) = objects(settings, "Job")
        told = job["spec"]["template"]["spec"]["containers"][0]["args"]
        return {one for one in told if one.startswith(("--keep", "--crds"))}

    assert arguments("defaults") == {"--keep-topologies"}
    assert arguments("disk") == {"--keep-volumes"}
    assert arguments("destroying") == {"--crds-go"}

    def may_delete(settings: str) -> set[str]:
        granted = rules("penstock-uninstall", settings=settings)
        return {resource for resource, verb in granted if verb == "delete"}

    written, volumes = {"topologies", "latencyslas", "schedules"}, {"persistentvolumeclaims"}
    assert not may_delete("defaults") & (written | volumes)
    assert may_delete("disk") & (written | volumes) == written
    assert may_delete("destroying") >= written | volumes
    name = f"{NAMESPACE}-penstock-uninstall"
    assert rules(name, "ClusterRole", "destroying") == {("topologies", "list")}


def test_the_notes_say_what_keeps_state_and_what_destroys_it(tmp_path: Path) -> None:
    """Helm shows them where there is a cluster: here they are rendered as a part of an object."""
    chart = tmp_path / "penstock"
    shutil.copytree(CHART, chart)
    text = (chart / "templates/NOTES.txt").read_text(encoding="utf-8")
    told = '{apiVersion: v1, kind: ConfigMap, data: {notes: {{ include "notes" . | quote }}}}'
    (chart / "templates/notes.yaml").write_text(f'{{{{- define "notes" }}}}{text}{{{{ end }}}}\n{told}\n')

    def notes(*settings: str) -> str:
        sets = [part for setting in settings for part in ("--set", setting)]
        only = ("--show-only", "templates/notes.yaml")
        rendered = run_helm("template", "penstock", str(chart), "-n", NAMESPACE, *KUBERNETES, *only, *sets)
        assert rendered.returncode == 0, rendered.stderr
        (thing,) = parsed(rendered.stdout)
        return " ".join(thing["data"]["notes"].split())

    assert "on volumes of the cluster's default storage class" in notes()
    assert "a release of the same name goes on with them" in notes()
    assert "DELETES" not in notes()
    assert "loses the state" in notes("store.durability=Process")
    assert "DELETES the Topologies" in notes("uninstall.deleteTopologies=true")
    assert "deletes the CRDs too" in notes("crds.keep=false")


def test_the_default_install_runs_the_default_topology() -> None:
    """What a Topology asks for that says nothing is what stores give that are installed with no values."""
    config = parse_operator_config(named("ConfigMap", "penstock-operator")["data"]["config.yaml"])
    assert config.store.durability == DURABILITY_IN_CLUSTER


def test_the_chart_renders_no_password_so_nothing_that_renders_it_rotates_one() -> None:
    for settings in SETTINGS:
        assert not objects(settings, "Secret")
    assert render().stdout == render().stdout


def test_a_secret_that_an_earlier_chart_had_made_is_kept_through_the_upgrade_and_then_let_go(
    tmp_path: Path,
) -> None:
    """Helm finds it where there is a cluster: here it is found in a file of the chart."""
    chart = tmp_path / "penstock"
    shutil.copytree(CHART, chart)
    template = chart / "templates/store/secret.yaml"
    text = template.read_text(encoding="utf-8")
    before, looked_up, after = text.partition("lookup")
    end = after.index(") }}") + len(")")
    found = '(.Files.Get "files/found.json" | fromJson)'
    template.write_text(f"{before}{found}{after[end:]}", encoding="utf-8")
    assert looked_up

    def secrets(there: dict[str, Any]) -> list[dict[str, Any]]:
        (chart / "files/found.json").write_text(json.dumps(there), encoding="utf-8")
        rendered = run_helm("template", "penstock", str(chart), "-n", NAMESPACE, *KUBERNETES)
        assert rendered.returncode == 0, rendered.stderr
        return [thing for thing in parsed(rendered.stdout) if thing["kind"] == "Secret"]

    def held(manager: str, **annotations: str) -> dict[str, Any]:
        labels = {"app.kubernetes.io/managed-by": manager}
        metadata = {"name": "penstock-store-auth", "labels": labels, "annotations": annotations}
        return {"metadata": metadata, "type": "Opaque", "data": {"worker-password": "c2VjcmV0"}}

    assert secrets({}) == []
    (kept,) = secrets(held("Helm"))
    assert kept["data"] == {"worker-password": "c2VjcmV0"}, "as it is"
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert secrets(held("Helm", **{"helm.sh/resource-policy": "keep"})) == [], "it stays without the chart"
    assert secrets(held("penstock-operator")) == []


def test_the_operator_reads_the_stores_passwords_and_no_other_secret() -> None:
    def read(settings: str) -> dict[str, set[str]]:
        role = named("Role", "penstock-operator", settings)
        return {
            name: set(rule["verbs"])
            for rule in role["rules"]
            if "secrets" in rule["resources"]
            for name in rule.get("resourceNames", ["any"])
        }

    ours = {
        "penstock-store-auth": {"get", "update"},
        "penstock-store-workers": {"get", "update"},
        "any": {"create"},
    }
    assert read("defaults") == ours
    assert read("everything") == {**ours, "vault": {"get"}}

    def config(settings: str) -> StoreConfig:
        told = named("ConfigMap", "penstock-operator", settings)["data"]["config.yaml"]
        return parse_operator_config(told).store

    assert config("everything").passwords_secret == "vault"
    assert config("everything").former_password_seconds == 120
    assert config("defaults").passwords_secret is None
    assert config("defaults").auth_secret == auth_secret_name("penstock"), (
        "as the uninstall hook looks for it"
    )


def test_stores_are_reached_by_workers_agents_and_the_operator_alone() -> None:
    policy = named("NetworkPolicy", "penstock-stores")["spec"]
    store, metrics = policy["ingress"]
    assert store["ports"] == [{"port": 6379, "protocol": "TCP"}]
    components = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in store["from"]]
    assert sorted(components) == ["node-store", "operator", "worker"]
    assert all(set(peer) == {"podSelector"} for peer in store["from"])
    assert [port["port"] for port in metrics["ports"]] == ["metrics"]
    assert not objects("little", "NetworkPolicy")


def test_a_store_is_local_to_its_callers_node_and_known_before_it_is_ready() -> None:
    assert named("Service", "penstock-store-local")["spec"]["internalTrafficPolicy"] == "Local"
    by_name = named("Service", "penstock-stores")["spec"]
    assert by_name["clusterIP"] == "None"
    assert by_name["publishNotReadyAddresses"] is True


def test_drains_wait_for_stores_and_for_the_last_operator() -> None:
    budgets = {thing["metadata"]["name"]: thing["spec"] for thing in objects(kind="PodDisruptionBudget")}
    assert budgets["penstock-stores"]["maxUnavailable"] == 0
    assert budgets["penstock-operator"]["minAvailable"] == 1
    # With one replica it would hold up every drain.
    assert [thing["metadata"]["name"] for thing in objects("little", "PodDisruptionBudget")] == [
        "penstock-stores"
    ]


def test_the_crds_are_those_of_the_repository_and_stay_when_they_are_to_be_kept() -> None:
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        (written,) = parsed(path.read_text(encoding="utf-8"))
        name = written["metadata"]["name"]
        rendered = named("CustomResourceDefinition", name)
        assert rendered["spec"] == written["spec"]
        assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert "annotations" not in named("CustomResourceDefinition", name, "destroying")["metadata"]
    assert not objects("little", "CustomResourceDefinition")


def test_monitors_are_made_when_asked_for() -> None:
    kinds = {"ServiceMonitor", "PrometheusRule"}
    assert not kinds & {thing["kind"] for thing in objects()}
    assert kinds <= {thing["kind"] for thing in objects("everything")}
    dashboard = named("ConfigMap", "penstock-dashboard", "everything")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["penstock.json"])["panels"]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("store.durability=Replicated", "durability"),
        ("store.memroy=1Gi", "memroy"),
        ("operator.replicas=-1", "replicas"),
        ("store.size=much", "size"),
        ("store.auth.existingSecret=Not_A_Name", "existingSecret"),
        ("store.auth.formerPasswordSeconds=1", "formerPasswordSeconds"),
        ("images.pullPolicy=Sometimes", "pullPolicy"),
        ("fullnameOverride=Not_A_Name", "fullnameOverride"),
        ("uninstall.timeoutSeconds=0", "timeoutSeconds"),
        ("maxCores=many", "maxCores"),
        ("namespaces={Not_A_Name}", "namespaces"),
        ("namespaces={team-a,team-a}", "namespaces"),
        (f"namespaces={{{NAMESPACE}}}", "is the namespace of the release, which is served anyway"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(setting: str, complaint: str) -> None:
    rendered = render(setting)
    assert rendered.returncode != 0
    assert complaint in rendered.stderr


@pytest.mark.parametrize(
    ("release", "fullname"),
    [
        ("penstock", "penstock"),
        ("prod", "prod-penstock"),
        ("a-release-with-a-name-that-is-rather-long", "a-release-with-a-name-that-is-rather-lon"),
    ],
)
def test_names_begin_with_the_release_and_fit(release: str, fullname: str) -> None:
    found = parsed(render("crds.enabled=false", release=release).stdout)
    (config,) = (
        parse_operator_config(thing["data"]["config.yaml"])
        for thing in found
        if thing["kind"] == "ConfigMap" and "config.yaml" in thing["data"]
    )
    assert config.fullname == fullname or fullname.startswith(config.fullname)
    assert len(config.fullname) <= 40
    for thing in found:
        assert len(thing["metadata"]["name"]) <= 63, thing["kind"]
