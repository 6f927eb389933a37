"""The bill of materials, the checksum, and the version and licences that the executable prints."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit_selftest.test_locks import normal, pins

# Packages that are installed only as dependencies of others; the executable does not use them
UNUSED_PACKAGES = {"setuptools", "pycparser", "ujson", "websockets", "tracerite", "html5tagger", "aiofiles"}
# Earlier versions have known vulnerabilities
MIN_VERSIONS = {
    "sqlite": (3, 51, 3),
    "python": (3, 11),
    "aiosmtpd": (1, 4, 6),
    "jinja2": (3, 1, 6),
    "pyjwt": (2, 12),
    "idna": (3, 7),
}


@pytest.fixture(scope="module")
def bill(executable: Path) -> dict[str, Any]:
    """The bill of materials that lies beside the executable."""
    return json.loads((executable.parent / "campanero.cdx.json").read_text(encoding="utf-8"))


def run_command(executable: Path, *arguments: str) -> str:
    """Return the standard output of a command of the executable."""
    return subprocess.run([executable, *arguments], capture_output=True, text=True, check=True).stdout


def test_hashes_match_the_executable(executable: Path, bill: dict[str, Any]) -> None:
    """The digest in the bill and the checksum file match the executable, which is smaller than 60 MB."""
    digest = hashlib.sha256(executable.read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    subprocess.run(["sha256sum", "--check", "--strict", "campanero.sha256"], cwd=executable.parent, check=True)
    assert executable.stat().st_size < 60_000_000


def test_the_bill_is_valid_cyclonedx(bill: dict[str, Any]) -> None:
    """The bill is CycloneDX 1.6: each component has a unique reference, a name, a purl and a licence."""
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    parts = [
        *bill["components"],
        *(subcomponent for component in bill["components"] for subcomponent in component.get("components", ())),
    ]
    refs = [part["bom-ref"] for part in parts]
    assert len(refs) == len(set(refs)) > 100
    for part in parts:
        assert part["name"] and part["type"] == "library" and part["purl"].startswith("pkg:")
        assert part["licenses"], part["name"]
    assert set(bill["dependencies"][0]["dependsOn"]) <= set(refs)
    assert re.fullmatch(r"2\.\d+", bill["metadata"]["component"]["properties"][1]["value"])


def test_the_bill_lists_all_packages(bill: dict[str, Any]) -> None:
    """The bill lists each locked package that is used, with its version, and bundled software of other projects."""
    listed = {normal(component["name"]): component["version"] for component in bill["components"]}
    locked = {name: version for name, version in pins("requirements.lock").items() if name not in UNUSED_PACKAGES}
    assert locked.items() <= listed.items()
    assert {"python", "pyinstaller", "htmx-org", "sortablejs", "rapidoc", "lucide-static"} <= set(listed)
    subcomponents = {part["name"] for component in bill["components"] for part in component.get("components", ())}
    assert {"sqlite", "openssl", "libuv"} <= subcomponents
    assert not {"libimagequant", "FriBiDi"} & subcomponents


def test_gpl_components_have_an_exception(bill: dict[str, Any]) -> None:
    """A component under the GPL has an exception or an alternative licence."""
    for component in bill["components"]:
        for part in (component, *component.get("components", ())):
            licences = json.dumps(part["licenses"])
            assert "GPL" not in licences or "exception" in licences or " OR " in licences, part["name"]


def test_version_prints_components_and_licences(executable: Path) -> None:
    """`version --json` lists the components, none below its minimum; `version --licences` prints their licences."""
    components = json.loads(run_command(executable, "version", "--json"))["components"]
    for name, minimum in MIN_VERSIONS.items():
        assert tuple(int(number) for number in components[name].split(".")[: len(minimum)]) >= minimum, name
    licences = run_command(executable, "version", "--licences")
    for text in (
        "Apache License",
        "Mozilla Public License",
        "cryptography",
        "pillow",
        "inside of it: openssl",
        "htmx",
    ):
        assert text in licences


def test_the_build_log_records_a_trial_run(executable: Path) -> None:
    """The build log records a sent campaign, the size of the file and the glibc version that it needs."""
    log = (executable.parent / "said.txt").read_text()
    assert "one campaign sent into the inbox and found there" in log
    assert re.search(r"glibc 2\.\d+ or newer", log)
    assert re.search(r"\d+\.\d MB in ", log)
