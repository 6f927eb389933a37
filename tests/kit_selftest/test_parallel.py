"""Test files in parallel: each test is reported once, also if its process crashes."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.kit.server import ROOT

CONFTEST = """
from tests.kit.parallel import ParallelFiles

def pytest_configure(config):
    config.pluginmanager.register(ParallelFiles(2, has_services=False))
"""
FILES = {
    "test_one.py": "def test_passes(tmp_path): print('out')\ndef test_fails(): assert [1] == [2]\n",
    "test_two.py": "import os\ndef test_first(): pass\ndef test_crashes(): os._exit(7)\ndef test_last(): pass\n",
    "test_three.py": "import pytest\n@pytest.mark.skip\ndef test_skipped(): pass\n",
    "test_four.py": (
        "import pytest\n@pytest.fixture(scope='module')\ndef broken():\n    yield\n    raise ValueError('at its end')\n"
        "def test_with_fixture(broken): pass\n"
    ),
}


def run_tests(directory: Path, *options: str) -> tuple[str, dict[str, str]]:
    """Run the files in two processes; return the output, and the outcome of each test as the report has it."""
    for name, content in {"conftest.py": CONFTEST, **FILES}.items():
        (directory / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "--rootdir", directory, "-c", "/dev/null",
         "--junitxml", directory / "report.xml", *options, directory],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    cases = ElementTree.parse(directory / "report.xml").iter("testcase")
    return done.stdout, {case.get("name"): "+".join(child.tag for child in case) for case in cases}


def test_each_test_is_reported_once(tmp_path: Path) -> None:
    """Passed, failed, skipped and crashed tests, and errors of fixtures, are reported as without processes."""
    output, outcomes = run_tests(tmp_path)
    assert outcomes == {
        "test_passes": "", "test_fails": "failure", "test_first": "", "test_crashes": "failure", "test_last": "",
        "test_skipped": "skipped", "test_with_fixture": "error",
    }  # fmt: skip
    assert "assert [1] == [2]" in output and "exit code 7" in output and "at its end" in output
    assert "2 failed, 4 passed, 1 skipped, 1 error" in output


def test_the_first_failure_ends_all_processes(tmp_path: Path) -> None:
    """With `-x` no process begins another file after a failure."""
    output, _ = run_tests(tmp_path, "-x")
    assert "!! stopping after " in output
