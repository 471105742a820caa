"""Every fault of a manifest is listed at once, with its place and with what would be right."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_manifest, manifest_text, parse_manifest
from penstock.errors import PermanentError
from penstock.manifest.faults import InvalidManifest

WORD_COUNT = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: word-count}
spec:
  code: {module: word_count}
  durability: Process
  workers: {min: 1, max: 4, warm: 0, cores: {min: 1, max: 4}, memory: 2Gi, isolation: Topology}
  operators:
  - name: lines
    source: {files: {glob: "texts/**/*.txt", format: text}}
  - name: words
    inputs: [lines]
    map: word_count:split
    outputSchema: "word string"
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: word_count:Count
    outputSchema: "word string, total long"
    shards: 64
    tasks: {min: 1, max: 8, initial: 2}
  - name: totals
    inputs: [count]
    sink: {files: {path: out/, format: jsonl}}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor

def split(row):
    return []

class Count(StatefulProcessor):
    pass
"""
SLA = """
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {name: fast}
spec: {topology: word-count, operator: count, latency: 250ms}
"""


def changed(*replacements: tuple[str, str]) -> str:
    text = WORD_COUNT
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def faults_of(text: str, *overrides: str, **options: Any) -> list[str]:
    try:
        parse_manifest(text, overrides, **options)
    except InvalidManifest as error:
        return [str(fault) for fault in error.faults]
    return []


def the_fault(*replacements: tuple[str, str]) -> str:
    faults = faults_of(changed(*replacements))
    assert len(faults) == 1, faults
    return faults[0]


# --- good manifests ----------------------------------------------------------------------------


def test_the_example_of_the_readme_has_no_fault() -> None:
    assert faults_of(WORD_COUNT) == []


def test_the_word_count_example_has_no_fault() -> None:
    path = ROOT / "examples/word-count/topology.yaml"
    plan = compile_topology(load_manifest(path).topology)
    assert [stage.operator for stage in plan.stages] == ["lines", "count"]


def test_a_file_may_hold_a_topology_and_its_slas() -> None:
    manifest = parse_manifest(f"{WORD_COUNT}\n---\n{SLA}")
    assert manifest.topology.metadata.name == "word-count"
    assert [sla.spec.latency for sla in manifest.latency_slas] == ["250ms"]


def test_a_manifest_written_out_reads_back_the_same() -> None:
    manifest = parse_manifest(f"{WORD_COUNT}\n---\n{SLA}", ["workers.min=2", "count.shards=8"])
    assert parse_manifest(manifest_text(manifest)) == manifest
    assert manifest.topology.spec.operators[2].shards == 8


def test_what_the_api_server_adds_is_no_fault() -> None:
    added = (
        "{name: word-count, namespace: default, uid: 1b, generation: 3, resourceVersion: '7', "
        "creationTimestamp: 2026-01-01T00:00:00Z, managedFields: [{manager: kubectl}]}"
    )
    assert faults_of(changed(("{name: word-count}", added))) == []


# --- one fault, said well ----------------------------------------------------------------------


def test_an_unknown_field_names_the_nearest_known_one() -> None:
    assert the_fault(("keyBy:", "keyby:")) == (
        "spec.operators[2] (count).keyby: unknown field (did you mean keyBy?)"
    )


def test_an_unknown_field_like_no_other_lists_the_known_ones() -> None:
    assert the_fault(("{module: word_count}", "{module: word_count, zzz: 1}")) == (
        "spec.code.zzz: unknown field; known here: module, configMap"
    )


def test_a_field_in_python_spelling_is_unknown() -> None:
    fault = the_fault(('outputSchema: "word string"\n', 'output_schema: "word string"\n'))
    assert fault == "spec.operators[1] (words).output_schema: unknown field (did you mean outputSchema?)"


def test_an_unknown_input_lists_the_operators() -> None:
    assert the_fault(("inputs: [words]", "inputs: [wrods]")) == (
        "spec.operators[2] (count).inputs[0]: no operator is called 'wrods' (did you mean words?); "
        "there are lines, words, count"
    )


def test_a_cycle_names_its_operators_in_a_ring() -> None:
    faults = faults_of(changed(("inputs: [lines]", "inputs: [lines, count]")))
    ring = [fault for fault in faults if "cycle" in fault]
    assert ring == [
        "spec.operators[1] (words).inputs[1]: a cycle: words -> count -> words; "
        "rows cannot come back to where they were"
    ]


def test_two_cycles_are_both_named() -> None:
    extra = """
  - {name: a, inputs: [words, b], map: "m:f", outputSchema: word string}
  - {name: b, inputs: [a], map: "m:f", outputSchema: word string}
  - {name: c, inputs: [b, d], map: "m:f", outputSchema: word string}
  - {name: d, inputs: [c], map: "m:f", outputSchema: word string}
  - {name: e, inputs: [d], sink: {console: {}}}
"""
    faults = [fault.split(": ", 1)[1] for fault in faults_of(WORD_COUNT + extra)]
    assert [fault.split(";")[0] for fault in faults] == ["a cycle: a -> b -> a", "a cycle: c -> d -> c"]


def test_an_operator_that_reads_itself_is_a_cycle() -> None:
    fault = the_fault(("inputs: [words]", "inputs: [words, count]"))
    assert fault.startswith("spec.operators[2] (count).inputs[1]: a cycle: count -> count; ")


def test_an_input_that_stands_below_its_reader_is_to_be_moved_up() -> None:
    extra = """
  - {name: late, inputs: [later], sink: {console: {}}}
  - {name: later, inputs: [words], map: "m:f", outputSchema: word string}
"""
    assert faults_of(WORD_COUNT + extra) == [
        "spec.operators[4] (late).inputs[0]: 'later' is listed below; inputs come first: "
        "list 'late' below all that it reads"
    ]


def test_an_operator_may_give_back_its_last_task_but_not_be_without_any() -> None:
    assert faults_of(changed(("{min: 1, max: 8, initial: 2}", "{min: 0, max: 8}"))) == []
    assert the_fault(("{min: 1, max: 8, initial: 2}", "{min: 0, max: 0}")) == (
        "spec.operators[2] (count).tasks.max: 0 is not a whole number from 1 to 1024"
    )


def test_settings_of_the_cluster_have_defaults_and_bounds() -> None:
    spec = parse_manifest(WORD_COUNT).topology.spec
    assert (spec.deletion_policy, spec.paused, spec.priority, spec.store_memory) == (
        "Delete",
        False,
        0,
        "256Mi",
    )
    assert spec.image is None
    top = ("spec:\n", "spec:\n  priority: 1001\n  image: 'a b'\n  storeMemory: 1Mi\n  deletionPolicy: Keep\n")
    assert faults_of(changed(top)) == [
        "spec.storeMemory: must be at least 16Mi: a store keeps inboxes and state in memory",
        "spec.image: 'a b' is not an image such as example.org/team/words:1.2",
        "spec.priority: 1001 is not a whole number from -1000 to 1000",
        "spec.deletionPolicy: 'Keep' is not one of Delete, Retain",
    ]


def test_a_missing_processor_is_asked_for() -> None:
    assert the_fault(("    processor: word_count:Count\n", "")) == (
        "spec.operators[2] (count).processor: is missing; give the class that works on each key, "
        "such as word_count:Count"
    )


def test_a_key_column_that_the_input_lacks_lists_the_columns() -> None:
    assert the_fault(("keyBy: [word]", "keyBy: [wrd]")) == (
        "spec.operators[2] (count).keyBy[0]: its input has no column 'wrd' (did you mean word?); "
        "columns are word string"
    )


def test_a_key_of_a_compound_type_is_refused() -> None:
    fault = the_fault(('"word string"\n', '"word array<string>"\n'))
    assert fault.startswith("spec.operators[2] (count).keyBy[0]: column 'word' is array<string>:")


@pytest.mark.parametrize("shards", ["0", "4097", "-1", "1.5", "true", "'64'"])
def test_shards_are_from_1_to_4096(shards: str) -> None:
    fault = the_fault(("shards: 64", f"shards: {shards}"))
    assert fault == f"spec.operators[2] (count).shards: {shards} is not a whole number from 1 to 4096"


def test_inputs_of_different_schemas_are_a_mismatch() -> None:
    fault = the_fault(("inputs: [words]", "inputs: [words, lines]"))
    assert fault == (
        "spec.operators[2] (count).inputs[1]: 'lines' gives (value string), but 'words' gives (word string); "
        "all inputs of an operator need the same columns in the same order"
    )


def test_a_sink_with_outputs_is_refused() -> None:
    extra = "\n  - {name: late, inputs: [totals], sink: {console: {}}}\n"
    assert faults_of(WORD_COUNT + extra) == [
        "spec.operators[4] (late).inputs[0]: 'totals' is a sink and hands no rows on; "
        "there are lines, words, count"
    ]


def test_an_operator_that_no_one_reads_is_named() -> None:
    extra = '\n  - {name: idle, inputs: [count], map: "word_count:split", outputSchema: "word string"}\n'
    assert faults_of(WORD_COUNT + extra) == [
        "spec.operators[4] (idle): no operator reads it; add a sink with inputs: [idle], or take it out"
    ]


def test_names_are_unique() -> None:
    faults = faults_of(changed(("name: words", "name: lines")))
    assert faults[0] == (
        "spec.operators[1] (lines).name: 'lines' is the name of spec.operators[0] (lines) already; "
        "names are unique"
    )


def test_an_operator_has_exactly_one_role() -> None:
    fault = the_fault(("    map: word_count:split\n", "    map: word_count:split\n    sink: {console: {}}\n"))
    assert fault == (
        "spec.operators[1] (words): has map and sink; keep exactly one of source, map, processor and sink"
    )


def test_an_operator_without_a_role_does_nothing() -> None:
    fault = the_fault(("    sink: {files: {path: out/, format: jsonl}}\n", ""))
    assert fault == (
        "spec.operators[3] (totals): does nothing; give exactly one of source, map, processor and sink"
    )


def test_fields_that_a_role_has_not_are_refused() -> None:
    fault = the_fault(("    map: word_count:split\n", "    map: word_count:split\n    shards: 4\n"))
    assert fault == (
        "spec.operators[1] (words).shards: a map has none: only a processor's keys are cut into shards; "
        "leave it out"
    )


def test_the_form_of_rows_is_a_processors() -> None:
    fault = the_fault(("    map: word_count:split\n", "    map: word_count:split\n    form: Pandas\n"))
    assert fault == (
        "spec.operators[1] (words).form: a map has none: only a processor takes Rows or Pandas; leave it out"
    )
    said = ("    processor: word_count:Count\n", "    processor: word_count:Count\n    form: pandas\n")
    assert the_fault(said).startswith("spec.operators[2] (count).form: ")


def test_only_a_processor_has_a_time_mode() -> None:
    split = "    map: word_count:split\n"
    fault = the_fault((split, f"{split}    timeMode: ProcessingTime\n"))
    assert fault == (
        "spec.operators[1] (words).timeMode: a map has none: only a processor has timers; leave it out"
    )


def test_timers_need_a_task_that_fires_them() -> None:
    tasks = "    tasks: {min: 1, max: 8, initial: 2}\n"
    fault = the_fault((tasks, "    timeMode: ProcessingTime\n    tasks: {min: 0}\n"))
    assert fault == (
        "spec.operators[2] (count).tasks.min: 0 leaves no task that fires timers; "
        "with a timeMode give 1 or more"
    )


def test_shuffles_need_a_rate() -> None:
    generator = "source: {zipf: {keys: 9, shufflesPerMinute: 2}}"
    assert the_fault(('source: {files: {glob: "texts/**/*.txt", format: text}}', generator)).startswith(
        "spec.operators[0] (lines).source.zipf.shufflesPerMinute: counts minutes of the stream"
    )


def test_a_source_has_one_rate() -> None:
    both = "format: text, ratePerSecond: 100, rateTrace: {file: rates.csv}"
    assert the_fault(("format: text", both)) == (
        "spec.operators[0] (lines).source.files.rateTrace: ratePerSecond is given too; a source has one "
        "rate: keep one of the two"
    )
    traced = "source: {zipf: {keys: 9, shufflesPerMinute: 2, rateTrace: {file: rates.csv}}}"
    assert faults_of(changed(('source: {files: {glob: "texts/**/*.txt", format: text}}', traced))) == []


def test_a_source_is_of_exactly_one_kind() -> None:
    assert the_fault(("format: text}", "format: text}, zipf: {keys: 9}")) == (
        "spec.operators[0] (lines).source: has files and zipf; give exactly one of files and zipf"
    )


def test_two_sinks_cannot_share_a_folder() -> None:
    extra = "\n  - {name: more, inputs: [words], sink: {files: {path: ./out}}}\n"
    assert faults_of(WORD_COUNT + extra) == [
        "spec.operators[4] (more).sink.files.path: totals writes into this folder already; "
        "give each sink one of its own"
    ]


def test_durability_replicated_is_refused_by_name() -> None:
    assert the_fault(("durability: Process", "durability: Replicated")) == (
        "spec.durability: Replicated comes with replication, which is not there yet; give Process or Disk"
    )


def test_remote_tasks_need_a_processor() -> None:
    lines = WORD_COUNT.partition("  - name: words")[0].replace("durability: Process", "remoteTasks: Allowed")
    assert faults_of(lines + "  - {name: out, inputs: [lines], sink: {console: {}}}\n") == [
        "spec.remoteTasks: Allowed needs an operator with a processor: sources and their steps stay at home; "
        "give Never"
    ]


def test_code_in_a_config_map_is_for_a_cluster() -> None:
    text = changed(("{module: word_count}", "{configMap: code}"))
    assert faults_of(text) == [
        "spec.code.configMap: a ConfigMap is read in a cluster only; "
        "for a local run give code: {module: NAME}"
    ]
    assert faults_of(text, runtime="cluster") == []


def test_code_is_asked_for_where_operators_need_it() -> None:
    assert the_fault(("  code: {module: word_count}\n", "")) == (
        "spec.code: is missing; give {module: NAME}, the module that holds the code of words, count"
    )


def test_bounds_are_checked_against_each_other() -> None:
    assert the_fault(("{min: 1, max: 8, initial: 2}", "{min: 9, max: 8}")) == (
        "spec.operators[2] (count).tasks: min 9 is above max 8"
    )
    assert the_fault(("{min: 1, max: 4, warm", "{min: 1, max: 4, initial: 5, warm")) == (
        "spec.workers: initial 5 is not from min 1 to max 4"
    )
    assert the_fault(("cores: {min: 1, max: 4}", "cores: {min: 1500m, max: 1}")) == (
        "spec.workers.cores: min 1500m is above max 1"
    )


def test_a_bad_schema_says_what_is_wrong_in_it() -> None:
    fault = the_fault(('"word string, total long"', '"word string, total lnog"'))
    assert fault.startswith("spec.operators[2] (count).outputSchema: column 'total': type lnog is unknown;")


def test_fused_copies_are_bounded() -> None:
    step = "\n  - {{name: {}, inputs: [{}], map: 'm:f', outputSchema: word string}}"
    layers = [step.format("a0", "words"), step.format("b0", "words")]
    for n in range(1, 20):
        layers += [step.format(f"{side}{n}", f"a{n - 1}, b{n - 1}") for side in "ab"]
    end = "\n  - {name: end, inputs: [a19, b19], sink: {console: {}}}\n"
    faults = faults_of(WORD_COUNT + "".join(layers) + end)
    assert faults
    assert all("paths without a key; at most 256 can be fused" in fault for fault in faults)


# --- all faults at once ------------------------------------------------------------------------


def test_faults_of_fields_and_of_the_graph_are_listed_together() -> None:
    text = changed(
        ("shards: 64", "shards: 0"),
        ("inputs: [lines]", "inputs: [lnies]"),
        ("keyBy: [word]", "keyBy: [wrod]"),
        ("memory: 2Gi", "memory: 2GB"),
        ("format: jsonl", "format: csv"),
        ("durability: Process", "durability: Replicated"),
    )
    paths = {fault.split(": ")[0] for fault in faults_of(text)}
    assert paths == {
        "spec.workers.memory",
        "spec.operators[2] (count).shards",
        "spec.operators[3] (totals).sink.files.format",
        "spec.durability",
        "spec.operators[1] (words).inputs[0]",
        "spec.operators[2] (count).keyBy[0]",
    }


def test_a_duplicate_key_is_listed_with_the_other_faults() -> None:
    text = changed(("    shards: 64\n", "    shards: 64\n    shards: 0\n"))
    line = text.splitlines().index("    shards: 64") + 1
    assert faults_of(text) == [
        f"spec.operators[2].shards: given twice, in lines {line} and {line + 1}; keep one",
        "spec.operators[2] (count).shards: 0 is not a whole number from 1 to 4096",
    ]


def test_faults_of_several_documents_name_the_document() -> None:
    text = f"{changed(('shards: 64', 'shards: 0'))}\n---\n{SLA.replace('250ms', 'soon')}"
    assert faults_of(text) == [
        "document 1: spec.operators[2] (count).shards: 0 is not a whole number from 1 to 4096",
        "document 2: spec.latency: 'soon' is not a duration above 0 such as 250ms or 1.5s",
    ]


def test_the_text_of_the_error_is_the_list() -> None:
    with pytest.raises(PermanentError) as caught:
        parse_manifest(changed(("shards: 64", "shards: 0"), ("keyBy: [word]", "keyBy: [x]")))
    assert str(caught.value).splitlines() == faults_of(
        changed(("shards: 64", "shards: 0"), ("keyBy: [word]", "keyBy: [x]"))
    )


# --- files and YAML ----------------------------------------------------------------------------


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match=r"none.yaml: no such file; give the path of a manifest"):
        load_manifest(tmp_path / "none.yaml")


def test_a_folder_and_a_binary_file_are_faults(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidManifest, match="is not UTF-8 text"):
        load_manifest(tmp_path / "x.yaml")
    with pytest.raises(InvalidManifest, match="cannot be read"):
        load_manifest(tmp_path)


def test_a_syntax_error_names_line_and_column() -> None:
    (fault,) = faults_of("kind: Topology\nspec: {a: [1, 2}\n")
    assert fault.startswith("line 2, column 16: not YAML: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "- 1\n",
        "5",
        "kind: Pod",
        "a: &x [*x]",
        "? [a]\n: 1",
        "a: \x00",
        "a: !!python/x y",
        "*x",
    ],
)
def test_what_is_no_manifest_is_a_fault(text: str) -> None:
    assert len(faults_of(text)) >= 1


def test_a_schedule_is_not_written_by_hand() -> None:
    assert faults_of("kind: Schedule") == ["kind: a Schedule is written by Penstock itself, not by hand"]


def test_the_kind_is_corrected() -> None:
    assert faults_of("kind: topolgy") == [
        "kind: 'topolgy' is unknown (did you mean Topology?); give one of Topology, LatencySLA"
    ]


def test_numbers_are_read_as_kubectl_reads_them() -> None:
    manifest = parse_manifest(changed(("format: text", "ratePerSecond: 1e4")))
    source = manifest.topology.spec.operators[0].source
    assert source is not None
    assert source.files is not None
    assert source.files.rate_per_second == 10_000


def test_an_sla_of_an_operator_that_is_not_there_is_a_fault() -> None:
    assert faults_of(f"{WORD_COUNT}\n---\n{SLA.replace('operator: count', 'operator: cuont')}") == [
        "LatencySLA fast: spec.operator: Topology word-count has no operator 'cuont' (did you mean count?); "
        "there are lines, words, count, totals"
    ]


def test_an_sla_has_a_window_that_holds_an_interval() -> None:
    assert faults_of(SLA.replace("250ms", "250ms, window: 50ms")) == [
        "spec: window 50ms is shorter than interval 100ms"
    ]
    assert faults_of(SLA.replace("250ms", "0ms")) == ["spec.latency: must be longer than 0"]


# --- overrides ---------------------------------------------------------------------------------


def test_overrides_reach_operators_and_the_spec() -> None:
    overrides = ["lines.source.files.glob=more/*.txt", "workers.min=2", "count.keyBy=[word]", "taskCpu=200m"]
    spec = parse_manifest(WORD_COUNT, overrides).topology.spec
    assert spec.workers.min == 2
    assert spec.task_cpu == "200m"
    assert spec.operators[0].source is not None
    assert spec.operators[0].source.files is not None
    assert spec.operators[0].source.files.glob == "more/*.txt"


def test_an_override_makes_objects_that_are_not_there() -> None:
    spec = parse_manifest(WORD_COUNT, ["lines.tasks.initial=3"]).topology.spec
    assert spec.operators[0].tasks is not None
    assert spec.operators[0].tasks.initial == 3


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("workers.min", "--set workers.min: give PATH=VALUE, such as workers.min=2"),
        ("=3", "--set =3: give PATH=VALUE, such as workers.min=2"),
        ("a..b=3", "--set a..b=3: give PATH=VALUE, such as workers.min=2"),
        (
            "cuont.shards=3",
            "--set cuont.shards: no operator or field 'cuont' (did you mean count?); there are",
        ),
        ("count=3", "--set count: 'count' is an operator; name a field of it, such as count.tasks.max"),
        ("count.shards.x=3", "--set count.shards.x: 'shards' is 64 and has no fields"),
        ("count.shards=[3", "--set count.shards: the value '[3' is not YAML:"),
        ("count.shards=0", "spec.operators[2] (count).shards: 0 is not a whole number from 1 to 4096"),
        ("count.shrads=1", "spec.operators[2] (count).shrads: unknown field (did you mean shards?)"),
    ],
)
def test_a_bad_override_is_a_fault(override: str, fault: str) -> None:
    (found,) = faults_of(WORD_COUNT, override)
    assert found.startswith(fault)


def test_overrides_leave_the_document_as_it_was() -> None:
    from penstock.api.overrides import apply_overrides

    document = yaml.safe_load(WORD_COUNT)
    before = copy.deepcopy(document)
    after, faults = apply_overrides(document, ["count.shards=8"])
    assert (document, faults) == (before, [])
    assert after["spec"]["operators"][2]["shards"] == 8


# --- code --------------------------------------------------------------------------------------


def faults_with_code(tmp_path: Path, code: str, *replacements: tuple[str, str]) -> list[str]:
    (tmp_path / "word_count.py").write_text(code, encoding="utf-8")
    return faults_of(changed(*replacements), code_dir=tmp_path)


def test_code_that_is_there_is_no_fault(tmp_path: Path) -> None:
    assert faults_with_code(tmp_path, CODE) == []


def test_a_misspelt_class_is_found_without_running_the_code(tmp_path: Path) -> None:
    code = CODE + "\nraise SystemExit('ran')\n"
    assert faults_with_code(tmp_path, code, ("word_count:Count", "word_count:Cuont")) == [
        "spec.operators[2] (count).processor: word_count has no 'Cuont' (did you mean Count?); "
        "its classes are Count"
    ]


def test_a_function_is_no_processor(tmp_path: Path) -> None:
    assert faults_with_code(tmp_path, CODE, ("word_count:Count", "word_count:split")) == [
        "spec.operators[2] (count).processor: 'split' is a function; "
        "a processor is a class, a StatefulProcessor"
    ]


def test_a_missing_module_is_named_once(tmp_path: Path) -> None:
    assert faults_of(WORD_COUNT, code_dir=tmp_path) == [
        "spec.code.module: no module 'word_count' beside the manifest or installed; put word_count.py there"
    ]


def test_a_syntax_error_in_the_code_names_its_line(tmp_path: Path) -> None:
    (fault,) = faults_with_code(tmp_path, "def split(row:\n    pass\n")
    assert fault.startswith("spec.code.module: word_count.py, line 1: ")


def test_names_that_cannot_be_seen_are_left_to_the_worker(tmp_path: Path) -> None:
    assert faults_with_code(tmp_path, "from elsewhere import *\n") == []
    code = "try:\n    from fast import Count\nexcept ImportError:\n    Count = None\nsplit = str.split\n"
    assert faults_with_code(tmp_path, code) == []


# --- whatever a user writes --------------------------------------------------------------------

JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, "", "x", "word_count:split", [], ["x"], [None], {}, {"name": "x"}, {"x": 1},
    "a" * 5000, ["lines"] * 40, [["x"]], {"files": None}, {"files": {}, "zipf": {"keys": "x"}},
)  # fmt: skip


def places_of(node: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside `node`."""
    items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    found = [(node, key) for key, _ in items]
    for _, child in items:
        if isinstance(child, dict | list):
            found += places_of(child)
    return found


def mutated(rng: random.Random) -> Any:
    document = yaml.safe_load(WORD_COUNT)
    for _ in range(rng.randint(1, 4)):
        container, key = rng.choice(places_of(document))
        match rng.randrange(4):
            case 0:
                del container[key]
            case 1:
                container[key] = copy.deepcopy(rng.choice(JUNK))
            case 2 if isinstance(container, dict):
                container[rng.choice(["name", "inputs", "sink", "zz", "keyBy", "shards"])] = rng.choice(JUNK)
            case _:
                other, place = rng.choice(places_of(document))
                container[key] = copy.deepcopy(other[place])
        if not document:
            break
    return document


@pytest.mark.parametrize("seed", range(8))
def test_no_manifest_makes_the_check_itself_fail(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        text = yaml.safe_dump(mutated(rng))
        try:
            topologies = parse_manifest(text).topologies
        except InvalidManifest:
            continue
        for topology in topologies:
            compile_topology(topology)
