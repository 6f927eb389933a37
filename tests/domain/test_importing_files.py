"""Reading import files: good rows are read and bad ones reported by line, for any content (T21)."""

import csv
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.core import addresses, crypto
from appliance.imports import columns, file_reader, record_reader
from appliance.imports.cells import InvalidRecord
from appliance.imports.file_reader import StagingTask
from appliance.imports.people import AddressReader, Person
from appliance.imports.results import FileReview, review_file
from appliance.imports.staging import StagingFile


def read_file(
    tmp_path: Path, content: bytes, resource: str = "contacts"
) -> tuple[list[tuple[str, str]], dict[int, str]]:
    """Stage a file; return (value, first name) of its rows in line order, and errors by line."""
    path, side = tmp_path / "upload", tmp_path / "side.db"
    path.write_bytes(content)
    file_reader.stage_file(StagingTask(str(path), str(side), resource, {}), lambda count: None)
    staged = StagingFile(side)
    staged_people = sorted(staged.fetch_people(0, staged.count()), key=lambda person: person.line)
    errors = {row[0]: row[1] for row in staged.fetch_lines(0, 10_000) if row[1] is not None}
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


@pytest.mark.parametrize("start", [b"\xff\xd8\xff\xe0\0\x10JFIF\0", b"\x89PNG\r\n\x1a\n\0\0", b"GIF89a", b"%PDF-1.7\n"])
def test_pictures_are_refused_by_their_kind(tmp_path: Path, start: bytes) -> None:
    """A picture is not a table; the reason says what to upload instead."""
    path = tmp_path / "picture"
    path.write_bytes(start + bytes(range(256)))

    with pytest.raises(file_reader.UnreadableFile, match="not a text file: upload a CSV or JSON Lines file"):
        file_reader.preview_file(path)


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


def test_malformed_rows_fail_alone(tmp_path: Path, full: bool) -> None:
    """A huge line, too many columns, an unclosed quote or a NUL fails its row only, within little memory."""
    good = b"a%d@example.org,x\n"
    content = b"email,first_name\n" + good % 1
    content += b"x" * (70_000_000 if full else 10_000_000) + b"\n" + good % 2 + b"," * 100_000 + b"\n"
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
    assert peak < (30_000_000 if full else 5_000_000)


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8), min_size=2,
                         max_size=4), max_size=8))  # fmt: skip
@example([["", ""]])
@example([['"', "\n"], ["a,b", '""']])
def test_read_csv_reverses_csv_writer(rows: list[list[str]]) -> None:
    """Quotes, separators and line ends in cells are preserved."""
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    parsed = list(record_reader.read_csv(iter(text.getvalue().split("\n")), ","))

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


def test_samples_of_a_file_vary(tmp_path: Path) -> None:
    """The samples of a column have values if it has any, and different ones if there are."""
    lines = ["email;city;phone", *(f"a{number}@example.org;Bath;n/a" for number in range(9))]
    path = tmp_path / "upload"
    path.write_text("\n".join([*lines, "b@example.org;Leeds;", "c@example.org;Bath;+44 20 7946 0018"]))

    samples = file_reader.preview_file(path).samples

    cities, phones = ({row[column] for row in samples} for column in (1, 2))
    assert cities == {"Bath", "Leeds"}
    assert "+44 20 7946 0018" in phones


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


@pytest.mark.parametrize(
    ("headings", "targets"),
    [
        (["email", "Newsletter (Y/N)"], ["email", "subscribed_email"]),
        (["email", "Newsletter ja/nein"], ["email", "subscribed_email"]),
        (["email", "Mobile / Tel"], ["email", "phone"]),
        (["email", "Email (old)", "Phone / Email"], ["email", "data.email_old", "data.phone_email"]),
        (["Email (old)", "email"], ["data.email_old", "email"]),
        (["email", "Size (S/M/L)", "((((", "//"], ["email", "data.size_s_m_l", "", ""]),
    ],
)
def test_guess_targets_of_headings_with_remarks(headings: list[str], targets: list[str]) -> None:
    """A remark in brackets is left out, and alternatives must agree; an exact heading of another column wins."""
    assert columns.guess_targets(headings) == targets


@pytest.mark.parametrize(
    "headings",
    ["E-mail,Nome,Cognome,Telefono", "Endereço de e-mail,Nome,Sobrenome,Telefone",
     "E-mailadres,Voornaam,Achternaam,Telefoon", "Adres e-mail,Imię,Nazwisko,Numer telefonu",
     "メールアドレス,名,姓,電話番号"],
)  # fmt: skip
def test_guess_targets_in_each_language(headings: str) -> None:
    """The usual headings of a customer list are recognised in the languages of the interface."""
    email, first, last, phone = columns.guess_targets(headings.split(","))
    assert (email, last, phone) == ("email", "last_name", "phone") and first in ("first_name", "name")


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
    lines = list(record_reader.read_lines(path, "utf-8", 0))

    assert (lines[0], len(lines[1]), lines[2]) == ("a", 200, "c")
    assert isinstance(lines[1], record_reader.OverlongLine)


@pytest.mark.parametrize("signature", [b"PK\x03\x04[Content_Types].xml", b"\xd0\xcf\x11\xe0"])
def test_an_excel_workbook_is_rejected(tmp_path: Path, signature: bytes) -> None:
    """The error says to save the file as CSV."""
    path = tmp_path / "people.xlsx"
    path.write_bytes(signature + bytes(200) + b"\nemail\nann@example.org\n")
    with pytest.raises(file_reader.UnreadableFile, match="save it as CSV"):
        file_reader.preview_file(path)


def stage(tmp_path: Path, content: bytes) -> tuple[dict[str, Any], list[Person], FileReview]:
    """Stage a file of contacts; return its totals, its people in line order, and its review."""
    path, side = tmp_path / "upload", tmp_path / "side.db"
    path.write_bytes(content)
    totals = file_reader.stage_file(StagingTask(str(path), str(side), "contacts", {}), lambda count: None)
    staged = StagingFile(side)
    people = sorted(staged.fetch_people(0, staged.count()), key=lambda person: person.line)
    staged.close()
    review = review_file(side)
    assert review is not None
    return totals, people, review


def test_utf8_lines_of_a_cp1252_file_are_read_and_reported(tmp_path: Path) -> None:
    """Rows that were pasted from another program are read as they were written, also their amounts and quoted cells."""
    lines = ["email;first_name;total;note"]
    lines += [f"p{number}@mixed.example;Zoé {number};1{number},50 €;déjà vu" for number in range(10)]
    content = b"".join(
        f"{line}\r\n".encode("utf-8" if index in (3, 7) else "cp1252") for index, line in enumerate(lines)
    )
    content += 'q@mixed.example;Noël;12,50 €;"first\nl’été Łódź"\r\n'.encode()
    totals, people, review = stage(tmp_path, content)

    assert [person.first_name for person in people] == [*(f"Zoé {number}" for number in range(10)), "Noël"]
    assert [json.loads(person.data or "")["total"] for person in people[2:7]] == [12.5, 13.5, 14.5, 15.5, 16.5]
    assert json.loads(people[-1].data or "")["note"] == "first\nl’été Łódź"
    assert (totals["columns"]["total"]["numbers"], totals["columns"]["total"]["number_exceptions"]) == (",", 0)
    assert review.other_encoding.number == 4
    assert [line for line, *_ in review.other_encoding.first] == [4, 8, 12, 13]
    assert [text for _, text, _ in review.other_encoding.first] == [
        "Zoé 2 · p2@mixed.example", "Zoé 6 · p6@mixed.example", "Noël · q@mixed.example", "",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["ANDRÉ\xa0", "Zoé", "Größe™", "CAFÉ» é", "É\xa0: ö", "Ä…"])
def test_text_that_is_natural_in_cp1252_is_not_read_as_utf8(tmp_path: Path, name: str) -> None:
    """A capital before a no-break space or a mark may be valid UTF-8 by chance."""
    content = f"email;first_name;note\na@mixed.example;{name};x\nb@mixed.example;é;é\n".encode("cp1252")
    _, people, review = stage(tmp_path, content)

    assert (people[0].first_name, review.other_encoding.number) == (name.strip("\xa0"), 0)


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_line_by_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """A line of a CP1252 file is UTF-8 or CP1252 in whole, whatever the blocks in which it is read."""
    path = tmp_path_factory.mktemp("lines") / "upload"
    path.write_bytes(content.replace(b"\r", b""))
    whole = path.read_bytes().removesuffix(b"\n")
    expected = whole.split(b"\n") if whole or path.stat().st_size else []
    lines = list(record_reader.read_lines(path, "cp1252", 0))

    assert len(lines) == len(expected)
    for text, line in zip(lines, expected, strict=True):
        assert text in (line.decode("cp1252", "replace"), line.decode("utf-8", "replace"))


def test_a_column_of_last_and_first_names_is_a_full_name(tmp_path: Path) -> None:
    """A heading that means the last name is a full name if most values have both and no column has first names."""
    rows = "a@names.example;Girard, Hélène\nb@names.example;O'Brien, Théo\nc@names.example;Müller\n"
    _, people, _ = stage(tmp_path, f"email;Nom\n{rows}".encode())
    names = [(person.first_name, person.last_name) for person in people]
    assert names == [("Hélène", "Girard"), ("Théo", "O'Brien"), ("Müller", None)]

    single = "a@names.example;Girard;Hélène\nb@names.example;Klein, Jr.;Théo\n"
    _, people, _ = stage(tmp_path, f"email;Nom;Prénom\n{single}".encode())
    names = [(person.first_name, person.last_name) for person in people]
    assert names == [("Hélène", "Girard"), ("Théo", "Klein, Jr.")]
    _, people, _ = stage(tmp_path, b"email;Nom\na@names.example;Girard\nb@names.example;Klein, Theo\n")
    assert [person.last_name for person in people] == ["Girard", "Klein, Theo"]


def test_values_that_are_not_numbers_are_named(tmp_path: Path) -> None:
    """Up to three different values because of which a column of amounts stays text."""
    amounts = ["1,50 €"] * 12 + ["gratis", "gratis", "offert", "voir Léa", "sur devis"]
    rows = "".join(f"n{number}@amounts.example;{amount}\n" for number, amount in enumerate(amounts))
    totals, _, _ = stage(tmp_path, f"email;total\n{rows}".encode())

    column = totals["columns"]["total"]
    assert (column["number_exceptions"], column["exception_examples"]) == (5, ["gratis", "offert", "voir Léa"])
