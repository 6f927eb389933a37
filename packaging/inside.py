"""List what is inside the executable; each entry must belong to a part with a version and a licence.

The licences are in licences/README.md and licences/vendored.md; parts compiled into wheels come from the bills that
wheels carry.
"""

import json
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OURS = {
    "appliance", "ui", "shipped.zip", "entry", "campanero_client", "compiled-templates", "licences.txt",
    "components.json",
}  # fmt: skip
_SHORT = {"Zero-Clause BSD": "0BSD"}
_LOADER = re.compile(r"pyi\w+|PYZ\.pyz|PYZ|struct")
_PYTHON = re.compile(r"python3\.\d+/.+|libpython3[\d.]+\.so[\d.]*|base_library\.zip|_sysconfigdata[\w-]*")
_SYSTEM = re.compile(r"lib[\w+.-]+\.so[\d.]*")

# What the bill of pillow names for its writing in pictures and its AVIF, which the executable leaves out, and what no
# wheel of it holds
_LEFT_OUT = {"FreeType", "FriBiDi", "fribidi-shim", "HarfBuzz", "raqm", "libavif", "libimagequant"}


class Part(NamedTuple):
    """A part of the executable by others (or by us): a package, a system library, or a file."""

    name: str
    version: str
    licence: str
    purl: str
    texts: tuple[Path, ...] = ()
    within: tuple["Part", ...] = ()


class Unknown(Exception):
    """Something inside belongs to no known part."""


def rows(file: str) -> Iterator[list[str]]:
    """Yield the cells of every table in a page of the licences."""
    for line in (HERE / "licences" / file).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) > 2 and not set(cells[0]) <= {"-"}:
            yield cells


def normal(name: str) -> str:
    """Return a package's name in normalized form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> list[str]:
    """Return the packages in the lock file."""
    lines = (HERE / "requirements.lock").read_text().splitlines()
    return [line.partition("==")[0] for line in lines if "==" in line]


def licence_of(name: str) -> str:
    """Return a part's licence from its row, as an SPDX expression."""
    known = {normal(name): cells[2] for cells in rows("README.md") for name in cells[0].split(", ")}
    if normal(name) not in known:
        raise Unknown(f"packaging/licences/README.md has no row for {name}")
    return known[normal(name)]


def owners() -> dict[str, str]:
    """Return which package of the lock file each of its files and modules belongs to."""
    packages = {"time-zones.zip": "tzdata"}
    for name in pinned():
        for file in metadata.distribution(name).files or ():
            packages[str(file)] = name
            if file.suffix == ".py":
                parts = file.with_suffix("").parts
                packages[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = name
            if ".libs" in file.parts[0]:
                packages[file.name] = name  # linked to from the top
    return packages


def parts(modules: Iterable[str], files: Iterable[str]) -> list[Part]:
    """Return the parts that these modules and files belong to. Raises Unknown if there is none."""
    known, packages, libraries, strange = owners(), set(), set(), []
    for name in sorted({*modules, *files}):
        top = re.split(r"[./]", name)[0]
        if name in known:
            packages.add(known[name])
        elif top in OURS or name in OURS or _LOADER.fullmatch(name) or _PYTHON.fullmatch(name):
            continue
        elif _SYSTEM.fullmatch(name):
            libraries.add(name)
        elif top not in sys.stdlib_module_names and not any(module.startswith(f"{name}.") for module in known):
            strange.append(name)
    if strange:
        raise Unknown(f"whose are these? {', '.join(strange)}")
    all_parts = [*map(_package, packages), *_libraries(libraries), *_always(), *_vendored()]
    return sorted(all_parts, key=lambda part: part.name.lower())


def _package(name: str) -> Part:
    dist = metadata.distribution(name)
    files = [file for file in dist.files or () if ".dist-info" in file.parts[0]]
    texts = [
        Path(str(dist.locate_file(file))) for file in files
        if re.match(r"(licen[cs]e|copying|notice|authors)", file.name, re.IGNORECASE)
    ]  # fmt: skip
    bills = [Path(str(dist.locate_file(file))) for file in files if "sboms" in file.parts]
    own = normal(name)
    within = sorted({part for bill in bills for part in _carried(bill, own)} | set(_untold(own)))
    purl = f"pkg:pypi/{own}@{dist.version}"
    return Part(name, dist.version, licence_of(name), purl, tuple(sorted(texts)), tuple(within))


def _carried(bill: Path, owner: str) -> Iterator[Part]:
    """Yield the parts compiled into a wheel, from the wheel's own bill."""
    for component in json.loads(bill.read_text())["components"]:
        purl = (component.get("purl") or "").partition("?")[0]
        own = purl.startswith("pkg:pypi/") or component["name"].startswith("PIL.")
        if component.get("scope") == "excluded" or own or component["name"] in _LEFT_OUT:
            continue
        version = component.get("version") or ""
        fallback = f"pkg:generic/{component['name']}" + (f"@{version}" if version else "")
        yield Part(component["name"], version, _licence(component) or licence_of(component["name"]), purl or fallback)


def _licence(component: dict[str, Any]) -> str:
    for licence in component.get("licenses") or ():
        name = (
            licence.get("expression") or licence.get("license", {}).get("id") or licence.get("license", {}).get("name")
        )
        if name:
            return str(name)
    return ""


def _untold(package: str) -> Iterator[Part]:
    """Yield the parts compiled into a wheel that has no bill."""
    import apsw
    import yaml._yaml

    versions = {"sqlite": apsw.sqlite_lib_version(), "libyaml": yaml._yaml.get_version_string()}
    inside = {
        "apsw": ["sqlite"], "pyyaml": ["libyaml"], "uvloop": ["libuv"], "httptools": ["llhttp"],
        "argon2-cffi-bindings": ["argon2"], "ujson": ["double-conversion"], "pillow": ["zstd", "xz"],
        "jq": ["libjq", "oniguruma"],
    }  # fmt: skip
    for name in inside.get(package, ()):
        version = versions.get(name, "")
        yield Part(name, version, licence_of(name), f"pkg:generic/{name}" + (f"@{version}" if version else ""))


def _libraries(names: Iterable[str]) -> Iterator[Part]:
    """Yield the system packages of libraries; several libraries may belong to one package."""
    seen = set()
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in names:
        path = re.search(rf"^\t{re.escape(name)} \(.*x86-64\) => (\S+)", listed, re.MULTILINE) or re.search(
            rf"^\t{re.escape(name)} .* => (\S+)", listed, re.MULTILINE
        )
        if path is None:
            raise Unknown(f"{name} is not a library of this system")
        package = _debian(path[1])
        if package and package[0] not in seen:
            seen.add(package[0])
            yield Part(package[0], package[1], licence_of(package[0]), package[2], (package[3],))


def _debian(path: str) -> tuple[str, str, str, Path]:
    for place in (path, f"/usr{path}", str(Path(path).resolve())):
        asked = subprocess.run(["dpkg-query", "-S", place], capture_output=True, text=True)
        if asked.returncode == 0:
            break
    else:
        raise Unknown(f"{path} belongs to no package of this system")
    full = asked.stdout.split(": ")[0]
    show = ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}", full]
    name, version, machine = subprocess.run(show, capture_output=True, text=True, check=True).stdout.split("\t")
    system = platform.freedesktop_os_release()
    release = f"{system['ID']}-{system.get('VERSION_ID', '')}"
    purl = f"pkg:deb/{system['ID']}/{name}@{version}?arch={machine}&distro={release}"
    return name, version, purl, Path("/usr/share/doc") / name / "copyright"


def _always() -> Iterator[Part]:
    loader, version = metadata.version("pyinstaller"), platform.python_version()
    text = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    yield Part("Python", version, licence_of("Python"), f"pkg:generic/python@{version}", (text,))
    yield Part("PyInstaller", loader, licence_of("pyinstaller"), f"pkg:pypi/pyinstaller@{loader}")


def _vendored() -> Iterator[Part]:
    """Yield the third-party files in `static/` and `appliance/`."""
    for cells in rows("vendored.md"):
        match = re.match(r"([\w.-]+) (\d+(?:\.\d+)+)", cells[1])
        if match and cells[0].startswith(("`static/", "`appliance/")):
            name, version = match.groups()
            yield Part(name, version, _SHORT.get(cells[3], cells[3].split(";")[0]), f"pkg:npm/{name}@{version}")


def notices(listed: list[Part]) -> str:
    """Return the licences of all parts as one text, as they require."""
    rule = "=" * 100
    sections = [(ROOT / "LICENSE").read_text(encoding="utf-8")]
    for part in listed:
        head = f"{rule}\n{part.name} {part.version}: {part.licence}\n"
        inner = "".join(f"  inside of it: {item.name} {item.version}: {item.licence}\n" for item in part.within)
        texts = (text.read_text(encoding="utf-8", errors="replace").strip() for text in part.texts)
        sections.append(head + inner + "\n" + "\n\n".join(texts))
    for page in ("vendored.md", "texts.md"):
        sections.append(f"{rule}\n{(HERE / 'licences' / page).read_text(encoding='utf-8')}")
    return "\n\n".join(sections) + "\n"


def versions(listed: list[Part]) -> dict[str, str]:
    """Return name and version of every part and of what is compiled into it, as far as known."""
    inner = {item.name: item.version for part in listed for item in part.within if item.name in ("sqlite", "openssl")}
    return {**{normal(part.name): part.version for part in listed}, **inner}
