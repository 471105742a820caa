"""One fault of a manifest, said well."""

from __future__ import annotations

import pytest

from penstock.api.load import parse_manifest
from scenes.manifest_texts import WORD_COUNT, changed, faults_of


def the_fault(*replacements: tuple[str, str]) -> str:
    faults = faults_of(changed(*replacements))
    assert len(faults) == 1, faults
    return faults[0]


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
        "spec.operators[1] (words): has map and sink; keep exactly one of source, map, mapInPandas, "
        "mapInArrow, filter with select, transform, processor, window, join and sink"
    )


def test_an_operator_without_a_role_does_nothing() -> None:
    fault = the_fault(("    sink: {files: {path: out/, format: jsonl}}\n", ""))
    assert fault == (
        "spec.operators[3] (totals): does nothing; give exactly one of source, map, mapInPandas, mapInArrow, "
        "filter with select, transform, processor, window, join and sink"
    )


def test_fields_that_a_role_has_not_are_refused() -> None:
    fault = the_fault(("    map: word_count:split\n", "    map: word_count:split\n    shards: 4\n"))
    assert fault == (
        "spec.operators[1] (words).shards: a map has none: only the keys of a processor or a window are cut "
        "into shards; leave it out"
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


def test_a_generators_time_column_has_a_name_of_its_own() -> None:
    generator = "source: {zipf: {keys: 9, timeColumn: number}}"
    assert the_fault(('source: {files: {glob: "texts/**/*.txt", format: text}}', generator)) == (
        "spec.operators[0] (lines).source.zipf.timeColumn: each zipf source has a column 'number'; give "
        "another name, such as at"
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
        "spec.operators[0] (lines).source: has files and zipf; "
        "give exactly one of files, zipf, nexmark, kafka and dataSource"
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
        "spec.remoteTasks: Allowed needs an operator with a processor or a window: sources and their steps "
        "stay at home; give Never"
    ]


def test_the_function_of_a_sink_with_batches_is_not_called_from_another_node() -> None:
    text = changed(
        ("durability: Process", "remoteTasks: Allowed"),
        ("sink: {files: {path: out/, format: jsonl}}", "sink: {foreachBatch: {call: 'word_count:write'}}"),
    )
    assert faults_of(text) == [
        "spec.remoteTasks: Allowed does not go together with sink totals: the function of foreachBatch is "
        "called in the main process of the worker that its task is at; give Never"
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{}", "foreachBatch.call: is missing"),
        ("{call: 'word_count'}", "foreachBatch.call: "),
        ("{call: 'word_count:write', rowsMax: 20}", "foreachBatch.rowsMax: "),
        ("{call: 'word_count:write', rows: 500}", "foreachBatch.rows: unknown field (did you mean rowsMax?)"),
    ],
)
def test_what_a_sink_with_batches_lacks_is_told(given: str, told: str) -> None:
    sink = ("sink: {files: {path: out/, format: jsonl}}", f"sink: {{foreachBatch: {given}}}")
    assert the_fault(sink).startswith(f"spec.operators[3] (totals).sink.{told}")


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
