"""Spreadsheet formulas are imported as text, exported quoted, and imported again unchanged (T05)."""

import csv
import io
import json
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.uploads import import_results, upload, wait_for_import

PAYLOADS = ('=HYPERLINK("http://x","y")', "@SUM(1)", "-2+3", "\t=1", "\r=1", "＝1", "+1+1", "'=1", "＋1", "－1", "＠x")
STARTERS = tuple("=+-@\t\r＝＋－＠")


def create_file(payloads: tuple[str, ...]) -> str:
    """Return a CSV file with each payload as name, value of data and column name."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["email", "phone", "first_name", "note", "=1+1", "tags"])
    for number, payload in enumerate(payloads):
        plain = payload.strip()
        writer.writerow([f"f{number}@example.org", f"+1415555{number:04}", plain, payload, "x", plain])
    return text.getvalue()


def exported_contacts(api: Client) -> list[Any]:
    """Return all contacts as sorted JSON, without fields that each import creates anew."""
    rows = [json.loads(line) for line in api.get("/exports/contacts.jsonl").text.splitlines()]
    return sorted(
        json.dumps({name: row[name] for name in ("email", "phone", "first_name", "data")}, sort_keys=True)
        for row in rows
    )


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_formulas_round_trip_and_start_no_cell(kind: str) -> None:
    """Contacts survive export and import unchanged, and no cell of an export starts a formula."""
    with Server().set_up() as server:
        client = server.client()
        number = server.cli("account", "add", "Elsewhere").stdout.strip()
        there = server.client(server.new_key("there", "--account", number))
        job = wait_for_import(client, upload(client, create_file(PAYLOADS)))
        assert (job["created"], job["failed"]) == (len(PAYLOADS), 0), import_results(client, job["id"])
        names = {row["first_name"] for row in client.all("/contacts")}
        assert {payload.strip() for payload in PAYLOADS} >= names and len(names) >= 9
        again = wait_for_import(there, upload(there, client.get(f"/exports/contacts.{kind}").body, f"contacts.{kind}"))
        assert (again["created"], again["failed"]) == (len(PAYLOADS), 0), import_results(there, again["id"])
        assert exported_contacts(there) == exported_contacts(client)
        for api in (client, there):
            bodies = [api.get(f"/exports/{name}.csv").text for name in ("contacts", "events")]
            bodies += [api.get(f"/imports/{row['id']}/results.csv").text for row in api.all("/imports")]
            for body in bodies:
                for row in csv.DictReader(io.StringIO(body, newline="")):
                    results = [cell for name, cell in row.items() if name != "phone" and cell.startswith(STARTERS)]
                    assert results == [], row
                assert not [cell for cell in next(csv.reader(io.StringIO(body))) if cell.startswith(STARTERS)]
            phones = {row["phone"] for row in csv.DictReader(io.StringIO(bodies[0], newline=""))}
            assert phones == {f"+1415555{number:04}" for number in range(len(PAYLOADS))}


def test_import_results_contain_no_formula(api: Client) -> None:
    """The values of failed rows are quoted in the results file."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["email"], *([payload] for payload in PAYLOADS)])
    job = wait_for_import(api, upload(api, text.getvalue()))
    assert job["failed"] == len(PAYLOADS)
    cells = [cell for row in import_results(api, job["id"]) for cell in row.values()]
    assert [cell for cell in cells if cell.startswith(STARTERS)] == []
