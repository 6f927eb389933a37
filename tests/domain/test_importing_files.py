"""Files of people: whatever is in them, the good rows are read and the bad ones told by their line (T21)."""

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


def read(tmp_path: Path, content: bytes, resource: str = "contacts") -> tuple[list[tuple[str, str]], dict[int, str]]:
    """Stage a file and return (value, first name) of its people in the order of lines, and its faults by line."""
    path, side = tmp_path / "upload", tmp_path / "side.db"
    path.write_bytes(content)
    file_reader.stage_file(StagingTask(str(path), str(side), resource, {}), lambda count: None)
    staged = StagingFile(side)
    people = sorted(staged.people(0, staged.count()), key=lambda one: one.line)
    faults = {row[0]: row[1] for row in staged.lines(0, 10_000) if row[1] is not None}
    staged.close()
    return [(one.value, one.first_name or "") for one in people], faults


@pytest.fixture(autouse=True, scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load a key: addresses are remembered by keyed hashes."""
    crypto.create_key(tmp_path_factory.mktemp("key"))


TEXT = "email;first_name\nann@example.org;Ännchen\nbo@example.org;Łukasz\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_encodings_ends_and_separators_are_found(tmp_path: Path, encoding: str, ends: str, separator: str) -> None:
    """Each way a table is written comes out the same."""
    content = TEXT.replace("\n", ends).replace(";", separator).encode(encoding)

    assert read(tmp_path, content) == ([("ann@example.org", "Ännchen"), ("bo@example.org", "Łukasz")], {})


def test_a_windows_file_is_read(tmp_path: Path) -> None:
    """What is not UTF-8 is CP1252."""
    content = "email,first_name\nann@example.org,Ännchen\neu@example.org,5 €\n".encode("cp1252")

    assert read(tmp_path, content)[0] == [("ann@example.org", "Ännchen"), ("eu@example.org", "5 €")]


def test_one_broken_character_fails_one_row(tmp_path: Path) -> None:
    """A file that is UTF-8 but for one row keeps all others."""
    content = "email,first_name\n" + "".join(f"p{n}@example.org,Ö\n" for n in range(5))
    people, faults = read(tmp_path, content.encode() + b"bad@example.org,\xff\nlast@example.org,x\n")

    assert (len(people), list(faults)) == (6, [7])
    assert "encoding" in faults[7]


def test_bombs_fail_their_own_row(tmp_path: Path) -> None:
    """A huge line, too many columns, a quote that never closes, a NUL: the rows around them are read."""
    good = b"a%d@example.org,x\n"
    content = b"email,first_name\n" + good % 1
    content += b"x" * 70_000_000 + b"\n" + good % 2 + b"," * 100_000 + b"\n"
    content += b",".join([b"y"] * 300) + b"\n" + good % 3
    content += b'open@example.org,"never closed\n' + good % 4
    content += b"nul@example.org,\0\n" + good % 5
    content += b'mid@example.org,a"b\n' + b'"two@example.org","a\nb""c"\n' + good % 6
    tracemalloc.start()
    people, faults = read(tmp_path, content)
    peak = tracemalloc.get_traced_memory()[1] - len(content)
    tracemalloc.stop()

    assert [value for value, _ in people] == [f"a{n}@example.org" for n in (1, 2, 3, 4, 5)] + [
        "mid@example.org", "two@example.org", "a6@example.org",
    ]  # fmt: skip
    assert list(faults) == [3, 5, 6, 8, 10]
    assert "too long" in faults[3] and "too long" in faults[5] and "too many columns" in faults[6]
    assert "quotes" in faults[8] and "NUL" in faults[10]
    assert dict(people)["two@example.org"] == 'a b"c'
    assert peak < 30_000_000


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8), min_size=2,
                         max_size=4), max_size=8))  # fmt: skip
@example([["", ""]])
@example([['"', "\n"], ["a,b", '""']])
def test_what_csv_wrote_is_read_as_it_was(rows: list[list[str]]) -> None:
    """Quotes, separators and line ends inside cells survive."""
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    found = list(file_reader.read_csv(iter(text.getvalue().split("\n")), ","))

    assert [row.cells for row in found] == rows
    assert all(row.fault is None for row in found)


@given(st.binary(max_size=400))
@example(b'"')
@example(b'a,"b\n"c",d\n"e')
def test_no_file_is_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes are a table, or no table: never an exception of another kind."""
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
def test_the_quick_look_at_an_address_is_the_thorough_one(local: str, domain: str) -> None:
    """An address of a file is read exactly as one of the API."""
    text = f"{local}@{domain}"
    try:
        expected = addresses.parse_email(text)
    except ValueError:
        expected = None
    try:
        found = AddressReader().email(text)
    except InvalidRecord:
        found = None

    assert found == expected


def test_limits_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond the most are left out, and one line says so."""
    monkeypatch.setattr(file_reader, "MAX_ROWS", 3)
    people, faults = read(tmp_path, b"email\n" + b"".join(b"p%d@example.org\n" % n for n in range(9)))

    assert (len(people), list(faults)) == (3, [5])


def test_a_file_without_names_of_columns(tmp_path: Path) -> None:
    """A column with addresses in it is found by them."""
    assert read(tmp_path, b"ann@example.org\nbo@example.org\n")[0] == [("ann@example.org", ""), ("bo@example.org", "")]


def test_columns_are_guessed() -> None:
    """Names in other words and languages find their field; what the service knows itself is left out."""
    names = ["E-Mail", "Vorname", "Last Name", "Mobile", "Favourite colour", "data.x", "id", "Email 2", "created_at"]

    assert columns.guess_targets(names) == [
        "email", "first_name", "last_name", "phone", "data.favourite_colour", "data.x", "", "data.email_2", "",
    ]  # fmt: skip
    # Of two that mean the same the first wins; several phones are all read
    assert columns.guess_targets(["email", "E-Mail", "Vorname", "first name", "phone", "mobile"]) == [
        "email", "data.e_mail", "first_name", "data.first_name", "phone", "phone",
    ]  # fmt: skip


def test_lines_are_bounded(tmp_path: Path) -> None:
    """A line longer than a row may be is known by its beginning only."""
    path = tmp_path / "f"
    path.write_bytes(b"a\n" + b"b" * 1_000_000 + b"\nc")
    found = list(file_reader.read_lines(path, "utf-8", 0))

    assert (found[0], len(found[1]), found[2]) == ("a", 200, "c")
    assert isinstance(found[1], file_reader.OverlongLine)


@pytest.mark.parametrize("begin", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0"])
def test_a_workbook_is_told_from_a_table(tmp_path: Path, begin: bytes) -> None:
    """A file of Excel itself says what it is, instead of bringing columns of nonsense."""
    path = tmp_path / "people.xlsx"
    path.write_bytes(begin + bytes(200) + b"\nemail\nann@example.org\n")
    with pytest.raises(file_reader.UnreadableFile, match="save it as CSV"):
        file_reader.preview_file(path)
