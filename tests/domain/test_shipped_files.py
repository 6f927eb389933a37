"""Shipped files are read from the sources and from the archive of the executable alike; scripts start without them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from appliance.core import shipped
from tests.kit.server import ROOT


@pytest.fixture(params=["sources", "archive"])
def top(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read three files from a directory or from an archive as that of the executable."""
    files = {"static/a.css": "a", "static/b/c.svg": "c", "ui/guides/x.md": "x"}
    monkeypatch.setattr(shipped, "ROOT", tmp_path)
    if request.param == "archive":
        with zipfile.ZipFile(tmp_path / shipped.ARCHIVE, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    else:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    shipped._root.cache_clear()
    request.addfinalizer(shipped._root.cache_clear)


@pytest.mark.usefixtures("top")
def test_files_by_path_and_below_a_directory() -> None:
    """A file is read by its path, an absent one does not exist, and a directory lists all files below it."""
    assert shipped.find("ui", "guides", "x.md").read_text("utf-8") == "x"
    assert not shipped.find("ui", "guides", "de", "x.md").is_file()
    files = [(name, file.read_bytes()) for name, file in shipped.list_files(shipped.find("static"))]
    assert files == [("a.css", b"a"), ("b/c.svg", b"c")]


def test_commands_for_scripts_import_nothing_of_the_service() -> None:
    """What the executable imports for `campanero api` has no module of the service, and nothing that only it needs."""
    modules = "appliance.core.loader, appliance.remote.cli, appliance.remote.connection"
    program = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=True,
                          capture_output=True, text=True)  # fmt: skip
    names = set(done.stdout.split())
    assert "httpx" in names and not names & {"apsw", "babel", "jinja2", "msgspec", "peewee", "PIL", "sanic", "zipfile"}
    packages = tuple(f"appliance.{name}" for name in ("remote", "core.loader"))
    assert {name for name in names if name.startswith("appliance.") and not name.startswith(packages)} == {
        "appliance.core"
    }
