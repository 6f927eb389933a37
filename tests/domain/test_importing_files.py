"""Reading import files: good rows are read and bad ones reported by line, for any content (T21)."""

import csv
import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.core import addresses, crypto
from appliance.imports import columns, file_reader
from appliance.imports.cells import AddressReader, InvalidRecord
from appliance.imports.file_reader import StagingTask
from appliance.imports.staging import StagingFile


def read_file(
    tmp_path: Path, content: bytes, resource: str = "contacts"
) -> tuple[list[tuple[str, str]], dict[int, str]]:
    """Stage a file; return (value, first name) of its rows in line order, and errors by line."""
    path, side = tmp_path / "upload", tmp_path / "side.db"
    path.write_bytes(content)
    file_reader.stage_file(StagingTask(str(path), str(side), resource, {}), lambda count: None)
    staged = StagingFile(side)
    staged_people = sorted(staged.people(0, staged.count()), key=lambda person: person.line)
    errors = {row[0]: row[1] for row in staged.lines(0, 10_000) if row[1] is not None}
    staged.close()
    return [(person.value, person.first_name or "") for person in staged_people], errors


@pytest.fixture(autouse=True, scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Create the secret key: opted-out addresses are stored as keyed hashes."""
    crypto.create_key(tmp_path_factory.mktemp("key"))


TEXT = "email;first_name\nann@example.org;Ännchen\nbo@example.org;Łukasz\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_encodings_line_ends_and_separators_are_detected(
    tmp_path: Path, encoding: str, ends: str, separator: str
) -> None:
    """The same table gives the same rows in each encoding, line end and separator."""
    content = TEXT.replace("\n", ends).replace(";", separator).encode(encoding)

    assert read_file(tmp_path, content) == ([("ann@example.org", "Ännchen"), ("bo@example.org", "Łukasz")], {})


def test_a_cp1252_file_is_read(tmp_path: Path) -> None:
    """A file that is not valid UTF-8 is read as CP1252."""
    content = "email,first_name\nann@example.org,Ännchen\neu@example.org,5 €\n".encode("cp1252")

    assert read_file(tmp_path, content)[0] == [("ann@example.org", "Ännchen"), ("eu@example.org", "5 €")]


def test_an_invalid_utf8_byte_fails_only_its_row(tmp_path: Path) -> None:
    """The other rows of the UTF-8 file are read."""
    content = "email,first_name\n" + "".join(f"p{n}@example.org,Ö\n" for n in range(5))
    people, errors = read_file(tmp_path, content.encode() + b"bad@example.org,\xff\nlast@example.org,x\n")

    assert (len(people), list(errors)) == (6, [7])
    assert "encoding" in errors[7]


def test_malformed_rows_fail_alone(tmp_path: Path) -> None:
    """A huge line, too many columns, an unclosed quote or a NUL fails its row only, within 30 MB of memory."""
    good = b"a%d@example.org,x\n"
    content = b"email,first_name\n" + good % 1
    content += b"x" * 70_000_000 + b"\n" + good % 2 + b"," * 100_000 + b"\n"
    content += b",".join([b"y"] * 300) + b"\n" + good % 3
    content += b'open@example.org,"never closed\n' + good % 4
    content += b"nul@example.org,\0\n" + good % 5
    content += b'mid@example.org,a"b\n' + b'"two@example.org","a\nb""c"\n' + good % 6
    tracemalloc.start()
    people, errors = read_file(tmp_path, content)
    peak = tracemalloc.get_traced_memory()[1] - len(content)
    tracemalloc.stop()

    assert [value for value, _ in people] == [f"a{n}@example.org" for n in (1, 2, 3, 4, 5)] + [
        "mid@example.org", "two@example.org", "a6@example.org",
    ]  # fmt: skip
    assert list(errors) == [3, 5, 6, 8, 10]
    assert "too long" in errors[3] and "too long" in errors[5] and "too many columns" in errors[6]
    assert "quotes" in errors[8] and "NUL" in errors[10]
    assert dict(people)["two@example.org"] == 'a b"c'
    assert peak < 30_000_000


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8), min_size=2,
                         max_size=4), max_size=8))  # fmt: skip
@example([["", ""]])
@example([['"', "\n"], ["a,b", '""']])
def test_read_csv_reverses_csv_writer(rows: list[list[str]]) -> None:
    """Quotes, separators and line ends in cells are preserved."""
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    parsed = list(file_reader.read_csv(iter(text.getvalue().split("\n")), ","))

    assert [row.cells for row in parsed] == rows
    assert all(row.fault is None for row in parsed)


@given(st.binary(max_size=400))
@example(b'"')
@example(b'a,"b\n"c",d\n"e')
def test_any_bytes_are_read_or_unreadable(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any file is read or raises UnreadableFile, and no other exception."""
    path = tmp_path_factory.mktemp("any") / "upload"
    path.write_bytes(b"email\n" + content)
    try:
        file_reader.stage_file(StagingTask(str(path), str(path) + ".db", "contacts", {}), lambda count: None)
    except file_reader.UnreadableFile:
        pass


LOCAL = st.one_of(st.text(st.sampled_from("abcZ019.+-_'\"@ ,é"), max_size=70), st.text(max_size=10))
DOMAINS = "example.org EXAMPLE.Org müller.de localhost a..b -x.org x.test [1.2.3.4] xn--mller-kva.de example.org."
DOMAIN = st.sampled_from([*DOMAINS.split(), "", "a" * 64 + ".org"])


@given(LOCAL, DOMAIN)
def test_address_reader_matches_parse_email(local: str, domain: str) -> None:
    """An address in a file is parsed exactly as one in the API."""
    text = f"{local}@{domain}"
    try:
        expected = addresses.parse_email(text)
    except ValueError:
        expected = None
    try:
        parsed = AddressReader().email(text)
    except InvalidRecord:
        parsed = None

    assert parsed == expected


def test_rows_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond MAX_ROWS are not read, and one error is reported."""
    monkeypatch.setattr(file_reader, "MAX_ROWS", 3)
    people, errors = read_file(tmp_path, b"email\n" + b"".join(b"p%d@example.org\n" % n for n in range(9)))

    assert (len(people), list(errors)) == (3, [5])


def test_a_file_without_header_is_read(tmp_path: Path) -> None:
    """An address column is recognized by its values."""
    assert read_file(tmp_path, b"ann@example.org\nbo@example.org\n")[0] == [
        ("ann@example.org", ""),
        ("bo@example.org", ""),
    ]


@pytest.mark.parametrize(
    "heading",
    ["Vor- und Nachname", "Vor-/Nachname", "Vorname, Nachname", "Vollständiger Name", "Prénom et nom", "Nom complet",
     "Nombre y apellidos", "Nome e cognome", "Voor- en achternaam", "Naam", "Nome completo", "Imię i nazwisko"],
)  # fmt: skip
def test_usual_headings_of_full_names(heading: str) -> None:
    """Columns of full names are recognized in seven languages."""
    assert columns.guess_targets(["email", heading]) == ["email", "name"]


def test_guess_targets_of_columns() -> None:
    """Column names in other words and languages find their field; read-only fields are left out."""
    names = ["E-Mail", "Vorname", "Last Name", "Mobile", "Favourite colour", "data.x", "id", "Email 2", "created_at"]

    assert columns.guess_targets(names) == [
        "email", "first_name", "last_name", "phone", "data.favourite_colour", "data.x", "", "data.email_2", "",
    ]  # fmt: skip
    # Of two columns for a field the first is used; all phone columns are
    assert columns.guess_targets(["email", "E-Mail", "Vorname", "first name", "phone", "mobile"]) == [
        "email", "data.e_mail", "first_name", "data.first_name", "phone", "phone",
    ]  # fmt: skip


def test_overlong_lines_are_truncated(tmp_path: Path) -> None:
    """An overlong line is returned as an OverlongLine of 200 characters."""
    path = tmp_path / "f"
    path.write_bytes(b"a\n" + b"b" * 1_000_000 + b"\nc")
    lines = list(file_reader.read_lines(path, "utf-8", 0))

    assert (lines[0], len(lines[1]), lines[2]) == ("a", 200, "c")
    assert isinstance(lines[1], file_reader.OverlongLine)


@pytest.mark.parametrize("signature", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0"])
def test_an_excel_workbook_is_rejected(tmp_path: Path, signature: bytes) -> None:
    """The error says to save the file as CSV."""
    path = tmp_path / "people.xlsx"
    path.write_bytes(signature + bytes(200) + b"\nemail\nann@example.org\n")
    with pytest.raises(file_reader.UnreadableFile, match="save it as CSV"):
        file_reader.preview_file(path)
