"""The files of an account's content in one ZIP file: what is packed, and what is read from a file of strangers."""

import zipfile
import zlib
from pathlib import Path
from typing import IO

from appliance.remote.content_files import KINDS_BY_NAME, MAX_FILE_BYTES, PICTURES, STATE_FILE
from appliance.remote.errors import UsageError

MAX_ARCHIVE_BYTES = 32_000_000
MAX_CONTENT_BYTES = 128 * 1024 * 1024
MAX_FILES = 5_000
_FOLDERS = (*KINDS_BY_NAME, PICTURES)


def pack(directory: Path, target: IO[bytes]) -> None:
    """Write the files of a directory, and the ids that they have, as a ZIP file."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(directory / STATE_FILE, STATE_FILE)
        for folder in _FOLDERS:
            for path in sorted((directory / folder).glob("*")):
                archive.write(path, f"{folder}/{path.name}")


def unpack(source: Path, directory: Path) -> None:
    """Write the content files of a ZIP file to an empty directory; other files in it are left out.

    The files may be in one folder, as when a directory was compressed. Raises UsageError for what is no ZIP file, and
    for more or larger files than the limits allow.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            if len(infos) > MAX_FILES:
                raise UsageError(f"the ZIP file has more than {MAX_FILES} files")
            rest = MAX_CONTENT_BYTES
            for info in infos:
                path = _find_place(info.filename, directory)
                if path is None or path.exists():
                    continue
                with archive.open(info) as file:
                    content = file.read(MAX_FILE_BYTES + 1)
                rest -= len(content)
                if len(content) > MAX_FILE_BYTES or rest < 0:
                    raise UsageError(f"{info.filename}: too large")
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"this is not a ZIP file that can be read: {error}") from None


def _find_place(name: str, directory: Path) -> Path | None:
    """Return where a file of a ZIP file belongs, or None for a file that is no content file."""
    parts = name.split("/")
    if parts[-1] == STATE_FILE and len(parts) <= 2:
        return directory / STATE_FILE
    if len(parts) not in (2, 3) or parts[-2] not in _FOLDERS:
        return None
    file = parts[-1]
    is_safe = file.isprintable() and not file.startswith(".") and "\\" not in file and len(file) <= 120
    return directory / parts[-2] / file if is_safe else None
