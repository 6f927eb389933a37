"""`packaging/install`: installation below a directory, upgrade, removal, and what it refuses."""

import subprocess
from pathlib import Path

from tests.kit.server import ROOT


def _install(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", ROOT / "packaging" / "install", *arguments], capture_output=True, text=True)


def _build_program(directory: Path, version: str) -> Path:
    """Return the directory of a program that prints its version and has one file of that version."""
    directory.mkdir()
    (directory / "campanero").write_text(f"#!/bin/sh\necho campanero {version}\n")
    (directory / "campanero").chmod(0o755)
    (directory / f"part-{version}").touch()
    return directory


def test_install_upgrade_and_remove(tmp_path: Path) -> None:
    """An upgrade replaces the whole program and keeps the configuration; a removal keeps configuration and data."""
    root = tmp_path / "root"
    first, second = _build_program(tmp_path / "1", "0.1.0"), _build_program(tmp_path / "2", "0.2.0")
    result = _install("--from", first, "--root", root)
    assert result.returncode == 0 and "campanero 0.1.0" in result.stdout, result.stderr
    config, data = root / "etc/campanero/campanero.toml", root / "var/lib/campanero"
    assert config.stat().st_mode & 0o777 == 0o640 and data.stat().st_mode & 0o777 == 0o700
    assert (root / "usr/lib/systemd/system/campanero.service").is_file()
    config.write_text("# ours\n")
    (data / "campanero.db").touch()
    assert _install("--from", second, "--root", root).returncode == 0
    program = root / "usr/lib/campanero"
    assert {path.name for path in program.iterdir()} == {"campanero", "part-0.2.0"}
    assert {path.name for path in program.parent.iterdir()} == {"campanero", "systemd"}
    link = root / "usr/bin/campanero"
    assert subprocess.run([link], capture_output=True, text=True).stdout == "campanero 0.2.0\n"
    assert _install("--remove", "--root", root).returncode == 0
    assert not program.exists() and not link.is_symlink()
    assert config.read_text() == "# ours\n" and (data / "campanero.db").exists()


def test_refused_installations(tmp_path: Path) -> None:
    """A missing or broken program and a wrong option are refused before anything is changed."""
    root = tmp_path / "root"
    broken = _build_program(tmp_path / "broken", "0.1.0")
    (broken / "campanero").write_text("#!/bin/sh\nexit 1\n")
    for arguments, words in (
        (("--from", tmp_path / "nowhere"), "run packaging/build"),
        (("--from", broken), "does not run here"),
        (("--from",), "needs a directory"),
    ):
        result = _install("--root", root, *arguments)
        assert result.returncode == 1 and words in result.stderr
    assert _install("--other").returncode == 2
    assert not root.exists()
