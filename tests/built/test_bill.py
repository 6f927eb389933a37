"""The bill of materials, the checksum, and what the executable says of itself."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit_selftest.test_locks import normal, pins

# Installed because others name them, and never asked for by what runs
LEFT_OUT = {"setuptools", "pycparser", "ujson", "websockets", "tracerite", "html5tagger", "aiofiles"}
# Below these are known weaknesses
FLOORS = {
    "sqlite": (3, 51, 3),
    "python": (3, 11),
    "aiosmtpd": (1, 4, 6),
    "jinja2": (3, 1, 6),
    "pyjwt": (2, 12),
    "idna": (3, 7),
}


@pytest.fixture(scope="module")
def bill(executable: Path) -> dict[str, Any]:
    """The bill that lies beside the executable."""
    return json.loads((executable.parent / "campanero.cdx.json").read_text(encoding="utf-8"))


def said(executable: Path, *words: str) -> str:
    """Return what a command of the executable prints."""
    return subprocess.run([executable, *words], capture_output=True, text=True, check=True).stdout


def test_the_bill_is_of_this_file(executable: Path, bill: dict[str, Any]) -> None:
    """Its digest is that of the file, and so is the checksum beside it; the file is smaller than 60 MB."""
    digest = hashlib.sha256(executable.read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    subprocess.run(["sha256sum", "--check", "--strict", "campanero.sha256"], cwd=executable.parent, check=True)
    assert executable.stat().st_size < 60_000_000


def test_the_bill_has_its_form(bill: dict[str, Any]) -> None:
    """It is CycloneDX 1.6: every part has a name, an address of its own and a licence; references lead to one."""
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    parts = [*bill["components"], *(inner for one in bill["components"] for inner in one.get("components", ()))]
    refs = [part["bom-ref"] for part in parts]
    assert len(refs) == len(set(refs)) > 100
    for part in parts:
        assert part["name"] and part["type"] == "library" and part["purl"].startswith("pkg:")
        assert part["licenses"], part["name"]
    assert set(bill["dependencies"][0]["dependsOn"]) <= set(refs)
    assert re.fullmatch(r"2\.\d+", bill["metadata"]["component"]["properties"][1]["value"])


def test_the_bill_names_what_is_inside(bill: dict[str, Any]) -> None:
    """Every package of the lock is in it with its version, but those that are left out; so are files of others."""
    named = {normal(one["name"]): one["version"] for one in bill["components"]}
    locked = {name: version for name, version in pins("requirements.lock").items() if name not in LEFT_OUT}
    assert locked.items() <= named.items()
    assert {"python", "pyinstaller", "htmx-org", "sortablejs", "rapidoc", "lucide-static"} <= set(named)
    inner = {part["name"] for one in bill["components"] for part in one.get("components", ())}
    assert {"sqlite", "openssl", "libuv"} <= inner
    assert not {"libimagequant", "FriBiDi"} & inner


def test_nothing_is_inside_that_asks_the_same_of_all(bill: dict[str, Any]) -> None:
    """Of what is under the GPL only what excepts programs like this one, or lets one choose another licence."""
    for one in bill["components"]:
        for part in (one, *one.get("components", ())):
            words = json.dumps(part["licenses"])
            assert "GPL" not in words or "exception" in words or " OR " in words, part["name"]


def test_it_tells_its_parts_and_their_licences(executable: Path) -> None:
    """`version --json` names the parts, none below its floor; `version --licences` prints their licences."""
    inside = json.loads(said(executable, "version", "--json"))["components"]
    for name, floor in FLOORS.items():
        assert tuple(int(number) for number in inside[name].split(".")[: len(floor)]) >= floor, name
    licences = said(executable, "version", "--licences")
    for words in (
        "Apache License",
        "Mozilla Public License",
        "cryptography",
        "pillow",
        "inside of it: openssl",
        "htmx",
    ):
        assert words in licences


def test_it_was_tried_before_it_was_passed_on(executable: Path) -> None:
    """The build says that it sent a campaign, how large the file is, and what system it needs."""
    told = (executable.parent / "said.txt").read_text()
    assert "one campaign sent into the inbox and found there" in told
    assert re.search(r"glibc 2\.\d+ or newer", told)
    assert re.search(r"\d+\.\d MB in ", told)
