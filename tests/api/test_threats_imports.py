"""Hostile import files: endless lines and columns, unclosed quotes, NULs, other encodings (T21).

test_threats_bodies.py has the rejected upload of 2 GB; `--full` runs the sizes of the threat table.
"""

import gzip
import io
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.fork_server import REAL_CHILDREN
from tests.kit.process_metrics import list_process_tree
from tests.kit.sampling import full_only, sampled
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import import_results, upload, wait_for_import

MAX_MEMORY = 300 * 1024 * 1024


def import_results_of(api: Client, file: str | bytes, name: str = "people.csv") -> list[tuple[str, str]]:
    """Import a file, which must complete, and return (address or line, result) of each line."""
    job = wait_for_import(api, upload(api, file, name), 120)
    assert job["status"] == "complete", job
    return [(row["address"][:40] if row["result"] == "created" else row["line"], row["result"])
            for row in import_results(api, job["id"])]  # fmt: skip


def test_a_very_long_line_fails_alone(api: Client, full: bool) -> None:
    """A line of megabytes fails, and the lines around it are imported."""
    size = 60_000_000 if full else 2_000_000
    for quote in ("", '"'):
        name = f"long{len(quote)}"
        long = f"{name}.b@example.org,{quote}{'y' * size}{quote}"
        assert import_results_of(api, f"email,x\n{name}.a@example.org,1\n{long}\n{name}.c@example.org,3\n") == [
            (f"{name}.a@example.org", "created"), ("3", "failed"), (f"{name}.c@example.org", "created"),
        ]  # fmt: skip


def test_a_very_long_header_is_rejected(api: Client) -> None:
    """A first line without end is an error of the file, at once."""
    for file in ("x" * 6_000_000, "email," * 100_000, '"' + "email," * 20_000):
        started_at = time.monotonic()
        error = upload(api, file).expect(422)
        assert list(error["validation_errors"]) == ["file"] and time.monotonic() - started_at < extend_timeout(2)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_too_many_columns(separator: str, api: Client) -> None:
    """A header with too many columns is rejected, and a row with too many columns fails."""
    name = f"wide{ord(separator)}"
    head = separator.join(["email", *(f"c{number}" for number in range(100_000))])
    assert set(upload(api, f"{head}\n{name}@example.org\n").expect(422)["validation_errors"]) == {"file"}
    row = f"{name}.b@example.org" + separator * 60_000
    file = f"email{separator}n\n{name}.a@example.org{separator}1\n{row}\n{name}.c@example.org{separator}2\n"
    assert import_results_of(api, file) == [
        (f"{name}.a@example.org", "created"), ("3", "failed"), (f"{name}.c@example.org", "created"),
    ]  # fmt: skip


def test_an_unclosed_quote(api: Client) -> None:
    """Rows before it are imported, and those it may belong to fail."""
    rows = "".join(f"quote{number}@example.org,n{number}\n" for number in range(3000))
    results = import_results_of(api, f'email,x\n{rows}quote.bad@example.org,"never closed\nafter@example.org,1\n')
    assert results[:3000] == [(f"quote{number}@example.org", "created") for number in range(3000)]
    assert results[3000][0] == "3002" and {result for _, result in results[3000:]} <= {"failed", "created"}
    assert results[3000][1] == "failed"


def test_rows_with_a_nul_fail(api: Client) -> None:
    """A NUL in an address or value fails the row."""
    file = b"email,x\nnul\x00.a@example.org,1\nnul.b@example.org,a\x00b\nnul.c@example.org,3\n"
    assert import_results_of(api, file) == [("2", "failed"), ("3", "failed"), ("nul.c@example.org", "created")]
    assert b"\x00" not in api.get("/exports/contacts.csv").body


@pytest.mark.parametrize(
    "file",
    [
        full_only(b"email,n\n" + b'"\n' * 400_000),
        full_only(b"email\r" + b"a\r" * 150_000),
        b"email,n\n" + b",\n" * 150_000,
    ],
    ids=["quotes", "carriage returns", "empty cells"],
)
def test_a_file_without_a_row_that_can_be_read_fails_after_100000_rows(file: bytes, api: Client) -> None:
    """Neither empty nor invalid rows are read without end, and the import says what is wrong with the file."""
    job = wait_for_import(api, upload(api, file), 120)
    assert job["status"] == "failed", job
    assert job["error"].startswith("this file has no rows that can be read: its first 100,000 rows"), job


@pytest.mark.parametrize("line_end", sampled([b"\n", b"\r\n", b"\r"], [b"\r\n"]))
def test_millions_of_blank_lines_are_skipped(line_end: bytes, api: Client, server: Server, full: bool) -> None:
    """They take little processor time, and the rows below them keep their line numbers."""
    name = f"blank{len(line_end)}{line_end[0]}"
    first, last = (f"{name}{number}@example.org".encode() for number in (1, 2))
    blank = (40_000_000 if full else 8_000_000) // len(line_end)
    file = b"email" + line_end + first + line_end * blank + last + line_end + b"invalid" + line_end
    begun = time.monotonic()
    assert import_results_of(api, file) == [
        (first.decode(), "created"),
        (last.decode(), "created"),
        (str(blank + 3), "failed"),
    ]
    assert time.monotonic() - begun < extend_timeout(2)


@pytest.mark.full
def test_the_import_of_another_account_is_done_while_a_large_file_is_read(fresh_server: FreshServer) -> None:
    """One row of one account does not wait for a file of another that takes minutes, nor for the file after it."""
    server = fresh_server()
    api = server.client()
    other = server.client(server.new_key("other", "--account", server.cli("account", "add", "Other").stdout.strip()))
    rows = "email,first_name\n" + "".join(f"large{number}@example.org,N{number}\n" for number in range(300_000))
    large = [upload(api, rows).expect(201)["id"] for _ in range(2)]
    api.wait(f"/imports/{large[0]}", lambda row: row["phase"] == "staging", 30)
    assert wait_for_import(other, upload(other, "email\nsmall@example.org\n"), extend_timeout(2))["created"] == 1
    assert api.get(f"/imports/{large[0]}").json["phase"] == "staging"
    api.wait(f"/imports/{large[0]}", lambda row: row["processed"] > 0, 120)
    assert wait_for_import(other, upload(other, "email\nsmall2@example.org\n"), extend_timeout(2))["created"] == 1
    assert [api.get(f"/imports/{job}").json["status"] for job in large] == ["processing", "pending"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "cp1252"])
def test_encodings_of_import_files(encoding: str, api: Client) -> None:
    """UTF-16 with and without byte order mark, UTF-8 and cp1252 are recognized."""
    address = f"{encoding}@example.org"
    assert import_results_of(api, f"email,first_name\n{address},Zoë Öst\n".encode(encoding)) == [(address, "created")]
    (contact,) = [row for row in api.all("/contacts", search=address) if row["channels"][0]["value"] == address]
    assert contact["first_name"] == "Zoë Öst"


@pytest.mark.parametrize(
    "line",
    ['{"email": ' + "[" * 60_000, '{"email": "x@example.org", "n": 1' + "0" * 6000 + "}", '{"email": NaN}',
     '{"email": "x@example.org", "a": ' + '{"a":' * 100 + "1" + "}" * 101, '["x@example.org"]',
     '{"email": "x\\ud800@example.org"}', '{"email": "x@example.org", "t": "\\u0000"}',
     '{"email": "x@example.org", "n": 1e400}', "{" + ",".join(f'"c{n}": 1' for n in range(5000)) + "}"],
    ids=["deep", "huge number", "NaN", "deep data", "list", "surrogate", "NUL", "infinite", "wide"],
)  # fmt: skip
def test_hostile_json_lines(line: str, api: Client) -> None:
    """Each hostile line fails alone with its reason, or loses its invalid data."""
    file = f'{{"email": "j.before@example.org"}}\n{line}\n{{"email": "j.after@example.org"}}\n'
    job = wait_for_import(api, upload(api, file, "people.jsonl"))
    lines = import_results(api, job["id"])
    assert job["status"] == "complete" and [row["line"] for row in lines] == ["1", "2", "3"]
    rejections = [row["result"] == "failed" or row["warnings"].startswith("data: ") for row in lines]
    assert rejections == [False, True, False], lines
    assert lines[1]["reason"] or lines[1]["warnings"]


def test_a_cell_of_brackets_is_text(api: Client) -> None:
    """A cell of tags or lists that begins like a JSON list of any depth costs neither its row nor its file."""
    rows = [f'deep{number}@example.org,"{text}"' for number, text in enumerate(("[" * 60_000, "[1," * 20_000))]
    for column in ("tags", "lists"):
        file = f"email,{column}\n{rows[0]}\n{rows[1]}\n{column}@example.org,vip\n"
        job = wait_for_import(api, upload(api, file))
        assert job["status"] == "complete" and (job["failed"], job["total"]) == (0, 3), job


def test_files_that_are_not_text_say_what_to_do(api: Client) -> None:
    """A ZIP archive is no workbook, and the error of a compressed file does not speak of its characters."""
    rows, archives = b"email\na@example.org\n", {}
    for name in ("people.csv", "[Content_Types].xml"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, rows)
        archives[name] = file.getvalue()
    no_text = "this is not a text file: upload a CSV or JSON Lines file"
    for content, words in (
        (archives["people.csv"], "the file is a ZIP archive: extract it, and upload the CSV file in it"),
        (archives["[Content_Types].xml"], "the file is a workbook of a spreadsheet: save it as CSV first"),
        (gzip.compress(rows), no_text), (b"7z\xbc\xaf\x27\x1c" + bytes(50), no_text),
        (rows.decode().encode("utf-32"), no_text),
    ):  # fmt: skip
        response = upload(api, content)
        assert response.status == 422 and response.json["validation_errors"]["file"] == [words], response.text


def memory_of_process_tree(pid: int) -> int:
    """Return the anonymous memory of a process and its children in bytes."""
    total = 0
    for process_id in list_process_tree(pid):
        try:
            lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines)
        total += int(fields.get("RssAnon", "0 kB").split()[0]) * 1024
    return total


@contextmanager
def record_memory(server: Server) -> Iterator[list[int]]:
    """Record the memory of a server until the context ends; yields the list of measurements."""
    seen, over = [0], threading.Event()
    assert server.process is not None
    pid = server.process.pid

    def look() -> None:
        while not over.wait(0.05):
            seen.append(memory_of_process_tree(pid))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def all_contacts(api: Client) -> list[tuple[Any, ...]]:
    """Return the data of all contacts, sorted."""
    import json

    rows = [json.loads(line) for line in api.get("/exports/contacts.jsonl").text.splitlines()]
    return sorted((row["email"].lower(), row["first_name"], row["subscribed_email"], str(row["data"])) for row in rows)


@pytest.mark.full
def test_a_killed_large_import_has_the_same_result(fresh_server: FreshServer, full: bool) -> None:
    """A large import needs less than 300 MB, and killed half way ends like an undisturbed one."""
    number = 500_000 if full else 12_000
    file = "email,first_name,n\n" + "".join(
        f"m{index}@example.org,N{index},{index}\n"
        if index % 7
        else f"\u00a0M{index // 2}@EXAMPLE.org\u00a0,N{index},{index}\n"
        for index in range(number)
    )
    quiet, rough = fresh_server(env=REAL_CHILDREN), fresh_server()
    with record_memory(quiet) as seen:
        clean = wait_for_import(quiet.client(), upload(quiet.client(), file), 600)
    assert clean["total"] == number and clean["failed"] == 0
    assert max(seen) < MAX_MEMORY, max(seen)
    api = rough.client()
    job = upload(api, file).expect(201)["id"]
    half = clean["total"] // 2
    while (now := api.get(f"/imports/{job}").json)["processed"] < half and now["status"] != "complete":
        time.sleep(0.005)
    rough.kill()
    rough.start()
    end = api.wait(f"/imports/{job}", lambda row: row["status"] not in ("pending", "processing"), 600)
    assert {name: end[name] for name in ("total", "created", "updated", "failed")} == {
        name: clean[name] for name in ("total", "created", "updated", "failed")
    }
    assert all_contacts(api) == all_contacts(quiet.client())
