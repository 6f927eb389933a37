"""The files of an account's content as one ZIP file: packing, and unpacking of untrusted files with limits."""

import zipfile
import zlib
from pathlib import Path
from typing import IO

from appliance.remote.content_files import KINDS_BY_NAME, MAX_FILE_BYTES, PICTURES, STATE_FILE
from appliance.remote.errors import UsageError

MAX_ARCHIVE_BYTES = 32_000_000
MAX_CONTENT_BYTES = 128 * 1024 * 1024
MAX_FILES = 5_000
# The maximum number of opening brackets and commas in all JSON files: each may become an object in memory of up to a
# hundred bytes.
MAX_JSON_PARTS = 2_000_000
# Only for these does `zipfile` limit how much it decompresses at a time.
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# The first bytes of a file's entry in the central directory of a ZIP file (APPNOTE.TXT 6.3.10, section 4.3.12).
_ENTRY_SIGNATURE = b"PK\x01\x02"
# Less than the 255 bytes that file systems allow
_MAX_NAME_BYTES = 200
_FOLDERS = (*KINDS_BY_NAME, PICTURES)


def pack(directory: Path, target: IO[bytes]) -> None:
    """Write the files of a directory, with the ids of their objects, as a ZIP file."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(directory / STATE_FILE, STATE_FILE)
        for folder in _FOLDERS:
            for path in sorted((directory / folder).glob("*")):
                archive.write(path, f"{folder}/{path.name}")


def unpack(source: Path, directory: Path) -> None:
    """Write the content files of a ZIP file to an empty directory; other files in it are left out.

    The files may be in one top folder, as when a directory was compressed. Raises UsageError if the source is not a ZIP
    file, or if its files are more or larger than the limits allow.
    """
    try:
        # Folders have entries, too, hence the factor. `zipfile` would read all entries, however many, before they can
        # be counted.
        if source.read_bytes().count(_ENTRY_SIGNATURE) > 2 * MAX_FILES:
            raise UsageError(f"the ZIP file has more than {MAX_FILES} files")
        with zipfile.ZipFile(source) as archive:
            # An entry without a name, which `is_dir` does not expect, is no file either.
            infos = [info for info in archive.infolist() if info.filename and not info.is_dir()]
            if len(infos) > MAX_FILES:
                raise UsageError(f"the ZIP file has more than {MAX_FILES} files")
            _write_files(archive, infos, directory)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"this is not a ZIP file that can be read: {error}") from None


def _write_files(archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo], directory: Path) -> None:
    """Write the content files of a ZIP file. Raises UsageError if they would need too much disk space or memory."""
    rest, rest_parts = MAX_CONTENT_BYTES, MAX_JSON_PARTS
    for info in infos:
        path = _find_place(info.filename, directory)
        if path is None or path.exists():
            continue
        if info.compress_type not in _COMPRESSIONS:
            raise NotImplementedError(f"{info.filename} is compressed by a method other than Deflate")
        with archive.open(info) as file:
            content = file.read(MAX_FILE_BYTES + 1)
        rest -= len(content)
        if path.parent.name != PICTURES:
            rest_parts -= sum(map(content.count, (b"[", b"{", b",")))
        if len(content) > MAX_FILE_BYTES or rest < 0 or rest_parts < 0:
            raise UsageError(f"{info.filename}: too large")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def _find_place(name: str, directory: Path) -> Path | None:
    """Return the path at which a file of a ZIP file is written, or None if it is not a content file."""
    parts = name.split("/")
    if parts[-1] == STATE_FILE and len(parts) <= 2:
        return directory / STATE_FILE
    if len(parts) not in (2, 3) or parts[-2] not in _FOLDERS:
        return None
    file = parts[-1]
    is_short = len(file.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    is_safe = file.isprintable() and not file.startswith(".") and "\\" not in file and is_short
    return directory / parts[-2] / file if is_safe else None
