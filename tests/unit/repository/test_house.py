"""The rules of the house that no other tool checks."""

from __future__ import annotations

import re

from e2e.conftest import ORDER
from house import ROOT, make_targets, text_of, tracked_files

# Put together here, so that this file does not break its own rule.
REGISTRY_HOSTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "npmjs" + ".org",
    "conda" + ".anaconda.org",
    "proxy.golang" + ".org",
    "repo1.maven" + ".org",
    "repo.maven.apache" + ".org",
    "registry-1.docker" + ".io",
    "docker" + ".io/",  # without the slash it is also the name of Debian's package
    "quay" + ".io",
    "ghcr" + ".io",
    "gcr" + ".io",
    "registry.k8s" + ".io",
)
HOME_PATH = re.compile(r"(?<![\w.$~-])/(?:root|home/\w[\w.-]*|Users/\w[\w.-]*)/")


def lines_that_hold(finds: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked_files():
        for number, line in enumerate((text_of(path) or "").splitlines(), start=1):
            if finds.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return found


def test_operator_and_worker_hold_no_package_marker() -> None:
    # A package called `operator` takes the place of Python's own and ends the interpreter.
    assert [p for p in ("operator/__init__.py", "worker/__init__.py") if (ROOT / p).exists()] == []


def test_no_tracked_file_names_a_package_registry() -> None:
    assert lines_that_hold(re.compile("|".join(re.escape(host) for host in REGISTRY_HOSTS))) == []


def test_no_tracked_file_names_a_folder_of_one_machine() -> None:
    assert lines_that_hold(HOME_PATH) == []
    if len(ROOT.parts) > 2:
        assert lines_that_hold(re.compile(re.escape(str(ROOT)) + r"\b")) == []


def test_the_lock_names_hashes_and_no_place() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith(" ")]
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9._-]+==[^ ]+( ; .+)? \\", line)] == []
    hashes = [line for line in lines if line.startswith(" ")]
    assert [line for line in hashes if not re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?", line)] == []
    assert len(hashes) >= len(pins) > 0


def test_every_make_target_says_what_it_does() -> None:
    assert [target for target, rest in make_targets().items() if not re.search(r"## \S", rest)] == []


def test_what_is_left_to_the_slow_lane_is_held_by_a_test_that_is_not() -> None:
    """A test of which only some cases are slow holds its promise by the others."""
    tests: set[str] = set()
    wholly_slow: set[str] = set()
    held_by: set[str] = set()
    suites = (ROOT / "worker/penstock_worker/testing/connectors").glob("*_suite.py")
    for suite in suites:
        tests |= set(re.findall(r"^    def (test_\w+)", suite.read_text(encoding="utf-8"), re.MULTILINE))
    for path in (ROOT / "tests").rglob("test_*.py"):
        source = path.read_text(encoding="utf-8")
        tests |= set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
        wholly_slow |= set(
            re.findall(r"^@pytest\.mark\.slow\([^)]*\)\n(?:@.*\n)*def (\w+)", source, re.MULTILINE)
        )
        held_by |= set(re.findall(r'\bpytest\.mark\.slow\(\s*held_by="(\w+)"', source))
    assert held_by
    assert held_by - tests == set()
    assert held_by & wholly_slow == set()


def test_every_file_of_end_to_end_tests_has_its_place_in_their_order() -> None:
    assert sorted(ORDER) == sorted(
        path.stem.removeprefix("test_") for path in (ROOT / "e2e").glob("test_*.py")
    )


def test_ci_runs_the_two_test_commands_of_the_readme_and_shows_their_last_lines() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    commands = re.findall(r"^ *(make (?:test|e2e))\b(?!-)", script, re.MULTILINE)
    assert commands == ["make test", "make e2e", "make test"]
    (apart,) = re.findall(r"^ *make test TIERS=(\w+)$", script, re.MULTILINE)
    (beside,) = re.findall(r"\bsetsid bash -c '([^']+)'", script)
    (behind,) = re.findall(r"^ *make test-(\w+)$", script, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (all_tiers,) = re.findall(r"^TIERS := (.*)$", makefile, re.MULTILINE)
    assert sorted([apart, *re.findall(r"test-(\w+)", beside), behind]) == sorted(all_tiers.split())
    assert script.splitlines()[-1] == 'tools/tier.sh --summary "${tiers[@]}"'
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(commands) <= set(re.findall(r"\b(make [a-z0-9]+)\b", readme))
