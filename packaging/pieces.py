"""The pieces that the executable carries its modules in, made by campanero.spec: what a start imports, and the rest."""

import importlib.util
import lzma
import marshal
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType

import PyInstaller
from PyInstaller.building.utils import replace_filename_in_code_object

ROOT = Path(__file__).resolve().parent.parent
# One time for all: an archive of the same is the same
_EPOCH = (1980, 1, 1, 0, 0, 0)
# With what some starts import, or all at a later time: for a configuration, and for the names of addresses
_START = "from appliance import cli, frozen, server; import stringprep, tomllib"
# With what is loaded while the first who asks gets an answer, or for whoever asks for it
_SOON = (
    "from appliance.api import login, public_forms, routes; from appliance.feedback import receipts;"
    "from appliance.public import clicks, confirm, forms, hooks, media, preferences, reading, unsubscribe;"
    "from appliance.work import capture, consumer; from ui import declared; declared.table()"
)
# It asks for six hundred files of its own that are left out: in an archive each answer takes thirty times as long
_ASKING = {"pytz"}


def imported(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has after a statement."""
    site = str(Path(PyInstaller.__file__).parents[1])
    tell = f"import sys; sys.path.append({site!r}); {statement}; print(*sys.modules)"
    done = subprocess.check_output([sys.executable, "-S", "-c", tell], cwd=ROOT, text=True)
    return set(done.split())


def of_a_start() -> set[str]:
    """Return the modules that a start imports."""
    return imported(_START)


def of_all_doors() -> set[str]:
    """Return the modules that a start imports, and all that is there for who asks: pages, endpoints, links, queue."""
    return imported(f"{_START}; {_SOON}")


def of_the_reader() -> set[str]:
    """Return the modules that the reader of the piece needs itself."""
    return imported("from appliance import gathered")


def of_whole_packages(modules: Iterable[str], at_start: set[str], files: Iterable[str]) -> set[str]:
    """Return the modules of packages that no start imports anything of, and that have no files beside their code."""
    tops = {name.partition(".")[0] for name in at_start} | {Path(file).parts[0] for file in files} | _ASKING
    return {name for name in modules if name.partition(".")[0] not in tops}


def codes(
    pure: Iterable[tuple[str, str | None, str]], wanted: set[str], code_of: dict[str, CodeType]
) -> Iterator[tuple[str, bool, str, CodeType]]:
    """Yield (name, whether it is a package, path, code) of the modules that are wanted, by name."""
    for name, file, _ in sorted(pure):
        if name in wanted:
            is_package = Path(str(file)).name == "__init__.py"
            path = f"{name.replace('.', '/')}{'/__init__' * is_package}.py"
            yield name, is_package, path, replace_filename_in_code_object(code_of[name], path)


def write_code(found: Iterable[tuple[str, bool, str, CodeType]], at_once: set[str], place: Path) -> None:
    """Write the piece that `appliance/gathered.py` reads: code that a start needs at once is read with it."""
    held = {name: (is_package, code if name in at_once else marshal.dumps(code)) for name, is_package, _, code in found}
    place.write_bytes(marshal.dumps(held))


def write_zip(found: Iterable[tuple[str, bool, str, CodeType]], place: Path) -> None:
    """Write an archive that Python imports from."""
    head = importlib.util.MAGIC_NUMBER + bytes(12)
    with zipfile.ZipFile(place, "w") as archive:
        for _, _, path, code in found:
            archive.writestr(zipfile.ZipInfo(f"{path}c", _EPOCH), head + marshal.dumps(code))


def write_declared(module: str, place: Path) -> None:
    """Write what a module reads that tells what is declared: the paths of all pages, or of all endpoints."""
    _write_made(f"from {module} import declared; made = list(map(tuple, declared.table()))", place)


def write_templates(place: Path) -> None:
    """Write what `appliance/precompiled.py` reads: all templates, compiled by the Python that will run them."""
    make = (
        "from appliance import precompiled; from appliance.designs import render; from ui import view;"
        "made = {'pages': view.environment(), 'sections': render.environment()};"
        "made = {kind: precompiled.compiled(environment) for kind, environment in made.items()}"
    )
    _write_made(make, place)


def _write_made(make: str, place: Path) -> None:
    """Write what statements of the program's own make, in an interpreter that the packer has not touched."""
    words = f"import marshal, sys; {make}; open(sys.argv[1], 'wb').write(marshal.dumps(made))"
    subprocess.run([sys.executable, "-c", words, place], cwd=ROOT, check=True)


def shrink_members(archive: Path) -> None:
    """Write an archive anew with each member shrunk by itself, so that what nobody reads costs nothing."""
    with zipfile.ZipFile(archive) as old:
        members = [(zipfile.ZipInfo(one.filename, _EPOCH), old.read(one)) for one in old.infolist()]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for info, data in members:
            new.writestr(info, data, zipfile.ZIP_DEFLATED)


def shrunk(file: Path, place: Path) -> Path:
    """Write a file shrunk as far as it goes, and answer where it is then."""
    place.parent.mkdir(parents=True, exist_ok=True)
    steps = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 9}]
    place.write_bytes(lzma.compress(file.read_bytes(), filters=steps))
    return place
