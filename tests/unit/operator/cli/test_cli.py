"""The command line: what it prints and with which exit code it ends, without starting anything."""

from __future__ import annotations

import copy
import json
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from penstock.api.inspected_code import InspectedCode
from penstock.manifest.faults import Fault, InvalidManifest
from penstock_operator.checking import checked_manifest, code_inspection
from penstock_operator.cli.faults import EXIT_CANNOT_RUN, EXIT_FAILED, EXIT_INVALID
from penstock_operator.cli.main import main
from penstock_operator.projects.making import TEMPLATES

MANIFEST = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "lines"},
    "spec": {
        "operators": [
            {"name": "lines", "source": {"files": {"glob": "texts/*.txt"}}},
            {"name": "out", "inputs": ["lines"], "sink": {"files": {"path": "out/"}}},
        ]
    },
}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest without code, in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(MANIFEST))
    return path


@pytest.fixture
def invalid(manifest: Path) -> Path:
    manifest.write_text(manifest.read_text().replace("glob", "globb").replace("inputs", "input"))
    return manifest


def test_the_version_is_the_distributions() -> None:
    assert invoke("--version").output == f"penstock {version('penstock')}\n"


@pytest.mark.parametrize("command", ["run", "validate", "crds"])
def test_every_command_explains_itself(command: str) -> None:
    assert f"  {command} " in invoke("--help").output
    shown = invoke(command, "--help")
    assert shown.exit_code == 0
    assert "Usage:" in shown.output


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from penstock_operator.cli.main import main; main(['--help'], standalone_mode=False);"
        "print([m for m in ('pydantic', 'rich', 'numpy', 'redis', 'yaml', 'msgspec') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_every_fault_of_a_manifest_is_listed_at_once(invalid: Path) -> None:
    for command in ("run", "validate"):
        ended = invoke(command, str(invalid))
        assert ended.exit_code == EXIT_INVALID
        assert (
            "spec.operators[0] (lines).source.files.globb: unknown field (did you mean glob?)" in ended.output
        )
        assert "spec.operators[1] (out).input: unknown field (did you mean inputs?)" in ended.output
        assert "Traceback" not in ended.output


def test_a_manifest_for_a_cluster_may_have_its_code_in_a_config_map(manifest: Path) -> None:
    spec = {**MANIFEST["spec"], "code": {"configMap": "code"}}  # type: ignore[dict-item]
    manifest.write_text(yaml.safe_dump({**MANIFEST, "spec": spec}))
    assert invoke("validate", str(manifest)).exit_code == EXIT_INVALID
    ended = invoke("validate", "--cluster", str(manifest))
    assert (ended.exit_code, ended.output) == (0, f"{manifest}: valid\n")
    bad = {**spec, "pod": {"env": [{"name": "PENSTOCK_X", "value": "1"}]}}
    manifest.write_text(yaml.safe_dump({**MANIFEST, "spec": bad}))
    ended = invoke("validate", "--cluster", str(manifest))
    assert ended.exit_code == EXIT_INVALID
    assert "spec.pod.env[0] (PENSTOCK_X).name" in ended.output


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no code to be looked at, by another process."""
    monkeypatch.setattr(checked_manifest, "inspected", lambda path, overrides: InspectedCode())


@pytest.mark.usefixtures("without_code")
def test_what_is_not_there_to_be_read_or_written_is_warned_of_and_valid(manifest: Path) -> None:
    (manifest.parent / "out").write_text("no folder")
    ended = invoke("validate", str(manifest))
    assert ended.exit_code == 0
    assert ended.stdout == f"{manifest}: valid\n"
    source, sink = ended.stderr.splitlines()
    assert source == (
        f"warning: source lines: no file matches 'texts/*.txt' (looked for in {manifest.parent}); "
        "correct the glob or put files there"
    )
    assert sink == (
        f"warning: sink out: folder {manifest.parent}/out cannot be written into "
        f"({manifest.parent}/out is no folder); mend that, or give another path"
    )
    as_json = invoke("validate", "--json", str(manifest))
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (0, [])
    assert as_json.stderr == ended.stderr


@pytest.mark.usefixtures("without_code")
def test_a_sink_of_late_rows_that_cannot_be_written_is_warned_of(manifest: Path) -> None:
    document = copy.deepcopy(MANIFEST)
    keyed = {"name": "count", "inputs": ["lines"], "keyBy": ["at"], "processor": "m:P"}
    timed = {"timeMode": "EventTime", "lateTo": {"files": {"path": "late/"}}, "outputSchema": "word string"}
    files = {"glob": "texts/*.txt", "format": "jsonl", "schema": "at timestamp"}
    document["spec"] = {
        "code": {"module": "m"},
        "operators": [
            {"name": "lines", "source": {"files": files}, "eventTime": {"column": "at"}},
            {**keyed, **timed},
            {"name": "out", "inputs": ["count"], "sink": {"files": {"path": "out/"}}},
        ],
    }
    manifest.write_text(yaml.safe_dump(document))
    (manifest.parent / "m.py").write_text("class P:\n    pass\n")
    (manifest.parent / "late").write_text("no folder")
    (_, late) = invoke("validate", str(manifest)).stderr.splitlines()
    assert late == (
        f"warning: sink count-late: folder {manifest.parent}/late cannot be written into "
        f"({manifest.parent}/late is no folder); mend that, or give another path"
    )


@pytest.mark.usefixtures("without_code")
def test_nothing_is_warned_of_where_all_is_there_and_nothing_is_made(manifest: Path) -> None:
    (manifest.parent / "texts").mkdir()
    (manifest.parent / "texts" / "a.txt").touch()
    before = sorted(manifest.parent.rglob("*"))
    ended = invoke("validate", str(manifest))
    assert (ended.exit_code, ended.output) == (0, f"{manifest}: valid\n")
    assert sorted(manifest.parent.rglob("*")) == before


def test_a_clusters_files_are_not_looked_for(manifest: Path) -> None:
    ended = invoke("validate", "--cluster", str(manifest))
    assert (ended.exit_code, ended.output) == (0, f"{manifest}: valid\n")


def test_faults_can_be_had_as_json(invalid: Path) -> None:
    ended = invoke("validate", "--json", str(invalid))
    assert ended.exit_code == EXIT_INVALID
    faults = json.loads(ended.output)
    assert {"path", "message"} == set(faults[0])
    assert len(faults) >= 2


def test_a_manifest_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    ended = invoke("run", str(tmp_path / "none.yaml"))
    assert ended.exit_code == EXIT_INVALID
    assert "no such file" in ended.output


def test_faults_of_names_and_of_code_are_listed_together_and_no_place_twice(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load(manifest.read_text())
    step = {"name": "step", "inputs": ["lines"], "map": "nowhere:split", "outputSchema": "word string"}
    document["spec"]["operators"].insert(1, step)
    document["spec"]["operators"][2]["inputs"] = ["step"]
    document["spec"]["code"] = {"module": "nowhere"}
    manifest.write_text(yaml.safe_dump(document))
    found = [Fault("spec.code.module", "not found"), Fault("spec.operators[1] (step).map", "raised")]
    monkeypatch.setattr(checked_manifest, "inspected", lambda path, overrides: InspectedCode(found))
    with pytest.raises(InvalidManifest) as faults:
        checked_manifest.check_manifest(manifest, [])
    assert [fault.path for fault in faults.value.faults] == [
        "spec.code.module",
        "spec.operators[1] (step).map",
    ]
    assert "put nowhere.py there" in faults.value.faults[0].message


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user code is taken for good: looking at it needs another process."""
    monkeypatch.setattr(checked_manifest, "inspected", lambda path, overrides: InspectedCode())


def assert_one_sentence(ended: Result, told: str) -> None:
    assert ended.exit_code == EXIT_CANNOT_RUN
    assert told in ended.output
    assert ended.output.startswith("penstock: ")
    assert ended.output.count("\n") == 1


SLA = """
---
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {name: quick}
spec: {topology: lines, latency: 250ms}
"""


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize(
    ("text", "number"),
    [("{one}---\n" + "{two}", 2), (SLA, 0)],
    ids=["two", "none"],
)
def test_a_run_wants_exactly_one_topology(manifest: Path, text: str, number: int) -> None:
    one = manifest.read_text()
    manifest.write_text(
        text.replace("{one}", one).replace("{two}", one.replace("name: lines", "name: other", 1))
    )
    ended = invoke("run", str(manifest))
    assert ended.exit_code == EXIT_INVALID
    assert f"exactly one Topology is wanted here; the file has {number}" in ended.output


def test_an_sla_file_that_is_not_there_is_named_once(manifest: Path) -> None:
    ended = invoke("run", str(manifest), "--sla", "none.yaml")
    assert ended.exit_code == EXIT_INVALID
    assert "  none.yaml: no such file; give the path of a manifest\n" in ended.output


@pytest.mark.parametrize(("skew", "told"), [("nan", "is not a number"), ("1e9", "not in the range")])
def test_a_skew_that_is_none_is_refused(manifest: Path, skew: str, told: str) -> None:
    ended = invoke("simulate", str(manifest), "s.yaml", "--trace", "r.csv", "--skew", skew)
    assert ended.exit_code == EXIT_INVALID
    assert told in ended.output


@pytest.mark.usefixtures("checked")
def test_without_java_the_run_says_what_to_install(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(manifest.parent))
    assert_one_sentence(invoke("run", str(manifest)), "Spark needs Java 17")


@pytest.mark.usefixtures("checked")
def test_a_taken_metrics_port_is_told(manifest: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert_one_sentence(invoke("run", str(manifest), "--metrics-port", port), "--metrics-port")


@pytest.mark.usefixtures("checked")
def test_a_glob_without_a_match_is_told_before_anything_is_kept(manifest: Path) -> None:
    assert_one_sentence(invoke("run", str(manifest)), "texts/*.txt")
    assert not (manifest.parent / ".penstock").exists()


@pytest.mark.parametrize("time", ["0s", "soon", "-5s"])
def test_a_time_limit_that_is_none_is_refused(manifest: Path, time: str) -> None:
    ended = invoke("run", str(manifest), f"--for={time}")
    assert ended.exit_code == EXIT_INVALID
    assert "--for" in ended.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "topology.yaml", "--json-summary", "none/summary.json"),
        ("simulate", "topology.yaml", "sla.yaml", "--trace", "rates.csv", "--plot", "none/p.png"),
    ],
)
def test_a_folder_that_is_not_there_is_told_before_the_work_and_not_after_it(
    manifest: Path, arguments: tuple[str, ...]
) -> None:
    ended = invoke(*arguments)
    assert ended.exit_code == EXIT_INVALID
    assert f"Invalid value for '{arguments[-2]}': there is no folder none; make it first" in ended.output


def test_a_picture_of_a_kind_that_cannot_be_drawn_is_refused(manifest: Path) -> None:
    ended = invoke("simulate", "topology.yaml", "sla.yaml", "--trace", "rates.csv", "--plot", "p.txt")
    assert ended.exit_code == EXIT_INVALID
    assert "p.txt should end in one of .png, .svg, .pdf" in ended.output


def test_code_that_works_when_it_is_imported_is_told(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_inspection, "_INSPECT_S_MAX", 0.01)
    assert_one_sentence(invoke("validate", str(manifest)), "could not be imported within 0.01 s")


@pytest.mark.parametrize("given", ["none.yaml", "folder/none"])
def test_decisions_about_a_manifest_that_is_not_there_are_refused(manifest: Path, given: str) -> None:
    ended = invoke("explain", given)
    assert ended.exit_code == EXIT_INVALID
    assert f"{given}: no such file" in ended.output


def test_decisions_that_nobody_took_are_said_to_be_none(manifest: Path) -> None:
    ended = invoke("explain", "nothing")
    assert ended.exit_code == EXIT_FAILED
    assert (
        "No decision about nothing is kept in .penstock/nothing: run it with --sla, or with locality: Auto."
        in ended.output
    )


def test_decisions_are_not_looked_for_in_a_file(manifest: Path) -> None:
    assert invoke("explain", "lines", "--state-dir", "topology.yaml/x").exit_code == EXIT_FAILED
    (manifest.parent / ".penstock" / "lines" / "decisions.jsonl").mkdir(parents=True)
    assert_one_sentence(invoke("explain", "lines"), "decisions.jsonl cannot be read: Is a directory.")


def test_crds_are_not_written_where_nothing_can_be(manifest: Path) -> None:
    (manifest.parent / "taken").write_text("a file")
    ended = invoke("crds", "taken/crds")
    assert_one_sentence(ended, "taken/crds cannot be written: Not a directory.")


def test_crds_are_printed_or_written(tmp_path: Path) -> None:
    printed = invoke("crds")
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(printed.output)]
    assert names == ["topologies.penstock.dev", "latencyslas.penstock.dev", "schedules.penstock.dev"]
    written = invoke("crds", str(tmp_path / "crds"))
    assert [Path(line).name for line in written.output.splitlines()] == sorted(
        (path.name for path in (tmp_path / "crds").iterdir()), key=lambda n: written.output.index(n)
    )


def test_the_command_line_starts_without_kubernetes() -> None:
    heavy = ("kopf", "kubernetes", "aiohttp")
    code = f"import sys, penstock_operator.cli.main; print(*(n for n in {heavy} if n in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout.split() == []


def test_an_operator_without_its_configuration_says_so(tmp_path: Path) -> None:
    ended = invoke("operator", "--config", str(tmp_path / "config.yaml"))
    assert ended.exit_code == EXIT_INVALID
    assert "does not exist" in ended.output


def test_an_operator_with_a_wrong_configuration_lists_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("fullname: x\n", encoding="utf-8")
    ended = invoke("operator", "--config", str(tmp_path / "config.yaml"))
    assert ended.exit_code == EXIT_INVALID
    assert "namespace: is missing" in ended.output


@pytest.mark.parametrize("size", ["plenty", "1Mi", "-1Gi"])
def test_a_store_memory_that_no_store_can_work_with_is_refused_before_anything_starts(size: str) -> None:
    result = invoke("run", "topology.yaml", f"--store-memory={size}")
    assert result.exit_code == 2
    assert "--store-memory" in result.output
    assert "16Mi" in result.output or "512Mi" in result.output


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_has_few_files_and_is_told_with_the_next_three_commands(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = invoke("new", "my-first", "--template", template)
    assert made.exit_code == 0, made.output
    files = [path for path in (tmp_path / "my-first").rglob("*") if path.is_file()]
    assert 4 < len(files) < 10
    assert {"topology.yaml", "test_my_first.py", "README.md", ".gitignore"} <= {path.name for path in files}
    assert [path.name for path in files if "@" in path.read_text() or ".tmpl" in path.name] == []
    commands = made.stdout.partition("Next:\n")[2].splitlines()
    assert len(commands) == 3
    assert commands[-1].endswith("penstock run topology.yaml")
    assert yaml.safe_load((tmp_path / "my-first/topology.yaml").read_text())["metadata"] == {
        "name": "my-first"
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("My_App", "small letters, digits and '-'"),
        ("a/b", "such as word-count"),
        ("-x", ""),
        ("x" * 41, "at most 40"),
        ("json", "such as my-json"),
        ("lambda", "another name"),
    ],
)
def test_a_bad_name_of_a_project_is_refused_with_what_is_right(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = invoke("new", name)
    assert refused.exit_code == EXIT_INVALID
    assert told in refused.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    refused = invoke("new", "mine")
    assert refused.exit_code == EXIT_INVALID
    assert "mine is there already, and nothing was changed" in refused.output
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("command", ["dead-letters", "state", "logs"])
def test_a_run_here_and_a_cluster_are_not_asked_in_one_command(command: str, tmp_path: Path) -> None:
    arguments = {"dead-letters": ("list", "words"), "state": ("list", "words", "count"), "logs": ("words",)}
    ended = invoke(command, *arguments[command], "--cluster", "--state-dir", str(tmp_path))
    assert ended.exit_code == EXIT_INVALID
    assert "--state-dir is for a run on this machine, and --cluster for one in Kubernetes" in ended.output


def test_a_cluster_that_no_file_leads_to_is_told(tmp_path: Path) -> None:
    given = ("--cluster", "--kubeconfig", str(tmp_path / "none"))
    for arguments in (
        ("dead-letters", "list", "words"),
        ("state", "list", "words", "count"),
        ("logs", "words"),
    ):
        ended = invoke(*arguments, *given)
        assert_one_sentence(ended, "there is no way to the Kubernetes API by kubeconfig")
        assert ended.exit_code == EXIT_CANNOT_RUN


def test_a_context_that_the_kubeconfig_does_not_have_is_told(tmp_path: Path) -> None:
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    given = ("--cluster", "--kubeconfig", str(tmp_path / "config"), "--context", "other")
    ended = invoke("dead-letters", "list", "words", *given)
    assert_one_sentence(ended, "other")
    assert ended.exit_code == EXIT_CANNOT_RUN
