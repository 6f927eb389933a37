"""Generated files: pictures, tables and backups that are not what they say, or far more (T04, T05, T19, T21, T46).

tests/api/test_threats_uploads.py, tests/api/test_threats_imports.py and tests/faults/test_backup_bounds.py have the
known ones, with limits of memory for each.
"""

import csv
import io
import random
import shutil
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.test_threats_uploads import resident_megabytes
from tests.conftest import FreshServer
from tests.faults.test_backup_bounds import MANIFEST, SIGNATURE, SUMS, add_file, write_backup
from tests.kit.client import Client
from tests.kit.pictures import animation, chunk, encode_image, photo, png
from tests.kit.sampling import examples
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import upload, upload_image, wait_for_import

SERVER_ENV = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}  # no limit
PICTURES, TABLES, BACKUPS = examples(30, full=3_000), examples(6, full=600), examples(4, full=300)
MAX_GROWTH_MEGABYTES = 350
_SIZES = (0, 1, 2, 255, 256, 8_000, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\uff1d1",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("https://x.test")',
)


def build_picture(rng: random.Random) -> bytes:
    """Return a picture with sizes, chunks and ends that do not belong to its content."""
    kind = rng.choice(("PNG", "PNG", "JPEG", "GIF", "WEBP", "built"))
    if kind == "built":
        width, height = rng.choice(_SIZES), rng.choice(_SIZES)
        data = zlib.compress(b"\0" * rng.choice((0, 1, 10_000, 20_000_000)), 9)
        return png(width, height, data, *[chunk(rng.choice((b"zTXt", b"iCCP", b"IDAT", b"IHDR", b"acTL")), data)] * 2)
    if kind == "GIF":
        raw = bytearray(animation(rng.choice((1, 3, 20)), 40, 30))
        raw[6:10] = struct.pack("<HH", *(rng.choice(_SIZES) & 0xFFFF for _ in range(2)))
    else:
        raw = bytearray(encode_image(photo(rng.choice((1, 60, 700)), 40), kind))
    for _ in range(rng.choice((0, 1, 4))):
        place = rng.randrange(max(1, len(raw) - 4))
        raw[place : place + 4] = rng.choice((struct.pack(">I", rng.choice(_SIZES)), rng.randbytes(4)))
    if rng.random() < 0.4:
        raw = raw[: rng.randrange(len(raw))]
    if rng.random() < 0.2:
        raw += rng.choice((bytes(raw), b"<script>alert(1)</script>", b"PK\3\4" * 50_000, b"\xff" * 500_000))
    return bytes(raw)


def test_generated_pictures_are_stored_or_refused(server: Server) -> None:
    """Each file becomes a picture of moderate size or a 422 in time, and memory stays moderate."""
    rng, api = random.Random(4), server.client()
    upload_image(api, encode_image(photo(), "PNG")).expect(201)  # its libraries are loaded by then
    before, statuses = resident_megabytes(server), set[int]()
    for _ in range(PICTURES):
        content = build_picture(rng)
        started_at = time.monotonic()
        response = upload_image(api, content, rng.choice(("a.png", "a.svg", "../../a.html", "a\r\nb.png", "a" * 300)))
        assert response.status in (201, 422), (response.status, content[:100])
        assert time.monotonic() - started_at < extend_timeout(8)
        if response.status == 201:
            served = api.request("GET", response.json["url"].removeprefix(api.url))
            assert served.headers["content-type"].startswith("image/") and b"<script" not in served.body
        statuses.add(response.status)
    assert statuses == {201, 422}
    assert resident_megabytes(server) - before < MAX_GROWTH_MEGABYTES


def _workbook(sheet: str, strings: str = "", rels: str = "") -> bytes:
    """Return an XLSX with one sheet; every reader of workbooks looks for these parts."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml", '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
        )
        archive.writestr(
            "xl/workbook.xml", f'<workbook {main}><sheets><sheet name="a" sheetId="1"/></sheets></workbook>'
        )
        archive.writestr("xl/_rels/workbook.xml.rels", rels or "<Relationships/>")
        archive.writestr("xl/sharedStrings.xml", strings or f"<sst {main}/>")
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
    return file.getvalue()


def _sheet(*rows: str) -> str:
    cells = "".join(f"<row>{row}</row>" for row in rows)
    return f"<worksheet><sheetData>{cells}</sheetData></worksheet>"


def _cell(text: str) -> str:
    return f'<c t="inlineStr"><is><t>{text}</t></is></c>'


_ENTITIES = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    ) + '<!ENTITY file SYSTEM "file:///etc/passwd">]>'
)  # fmt: skip
_ZEROS = " " * 30_000_000


def build_workbook(rng: random.Random) -> bytes:
    """Return a workbook that unpacks to far more, refers to files, or is not a workbook."""
    head, row = _cell("email"), _cell("a@example.org")
    kinds = {
        "bomb": lambda: _workbook(_sheet(head, row) + _ZEROS),
        "strings": lambda: _workbook(_sheet(head, row), "<sst>" + "<si><t>x</t></si>" * 500_000 + "</sst>"),
        "entities": lambda: _workbook(
            _ENTITIES + _sheet(head, _cell("&j;")), _ENTITIES + "<sst><si><t>&file;</t></si></sst>"
        ),
        "columns": lambda: _workbook(_sheet(head * 16_384, row * 16_384)),
        "far cell": lambda: _workbook(_sheet('<c r="XFD1048576"><v>1</v></c>')),
        "path": lambda: _workbook(
            _sheet(head), rels='<Relationships><Relationship Id="r" Target="../../../etc/passwd"/></Relationships>'
        ),
        "no workbook": lambda: b"PK\3\4" + rng.randbytes(2_000),
        "cut": lambda: _workbook(_sheet(head, row))[: rng.randrange(20, 400)],
    }  # fmt: skip
    return kinds[rng.choice(sorted(kinds))]()


def build_table(rng: random.Random, number: int) -> bytes:
    """Return a CSV with columns, cells, quotes and bytes that no program writes."""
    separator, end = rng.choice((",", ";", "\t", "|")), rng.choice(("\n", "\r\n", "\r", "\n\n"))
    width = rng.choice((2, 3, 20, 16_384)) if rng.random() < 0.4 else 3
    head = ["email", "phone", "first_name", *(f"c{at}" for at in range(width - 3))][:width]
    odd = (
        *_FORMULAS, "", '"', '""', "x" * 300_000, "\x00", "\ufeff", "\ud7ff", "a@b@c", "<script>alert(1)</script>",
        "{{ contact.email }}", "9" * 400, "1e999", "' OR 1=1 --", "../../etc/passwd", "&file;", "\x1b[31m",
    )  # fmt: skip
    rows = [separator.join(head)]
    for line in range(rng.choice((1, 30, 300))):
        # Many addresses that share a phone number, and many rows about one address
        email = rng.choice((f"{number}.{line}@example.org", f"{number}.same@example.org", rng.choice(odd)))
        cells = [email, rng.choice(("+14155550100", f"+1415555{line % 9000:04}", rng.choice(odd))), rng.choice(odd)]
        rows.append(
            separator.join([*cells, *(rng.choice(("", "x", rng.choice(odd[:12]))) for _ in range(width - 3))][:width])
        )
    content = end.join(rows).encode(rng.choice(("utf-8", "utf-8", "utf-16", "utf-8-sig")), "replace")
    return content if rng.random() < 0.8 else content[: len(content) // 2] + rng.randbytes(20)


def test_generated_tables_are_imported_or_refused(server: Server) -> None:
    """Each file is refused or its import ends, memory stays moderate, and exports have no formulas."""
    rng, api = random.Random(21), server.client(validate=False)
    before = resident_megabytes(server)
    for number in range(TABLES):
        is_workbook = rng.random() < 0.3
        content = build_workbook(rng) if is_workbook else build_table(rng, number)
        name = rng.choice(("people.xlsx", "people.csv", "../people.csv")) if is_workbook else "people.csv"
        started_at = time.monotonic()
        response = upload(api, content, name, opt_in=rng.random() < 0.5)
        assert response.status in (201, 422), (response.status, content[:200])
        if response.status == 201:
            job = wait_for_import(api, response, 120)
            assert job["status"] in ("complete", "failed"), job
        assert time.monotonic() - started_at < extend_timeout(20), content[:200]
    assert resident_megabytes(server) - before < MAX_GROWTH_MEGABYTES
    assert_exports_without_formulas(api)


def assert_exports_without_formulas(api: Client) -> None:
    """Check every cell of the export of contacts; phone numbers alone may begin with a plus."""
    export = api.get("/exports/contacts.csv")
    assert export.status == 200, export.text[:500]
    rows = list(csv.DictReader(io.StringIO(export.text, newline="")))
    assert len(rows) > 20
    cells = [cell for row in rows for name, cell in row.items() if isinstance(cell, str) and name != "phone"]
    assert [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b")] == []


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[bytes, dict[str, bytes]]]:
    """The key of an installation, and the members of its backup by name."""
    with Server().set_up() as server:
        server.stop()
        target = tmp_path_factory.mktemp("backup") / "whole.tar.gz"
        server.cli("backup", str(target))
        with tarfile.open(target) as tar:
            files = {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}
        yield (server.data / "secret.key").read_bytes(), files


_NAMES = (
    "../evil", "imports/../../evil", "/etc/evil", "imports//x", "imports/.", "..", "campanero.toml",
    "imports/1/" + "a" * 300, "imports/" + "a/" * 60 + "x", "CAMPANERO.DB", "campanero.db-wal", "serve.lock",
    "imports/x\ny", "imports/\x1b[31m", "imports/\u202e", ".campanero.db", "huey.db", "imports/1/upload/..",
    "optouts.jsonl/x",
)  # fmt: skip


def write_hostile_backup(rng: random.Random, path: Path, files: dict[str, bytes], key: bytes) -> None:
    """Write a backup with right sums and signature that has members it must not have, or is damaged."""
    way = rng.randrange(4)
    if way < 2:
        extra = {name: b"x" * rng.choice((0, 1, 100_000)) for name in rng.sample(_NAMES, rng.choice((1, 2)))}
        write_backup(path, {**files, **extra} if way else {MANIFEST: files[MANIFEST], **extra}, key)
        return
    write_backup(path, files, key)
    content = bytearray(path.read_bytes())
    if way == 2:
        content = content[: rng.randrange(1, len(content) - 20)]
    else:
        members = {name: files.get(name, b"") for name in rng.sample(sorted(files), len(files) // 2)}
        with tarfile.open(path, "w:gz") as tar:
            for name, member in members.items():
                if name not in (SUMS, SIGNATURE):
                    add_file(tar, name, member)
        return
    path.write_bytes(content)


def test_generated_backups_are_refused(
    backup: tuple[bytes, dict[str, bytes]], fresh_server: FreshServer, tmp_path: Path
) -> None:
    """A restore fails with one line, and writes nothing in or beside the data directory, even if the sums are right."""
    rng, (key, files) = random.Random(46), backup
    other = fresh_server(start=False, set_up=False)
    for number in range(BACKUPS):
        bad = tmp_path / f"{number}.tar.gz"
        write_hostile_backup(rng, bad, files, key)
        shutil.rmtree(other.data, ignore_errors=True)
        other.data.mkdir()
        (other.data / "secret.key").write_bytes(key)
        (other.data / "secret.key").chmod(0o600)
        beside = {path.name for path in other.data.parent.iterdir()}
        result = other.cli("restore", str(bad), expect=1)
        assert result.stderr.count("\n") == 1 and "\x1b" not in result.stderr, result.stderr
        assert {path.name for path in other.data.iterdir()} <= {"secret.key", "serve.lock"}
        assert (other.data / "secret.key").read_bytes() == key
        assert {path.name for path in other.data.parent.iterdir()} == beside
        bad.unlink()
