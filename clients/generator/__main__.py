"""Write the generated files of the clients, or with `--check` say which of them differ."""

import sys
from pathlib import Path
from typing import Any

from appliance.api.openapi import build_document
from appliance.settings import config
from appliance.settings.schema import Config
from clients.generator import model, operations_file, python_files, typescript_files

ROOT = Path(__file__).resolve().parents[2]
WRITERS = (python_files.write, typescript_files.write, operations_file.write)


def generate(document: dict[str, Any]) -> dict[str, str]:
    """Return all generated files: their text by path from the root of the repository."""
    api = model.read(document)
    return {path: text for write in WRITERS for path, text in write(api).items()}


def find_differences(files: dict[str, str]) -> list[str]:
    """Return the paths of files that are missing, different or no longer generated."""
    different = [
        path for path, text in files.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text
    ]
    directories = {(ROOT / path).parent for path in files}
    marked = [
        path for directory in directories for path in sorted(directory.glob("*.*"))
        if path.is_file() and python_files.MARK in path.read_text()
    ]  # fmt: skip
    return different + [name for path in marked if (name := str(path.relative_to(ROOT))) not in files]


def main(arguments: list[str]) -> int:
    """Write the files or compare them; the exit code is 1 if `--check` finds a difference."""
    config.set_current(Config())
    files = generate(build_document())
    differences = find_differences(files)
    if "--check" in arguments:
        print("\n".join(differences), end="\n" if differences else "")
        return int(bool(differences))
    for path in differences:
        if path in files:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files[path])
        else:
            (ROOT / path).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
