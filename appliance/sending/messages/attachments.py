"""Files attached to single messages: checked, stored once beside the database, and deleted when no message needs them.

A file is named by the SHA-256 of its content, so recipients and messages share it. It is on disk before the rows that
refer to it. Files without rows, which a killed process may leave, are deleted by the housekeeping.
"""

import base64
import hashlib
import mimetypes
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.core import clock, data_dir
from appliance.core.errors import Faults, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import mime
from appliance.sending.transports import mime_parts
from appliance.settings import config
from appliance.storage import disk_guard
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.models import Attachment
from appliance.storage.transactions import require_write_transaction

# The content of all files of a message or of a batch together.
MAX_TOTAL_BYTES = 25 * 1_048_576
MAX_FILES = 20
_MAX_NAME_CHARACTERS, _MAX_CONTENT_ID_CHARACTERS = 255, 120
# A file is kept for this long after the last change of the messages that need it, in which they may be sent again.
RETENTION_MS = 30 * 24 * 3600 * 1000
DIRECTORY = "attachments"
_DEFAULT_TYPE, _DEFAULT_NAME = "application/octet-stream", "attachment"
# Stands for the hash of a file that is inside of a submitted email.
_INSIDE = "inside"

# Gmail rejects messages with these files, and other providers most of them
# (support.google.com/mail/answer/6590, "Blocked file types").
BLOCKED_EXTENSIONS = frozenset((
    "ade", "adp", "apk", "appx", "appxbundle", "bat", "cab", "chm", "cmd", "com", "cpl", "diagcab", "diagcfg",
    "diagpkg", "dll", "dmg", "ex", "ex_", "exe", "hta", "img", "ins", "iso", "isp", "jar", "jnlp", "js", "jse", "lib",
    "lnk", "mde", "mjs", "msc", "msi", "msix", "msixbundle", "msp", "mst", "nsh", "pif", "ps1", "scr", "sct", "shb",
    "sys", "vb", "vbe", "vbs", "vhd", "vxd", "wsc", "wsf", "wsh", "xll",
))  # fmt: skip
# RFC 2045, section 5.1: type, subtype and parameters, such as `text/calendar; method=REQUEST`
_WORD = r"[A-Za-z0-9!#$&^_.+-]{1,80}"
_CONTENT_TYPE = re.compile(rf'{_WORD}/{_WORD}(?:; ?{_WORD}=(?:{_WORD}|"[A-Za-z0-9 _.:/+-]{{0,80}}")){{0,5}}')
_CONTENT_ID = re.compile(rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~.@-]{{1,{_MAX_CONTENT_ID_CHARACTERS}}}")
# These may not be encoded in base64 (RFC 2045, section 6.4), or would be taken for parts of the message.
_COMPOSITE_TYPES = ("multipart/", "message/")
_CID_SOURCE = re.compile(rf'src="cid:([^"]{{1,{6 * _MAX_CONTENT_ID_CHARACTERS}}})"')
_SHOWN_TYPES, _MAX_SHOWN_BYTES = ("image/png", "image/jpeg", "image/gif", "image/webp"), 1_048_576
# The `data:` URLs of a displayed message together. HTML may refer to an image a hundred thousand times.
_MAX_SHOWN_CHARACTERS = 16_000_000
_PIECE_BYTES = 262_144
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Stands for the content of a file in a captured message. Quoted-printable text and base64 contain no `=_`.
_PLACEHOLDER = re.compile(rb"(?<=\r\n)=_stored:([0-9a-f]{64})\r\n")


class AttachmentWrite(Struct):
    """A file to attach to an email. With `content_id` it is inline: the HTML shows it as `cid:` and this id."""

    filename: Annotated[
        str,
        Meta(max_length=_MAX_NAME_CHARACTERS, extra={"filled": True, "line": True}),
        Meta(description="file name; types that mail servers reject, such as `.exe`, are rejected"),
    ]
    content: Annotated[bytes, Meta(description="content in base64; all files together have at most 25 MB")]
    content_type: (
        Annotated[str, Meta(max_length=255), Meta(description="MIME type; default: by the file name")]
        | None
        | UnsetType
    ) = UNSET
    content_id: (
        Annotated[
            str,
            Meta(max_length=_MAX_CONTENT_ID_CHARACTERS),
            Meta(description='id of an inline image, such as `logo` for `<img src="cid:logo">`'),
        ]
        | None
        | UnsetType
    ) = UNSET


class StoredFile(NamedTuple):
    """A checked file whose content is stored under its hash."""

    filename: str
    content_type: str
    content_id: str | None
    size: int
    sha256: str


def find_faults(files: Sequence[AttachmentWrite], faults: Faults) -> None:
    """Add the errors of files to attach, each at its field; contents are not read, so this takes little time."""
    total, content_ids = 0, set[str]()
    for index, file in enumerate(files):
        path = f"attachments[{index}]"
        if isinstance(file.filename, str) and (fault := _find_name_fault(file.filename)):
            faults.add(f"{path}.filename", fault)
        if file.content_type and isinstance(file.content_type, str) and not _is_content_type(file.content_type):
            faults.add(f"{path}.content_type", gettext("is invalid"))
        if file.content_id and isinstance(file.content_id, str):
            if not _CONTENT_ID.fullmatch(file.content_id):
                faults.add(f"{path}.content_id", gettext("is invalid"))
            elif file.content_id in content_ids:
                faults.add(f"{path}.content_id", gettext("has already been taken"))
            content_ids.add(file.content_id)
        if isinstance(file.content, bytes):
            total += len(file.content)
            if not file.content:
                faults.add(f"{path}.content", gettext("can't be blank"))
    if total > MAX_TOTAL_BYTES:
        faults.add("attachments", describe_total_limit())


def describe_total_limit() -> str:
    """Return the error for files that exceed `MAX_TOTAL_BYTES` together."""
    return gettext("is too large (maximum is %(limit)s MB)", limit=MAX_TOTAL_BYTES // 1_048_576)


def clean_name(filename: str) -> str:
    """Return a file name without folders, invisible characters, and spaces or dots at its end; it may become empty.

    Without invisible characters, no name is displayed with an extension that it does not have, and without spaces and
    dots at the end no system hides the extension.
    """
    name = filename.replace("\\", "/").rpartition("/")[2]
    name = "".join(char for char in name if unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp", "Cs"))
    return " ".join(name.split()).rstrip(". ")


def _find_name_fault(filename: str) -> str | None:
    name = clean_name(filename)
    if not name:
        return gettext("is invalid")
    if extension := find_blocked_extension(name):
        return gettext("is of a type that mail servers reject (.%(extension)s)", extension=extension)
    return None


def find_blocked_extension(filename: str) -> str | None:
    """Return the extension of a file that mail servers reject, in lower case without its dot, or None."""
    extension = clean_name(filename).rpartition(".")[2].lower()
    return extension if "." in filename and extension in BLOCKED_EXTENSIONS else None


def _is_content_type(value: str) -> bool:
    # The name is written by the service; another one could have an extension that `BLOCKED_EXTENSIONS` refuses.
    has_name = re.search(r"; ?name=", value, re.IGNORECASE) is not None
    is_composite = value.lower().startswith(_COMPOSITE_TYPES)
    return _CONTENT_TYPE.fullmatch(value) is not None and not is_composite and not has_name


# The table of Python, which is the same on all systems, and types that it lacks.
_TYPES = mimetypes.MimeTypes()
_OFFICE = "application/vnd.openxmlformats-officedocument"
for _extension, _type in (
    ("docx", f"{_OFFICE}.wordprocessingml.document"), ("xlsx", f"{_OFFICE}.spreadsheetml.sheet"),
    ("pptx", f"{_OFFICE}.presentationml.presentation"), ("odt", "application/vnd.oasis.opendocument.text"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"), ("ics", "text/calendar"), ("webp", "image/webp"),
):  # fmt: skip
    _TYPES.add_type(_type, f".{_extension}")


def _guess_type(name: str) -> str:
    guessed, compression = _TYPES.guess_type(name)
    return guessed if guessed and not compression and _is_content_type(guessed) else _DEFAULT_TYPE


def count_content(body: Any) -> int:
    """Return the number of characters of all contents in base64 in the decoded JSON of a message or a batch."""
    messages = body.get("messages") if isinstance(body, dict) else None
    total = 0
    for message in messages if isinstance(messages, list) else [body]:
        files = message.get("attachments") if isinstance(message, dict) else None
        for file in files if isinstance(files, list) else []:
            content = file.get("content") if isinstance(file, dict) else None
            total += len(content) if isinstance(content, str) else 0
    return total


def describe_payload(payload: dict[str, Any], files: Sequence[StoredFile]) -> dict[str, Any]:
    """Return the payload of an idempotency key, with the hash of each file in place of its content.

    Invalid files, which are not stored, are left out.
    """
    if not files:
        return {**payload, "attachments": None}
    raw_files = [{**raw, "content": file.sha256} for raw, file in zip(payload["attachments"], files, strict=True)]
    return {**payload, "attachments": raw_files}


def hash_contents(messages: Sequence[Any]) -> list[Any]:
    """Return the raw messages of a batch with the hash of each content in place of it, for an idempotency key."""
    hashed = []
    for message in messages:
        files = message.get("attachments") if isinstance(message, dict) else None
        if isinstance(files, list):
            message = {**message, "attachments": [_hash_content(file) for file in files]}
        hashed.append(message)
    return hashed


def _hash_content(file: Any) -> Any:
    content = file.get("content") if isinstance(file, dict) else None
    if not isinstance(content, str):
        return file
    return {**file, "content": hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()}


# The hashes of files that running requests store. Their rows are not committed yet, but their files must stay.
_pending: Counter[str] = Counter()
_lock = threading.Lock()


def store(files: Sequence[AttachmentWrite]) -> list[StoredFile]:
    """Store valid files that are not stored yet, and sync them to disk. Call `release` once their rows are committed.

    Raises StorageError if the disk has little space, and OSError if a file cannot be written.
    """
    disk_guard.require_space()
    stored: list[StoredFile] = []
    try:
        for file in files:
            name = clean_name(file.filename)
            sha256 = hashlib.sha256(file.content).hexdigest()
            content_type = file.content_type if isinstance(file.content_type, str) and file.content_type else None
            content_id = file.content_id if isinstance(file.content_id, str) and file.content_id else None
            with _lock:
                _pending[sha256] += 1
            stored.append(StoredFile(name, content_type or _guess_type(name), content_id, len(file.content), sha256))
            _write_file(_get_path(sha256), file.content)
    except BaseException:
        release(stored)
        raise
    return stored


def store_raw(content: bytes) -> str:
    """Store a submitted email (`RawMessage`) as `store` does, and return its hash; `release_raw` ends its protection.

    Raises StorageError if the disk has little space, and OSError if the file cannot be written.
    """
    disk_guard.require_space()
    sha256 = hashlib.sha256(content).hexdigest()
    with _lock:
        _pending[sha256] += 1
    try:
        _write_file(_get_path(sha256), content)
    except BaseException:
        release_raw(sha256)
        raise
    return sha256


def read_raw(content: bytes | None, sha256: str | None) -> bytes:
    """Return a submitted email by its columns in `RawMessage`. Raises FileNotFoundError if its file was deleted."""
    return bytes(content or b"") if sha256 is None else _get_path(sha256).read_bytes()


def _write_file(path: Path, content: bytes) -> None:
    if path.exists():
        return
    for folder in (path.parent.parent, path.parent):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            data_dir.sync_to_disk(folder.parent)
    try:
        with data_dir.create_file(path) as target:
            target.write(content)
    except FileExistsError:
        pass  # Another request has stored the same file meanwhile.


def release(files: Iterable[StoredFile]) -> None:
    """End the protection that `store` gave files; from then on, the housekeeping deletes those without rows."""
    _release([file.sha256 for file in files])


def release_raw(sha256: str) -> None:
    """End the protection that `store_raw` gave an email; from then on, the housekeeping deletes it if it has no row."""
    _release([sha256])


def _release(hashes: Sequence[str]) -> None:
    with _lock:
        _pending.subtract(hashes)
        for sha256 in [sha256 for sha256, count in _pending.items() if count <= 0]:
            del _pending[sha256]


def _get_directory() -> Path:
    """Return the directory of the stored files; it does not exist before the first file is stored."""
    return Path(config.current().data_dir) / DIRECTORY


def _get_path(sha256: str) -> Path:
    """Return the path of a file, below a folder for the first two digits of its hash."""
    return _get_directory() / sha256[:2] / sha256


def attach(message_ids: Sequence[int], files: Sequence[StoredFile]) -> None:
    """Insert the rows that attach stored files to messages."""
    require_write_transaction()
    values = [{"message": message_id, **file._asdict()} for message_id in message_ids for file in files]
    for start in range(0, len(values), 100):
        Attachment.insert_many(values[start : start + 100]).execute()


def list_files(message_id: int) -> list[Attachment]:
    """Return the attached files of a message in the order of the request, without their content.

    Those of an email that was submitted by SMTP are numbered from 1.
    """
    files = list(Attachment.select().where(Attachment.message == message_id).order_by(Attachment.id))
    return files or [
        Attachment(
            id=number, message=message_id, filename=clean_name(file.name) or _DEFAULT_NAME,
            content_type=file.content_type, content_id=file.content_id, size=len(file.content), sha256=_INSIDE,
        )
        for number, file in enumerate(_read_submitted_files(message_id), 1)
    ]  # fmt: skip


def _read_submitted_files(message_id: int) -> tuple[mime_parts.Attachment, ...]:
    """Return the files in an email that was submitted by SMTP, empty for another message or if it was deleted."""
    row = fetch_one(
        "SELECT r.content, r.sha256 FROM raw_message r JOIN message_content c ON c.raw_message_id = r.id "
        "WHERE c.message_id = ?",
        (message_id,),
    )
    try:
        return mime_parts.parse_parts(read_raw(*row)).attachments if row is not None else ()
    except (FileNotFoundError, ValueError):
        return ()


def get_file(account_id: int, message_id: int, attachment_id: int) -> tuple[Attachment, Iterable[bytes]]:
    """Return an attached file of an account's message, and its content in pieces. Raises NotFound."""
    if fetch_one("SELECT 1 FROM message WHERE account_id = ? AND id = ?", (account_id, message_id)) is None:
        raise NotFound
    file = next((file for file in list_files(message_id) if file.id == attachment_id), None)
    if file is None or file.sha256 is None:
        raise NotFound
    if file.sha256 == _INSIDE:
        return file, [_read_submitted_files(message_id)[attachment_id - 1].content]
    path = _get_path(file.sha256)
    if not path.is_file():
        raise NotFound
    return file, read_file(path)


def read_file(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in pieces; the file is opened for each, so that none stays open between two."""
    position = 0
    while True:
        with path.open("rb") as file:
            file.seek(position)
            piece = file.read(_PIECE_BYTES)
        if not piece:
            return
        position += len(piece)
        yield piece


def show_inline_images(html: str, message_id: int | None) -> str:
    """Return the HTML of a message with its inline images as `data:` URLs, for displaying it in a page.

    Only PNG, JPEG, GIF and WebP images of up to `_MAX_SHOWN_BYTES` are displayed, and in all `_MAX_SHOWN_CHARACTERS` of
    URLs.
    """
    if message_id is None or "cid:" not in html:
        return html
    urls = {file.content_id: url for file in list_files(message_id) if (url := _build_data_url(file)) is not None}
    urls |= {
        file.content_id: _format_data_url(file.content_type, file.content)
        for file in _read_submitted_files(message_id)
        if file.content_id and _is_shown(file.content_type, len(file.content))
    }
    room = _MAX_SHOWN_CHARACTERS

    def show(match: re.Match[str]) -> str:
        nonlocal room
        url = urls.get(unescape(match[1]))
        if url is None or len(url) > room:
            return match[0]
        room -= len(url)
        return f'src="{url}"'

    return _CID_SOURCE.sub(show, html)


def _build_data_url(file: Attachment) -> str | None:
    """Return the content of an inline image as a `data:` URL, or None if it is not displayed or no longer stored."""
    if file.sha256 in (None, _INSIDE) or not file.content_id or not _is_shown(file.content_type, file.size):
        return None
    try:
        return _format_data_url(file.content_type, _get_path(file.sha256).read_bytes())
    except FileNotFoundError:
        return None


def _is_shown(content_type: str, size: int) -> bool:
    return content_type in _SHOWN_TYPES and size <= _MAX_SHOWN_BYTES


def _format_data_url(content_type: str, content: bytes) -> str:
    return f"data:{content_type};base64,{base64.b64encode(content).decode()}"


def build_parts(message_id: int, is_captured: bool) -> tuple[mime.Part, ...]:
    """Return the parts of an email for its attached files, with placeholders for the contents if it `is_captured`.

    The test inbox stores no second copy of a file (`restore_contents`). Raises ValueError if a file was deleted.
    """
    return tuple(
        mime.Part(file.filename, file.content_type, file.content_id, _read_encoded(file.sha256, is_captured))
        for file in list_files(message_id)
    )


def _read_encoded(sha256: str | None, is_captured: bool) -> bytes:
    try:
        if sha256 is None:
            raise FileNotFoundError
        path = _get_path(sha256)
        if is_captured:
            path.stat()
            return b"=_stored:%s\r\n" % sha256.encode()
        return mime.encode_base64(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(gettext_noop("an attached file was deleted")) from None


def restore_contents(source: bytes, message_id: int | None) -> bytes:
    """Return the source of a captured message with the contents of its files, as far as they are still stored.

    A placeholder of any other file stays as it is, because a sender can write one into the text of an SMS.
    """
    hashes = set() if message_id is None else {file.sha256 for file in list_files(message_id)}

    def read(match: re.Match[bytes]) -> bytes:
        if match[1].decode() not in hashes:
            return match[0]
        try:
            return mime.encode_base64(_get_path(match[1].decode()).read_bytes())
        except FileNotFoundError:
            return match[0]

    return _PLACEHOLDER.sub(read, source)


def hide_contents(source: bytes) -> bytes:
    """Return the source of a captured email with a note in place of the content of each file, for displaying it."""
    note = gettext("content of the file")
    return _PLACEHOLDER.sub(lambda match: f"[{note}]\r\n".encode(), source)


# Files that no message needs any more.


_IS_EXPIRED = "m.status NOT IN ('queued', 'held', 'sending') AND m.updated_at < ?"


def list_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` attached files of messages that were last changed `RETENTION_MS` ago or earlier.

    Messages that are still to be sent are left out.
    """
    sql = (
        "SELECT a.id FROM attachment a JOIN message m ON m.id = a.message_id WHERE a.sha256 IS NOT NULL "
        f"AND {_IS_EXPIRED} ORDER BY a.message_id LIMIT ?"
    )
    return [number for (number,) in rows(sql, (clock.now_ms() - RETENTION_MS, limit))]


def expire(ids: list[int]) -> int:
    """Forget the contents of attached files by id and return their number; names and sizes stay.

    The files of a message that was queued again after `list_expired` was called stay.
    """
    require_write_transaction()
    return run(
        f"UPDATE attachment SET sha256 = NULL WHERE id IN ({','.join(map(str, ids))}) "
        f"AND EXISTS (SELECT 1 FROM message m WHERE m.id = attachment.message_id AND {_IS_EXPIRED})",
        (clock.now_ms() - RETENTION_MS,),
    )


def list_unreferenced(limit: int) -> list[str]:
    """Return the hashes of up to `limit` stored files that no message needs and that no running request stores."""
    unreferenced: list[str] = []
    for folder in sorted(_get_directory().glob("*")):
        # A folder of two digits has at most some thousand files.
        if folder.is_dir() and len(unreferenced) < limit:
            names = [path.name for path in folder.iterdir() if _SHA256.fullmatch(path.name)]
            unreferenced += _select_unreferenced(names) if names else []
    return unreferenced[:limit]


def _select_unreferenced(hashes: Iterable[str]) -> list[str]:
    sql = (
        "SELECT value FROM json_each(?) WHERE NOT EXISTS "
        "(SELECT 1 FROM attachment WHERE sha256 = value AND sha256 IS NOT NULL) AND NOT EXISTS "
        "(SELECT 1 FROM raw_message WHERE sha256 = value AND sha256 IS NOT NULL)"
    )
    unreferenced = [sha256 for (sha256,) in rows(sql, (msgspec.json.encode(list(hashes)).decode(),))]
    with _lock:
        return [sha256 for sha256 in unreferenced if sha256 not in _pending]


def delete_unreferenced(hashes: Iterable[str]) -> int:
    """Delete those of the stored files that no message needs and no running request stores; return their number.

    It runs on the writer, so that no row can be inserted between check and deletion.
    """
    require_write_transaction()
    count = 0
    for sha256 in _select_unreferenced(hashes):
        with _lock:
            if sha256 not in _pending:
                _get_path(sha256).unlink(missing_ok=True)
                count += 1
    return count
