"""Write the bill of materials of a built executable (CycloneDX 1.6, JSON), read from the file itself: bom.py FILE.

The same file gives the same bill: its time is the one of the sources (SOURCE_DATE_EPOCH), its number comes from its
digest.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from inside import Part, parts
from PyInstaller.archive.readers import CArchiveReader

_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # that of addresses (RFC 9562)


def contents(executable: Path) -> tuple[list[str], list[str]]:
    """Return the names of the modules and of the files inside."""
    archive = CArchiveReader(str(executable))
    return list(archive.open_embedded_archive("PYZ.pyz").toc), list(archive.toc)


def oldest_glibc(tree: Path) -> str:
    """Return the glibc version that the files of a tree need at least."""
    versions = {(2, 0)}
    for file in sorted(tree.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.open("rb").read(4) == b"\x7fELF":
            symbols = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, errors="replace").stdout
            versions |= {(int(major), int(minor)) for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", symbols)}
    return ".".join(map(str, max(versions)))


def licences(spdx: str) -> list[dict[str, Any]]:
    """Return a licence in CycloneDX form: by its SPDX id if it has one, or else as an expression."""
    plain = re.fullmatch(r"[\w.+-]+", spdx) and not spdx.startswith("LicenseRef-")
    if re.fullmatch(r"[\w.+-]+(?: (?:OR|AND|WITH) [\w.+-]+)+|LicenseRef-[\w.-]+|.*\(.*\).*", " ".join(spdx.split())):
        return [{"expression": " ".join(spdx.split())}]
    return [{"license": {"id" if plain else "name": spdx}}]


def component(part: Part, ref: str) -> dict[str, Any]:
    """Return a part as a CycloneDX component, with the parts compiled into it."""
    entry: dict[str, Any] = {"type": "library", "bom-ref": ref, "name": part.name}
    if part.version:
        entry["version"] = part.version
    entry |= {"licenses": licences(part.licence), "purl": part.purl}
    if part.within:
        entry["components"] = [component(inner, f"{ref}#{inner.purl}") for inner in part.within]
    return entry


def bill(executable: Path, version: str, glibc: str) -> dict[str, Any]:
    """Return the whole bill of materials."""
    digest = hashlib.sha256(executable.read_bytes()).hexdigest()
    moment = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    all_parts = parts(*contents(executable))
    own = f"campanero@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(_SPACE, f"sha256:{digest}").urn,
        "version": 1,
        "metadata": {
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application", "bom-ref": own, "name": "campanero", "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "properties": [
                    {"name": "campanero:machine", "value": os.uname().machine},
                    {"name": "campanero:glibc", "value": glibc},
                ],
            },
        },
        "components": [component(part, part.purl) for part in all_parts],
        "dependencies": [{"ref": own, "dependsOn": [part.purl for part in all_parts]}],
    }  # fmt: skip


def main(file: str) -> None:
    """Write the bill beside the file and print a summary."""
    executable = Path(file)
    output = subprocess.run([executable, "version", "--json"], capture_output=True, text=True, check=True).stdout
    glibc = oldest_glibc(executable.parent / "unpacked")
    document = bill(executable, json.loads(output)["version"], glibc)
    target = executable.with_name("campanero.cdx.json")
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    inner = sum(len(component.get("components", ())) for component in document["components"])
    print(f"campanero.cdx.json: {len(document['components'])} parts, {inner} more compiled into them")
    print(f"needs Linux {os.uname().machine} with glibc {glibc} or newer")


if __name__ == "__main__":
    main(sys.argv[1])
