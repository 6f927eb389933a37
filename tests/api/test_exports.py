"""Exports over the API: whole, safe in a spreadsheet, with the filters of the lists (docs/decisions.md#5 and #16)."""

import csv
import io
import json
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.uploads import upload, wait_for_import

FORMULAS = ['=HYPERLINK("http://x","y")', "@SUM(1)", "-2+3", "+1+1", "＝1", "＋1", "－1", "＠x", "'=1", "''@x"]


def table(answer: Response) -> list[dict[str, str]]:
    """Return the rows of a CSV answer by the names of their columns."""
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text.removeprefix("\ufeff"), newline="")))


def lines(answer: Response) -> list[Any]:
    """Return the values of a JSON lines answer."""
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/jsonl"
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture(scope="module")
def people(api: Client) -> Any:
    """A list with two people in it: one with everything, one with almost nothing."""
    group = api.post("/lists", {"name": 'News, "weekly"'}).expect(201)["id"]
    full = api.post("/contacts", {
        "email": "full@example.org", "phone": "+14155550123", "first_name": "Zoë", "last_name": 'O"Neil, Jr.',
        "source": "Fair", "country_code": "us", "tracking": "aggregate", "list_ids": [group],
        "channels_attributes": [{"value": "second@example.org", "subscribed": False}],
        "data": {"tags": ["VIP", "a,b"], "city": "Köln", "visits": 12, "ratio": 0.5, "member": True, "zip": "01067",
                 "code": "123", "nested": {"a": [1]}, "note": "two\nlines", "nothing": None, "empty": ""},
    }).expect(201)  # fmt: skip
    bare = api.post("/contacts", {"first_name": "Nobody", "list_ids": [group]}).expect(201)
    return {"list": group, "full": full, "bare": bare}


def test_contacts_as_csv(api: Client, people: Any) -> None:
    """Every field has its column, newest first; what reads back the same has a column of its own in `data`."""
    answer = api.get("/exports/contacts.csv", list_id=people["list"])
    assert answer.headers["Content-Disposition"] == 'attachment; filename="contacts.csv"'
    bare, full = table(answer)

    assert (bare["first_name"], bare["email"], bare["subscribed_email"], bare["channels"]) == ("Nobody", "", "", "")
    assert (full["email"], full["phone"], full["last_name"]) == ("full@example.org", "+14155550123", 'O"Neil, Jr.')
    assert (full["country_code"], full["tracking"], full["source"]) == ("US", "aggregate", "Fair")
    assert (json.loads(full["tags"]), json.loads(full["lists"])) == (["VIP", "a,b"], ['News, "weekly"'])
    assert (full["data.city"], full["data.visits"], full["data.ratio"], full["data.member"]) == (
        "Köln", "12", "0.5", "true",
    )  # fmt: skip
    assert (full["data.zip"], full["data.note"]) == ("01067", "two\nlines")
    assert json.loads(full["data"]) == {"code": "123", "nested": {"a": [1]}, "nothing": None, "empty": ""}
    assert (full["subscribed_email"], full["opted_out_by"], full["verified"]) == ("true", "", "false")
    assert full["opt_in_at"] == people["full"]["channels"][0]["opt_in_at"]
    assert (full["created_at"], full["uuid"]) == (people["full"]["created_at"], people["full"]["uuid"])
    assert [row["value"] for row in json.loads(full["channels"])] == [
        "full@example.org", "+14155550123", "second@example.org",
    ]  # fmt: skip


def test_contacts_as_json_lines(api: Client, people: Any) -> None:
    """Each line is a person with everything."""
    bare, full = lines(api.get("/exports/contacts.jsonl", list_id=people["list"]))
    assert full["data"] == people["full"]["data"]
    assert full["lists"] == ['News, "weekly"'] and len(full["channels"]) == 3
    assert bare["email"] is None and bare["channels"] == []


def test_consent_is_told(api: Client) -> None:
    """Who opted out, by whose act, and what suppresses an address is in the file."""
    made = api.post("/contacts", {"email": "told@example.org", "source": "told"}).expect(201)
    api.patch(f"/contacts/{made['id']}", {"subscribed_email": False}).expect(200)
    api.post("/contacts", {"email": "told2@example.org", "source": "told"}).expect(201)
    api.post("/suppressions", {"address": "told2@example.org", "reason": "complaint"}).expect(201)
    second, first = table(api.get("/exports/contacts.csv", source="told"))
    assert (first["subscribed_email"], first["opted_out_by"], first["status"]) == ("false", "operator", "")
    assert first["opt_out_at"] > first["opt_in_at"] or first["opt_in_at"]
    assert (second["status"], second["suppression_reason"], second["opted_out_by"]) == (
        "complaint", "complaint", "recipient",
    )  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_nothing_in_a_cell_is_a_formula(text: str, api: Client) -> None:
    """What a spreadsheet would run stands behind a quote, everywhere; phones are left as they are (T05)."""
    source = f"f{FORMULAS.index(text)}"
    api.post("/contacts", {"phone": f"+1415555020{FORMULAS.index(text)}", "first_name": text, "source": source,
                           "data": {"tags": [text], "x": text, "y": f"\t{text}"}}).expect(201)  # fmt: skip
    (row,) = table(api.get("/exports/contacts.csv", source=source))
    assert row["first_name"] == row["data.x"] == "'" + text
    assert row["phone"].startswith("+1415")
    cells = [cell for name, cell in row.items() if name != "phone"]
    assert not [cell for cell in cells if cell[:1] in tuple("=+-@\t\r＝＋－＠")]
    assert json.loads(row["data"]) == {"y": f"\t{text}"}


def test_every_cell_is_quoted(api: Client, people: Any) -> None:
    """Quotes around every cell, so that no reader guesses."""
    text = api.get("/exports/contacts.csv", list_id=people["list"]).text
    assert text.startswith('"id","uuid","email"') and text.endswith('"\r\n') and ",," not in text.replace('",,"', "")


def test_the_mark_of_utf8_only_if_asked(api: Client, people: Any) -> None:
    """`bom=true` puts the mark that spreadsheets look for before the first line."""
    with_mark = api.get("/exports/contacts.csv", list_id=people["list"], bom="true").body
    without = api.get("/exports/contacts.csv", list_id=people["list"]).body
    assert with_mark == b"\xef\xbb\xbf" + without and not without.startswith(b"\xef")


def test_the_filters_of_the_lists(api: Client, people: Any) -> None:
    """An export takes the filters of its list and refuses what the list refuses, before anything is streamed."""
    full = people["full"]["id"]
    for query in ({"search": "zoë"}, {"tag": "vip"}, {"source": "fair"}, {"subscribed_phone": "true", "q": "neil"}):
        assert [row["id"] for row in lines(api.get("/exports/contacts.jsonl", **query))] == [full], query
        assert [row["id"] for row in table(api.get("/exports/contacts.csv", **query))] == [str(full)], query
    assert lines(api.get("/exports/contacts.jsonl", created_after="2100-01-01")) == []
    assert table(api.get("/exports/contacts.csv", created_after="2100-01-01")) == []
    for wrong in ({"list_id": 424242}, {"created_after": "x"}, {"nonsense": "1"}, {"page": "2"}):
        for path in ("/exports/contacts.csv", "/exports/contacts.jsonl"):
            assert api.get(path, **wrong).status == 422, (path, wrong)
            assert api.get(path, bom="true", **wrong).status == 422, (path, wrong)
    assert api.get("/exports/events.csv", created_after="x").status == 422
    assert api.get("/exports/messages.csv", status="nonsense").status == 422


def test_more_than_a_page(api: Client) -> None:
    """Longer files come in pieces, each person once, newest first, by every way through the table."""
    group = api.post("/lists", {"name": "Many"}).expect(201)["id"]
    for number in range(950):
        body = {"email": f"many{number}@example.org", "source": "many", "list_ids": [group], "opt_in": False}
        api.send("POST", "/contacts", body)
    for query in ({"source": "many"}, {"list_id": group}, {"search": "many"}):
        found = [row["email"] for row in lines(api.get("/exports/contacts.jsonl", **query))]
        assert found == [f"many{number}@example.org" for number in reversed(range(950))], query
    events = lines(api.get("/exports/events.jsonl", event="list_add"))
    assert len({row["id"] for row in events}) == len(events) >= 950
    order = [(row["created_at"], row["id"]) for row in events]
    assert order == sorted(order, reverse=True)


def test_events_and_messages(api: Client) -> None:
    """Events and messages have the fields and values of the interface."""
    made = api.post("/contacts", {"email": "log@example.org"}).expect(201)
    api.post("/events", {"event": "order_paid", "contact_id": made["id"], "amount": 12.5, "data": {"a": "=1"}}).expect(
        201
    )
    sent = api.post("/messages", {"to": "log@example.org", "subject": "=1+1", "body": "<p>x</p>"}).expect(201)
    api.wait(f"/messages/{sent['id']}", lambda row: row["status"] == "sent")

    event = api.get("/events", event="order_paid", contact_id=made["id"]).json[0]
    assert lines(api.get("/exports/events.jsonl", event="order_paid", contact_id=made["id"])) == [event]
    (row,) = table(api.get("/exports/events.csv", event="order_paid", contact_id=made["id"]))
    assert (row["amount"], row["data"], row["test"], row["ip"]) == ("12.5", '{"a":"=1"}', "false", "")
    assert (row["created_at"], list(row)) == (event["created_at"], list(event))

    message = api.get(f"/messages/{sent['id']}").json
    (line,) = lines(api.get("/exports/messages.jsonl", contact_id=made["id"]))
    assert {name: line[name] for name in ("to", "from", "status", "sent_at", "transactional", "test")} == {
        name: message[name] for name in ("to", "from", "status", "sent_at", "transactional", "test")
    }
    (row,) = table(api.get("/exports/messages.csv", to="LOG@example.org"))
    assert (row["subject"], row["to"], row["status"]) == ("'=1+1", "log@example.org", "sent")


def test_accounts_and_scopes_are_apart(fresh_server: FreshServer) -> None:
    """Another account's people, events and messages are in no file; a key without the scope gets none (T09)."""
    server = fresh_server()
    server.client().post("/contacts", {"email": "mine@example.org"}).expect(201)
    account = server.cli("account", "add", "Other").stdout.strip()
    other = server.client(server.new_key("other", "--account", account))
    assert len(lines(server.client().get("/exports/contacts.jsonl"))) == 1
    assert len(lines(server.client().get("/exports/contacts.jsonl", search="mine"))) == 1
    for name in ("contacts", "events", "messages"):
        assert lines(other.get(f"/exports/{name}.jsonl")) == []
        assert table(other.get(f"/exports/{name}.csv")) == []
    assert lines(other.get("/exports/contacts.jsonl", search="mine")) == []
    narrow = server.client(server.new_key("narrow", "--scope", "templates:read"))
    for name in ("contacts", "events", "messages"):
        assert narrow.get(f"/exports/{name}.csv").status == 403


PEOPLE: list[dict[str, Any]] = [
    {"email": "Round@example.org", "first_name": "=1", "last_name": "'@x", "source": "-", "country_code": "de",
     "data": {"tags": ["=a", "b,c;d", "\"q\""], "a b": "x", "n": -5, "text": "-5", "f": 1.5, "t": True, "s": "true",
              "o": {"a": [1, None]}, "e": "", "z": "01067", "x=y": "＝1", "w": " padded ", "null": None, "d.e": "dot"}},
    {"phone": "+14155550199", "first_name": "Only phone", "tracking": "none"},
    {"email": "both@example.org", "phone": "+14155550198", "opt_in": False, "data": {"n": "text here, a number there"}},
    {"email": "left@example.org", "data": {"tags": ["x"]}},
]  # fmt: skip


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_an_export_imported_again_loses_nothing(name: str, fresh_server: FreshServer) -> None:
    """What one account exports another imports: the same names, addresses, data with types, tags and consent (T05)."""
    server = fresh_server()
    here = server.client()
    for person in PEOPLE:
        here.post("/contacts", person).expect(201)
    left = here.get("/contacts", search="left").json[0]["id"]
    here.patch(f"/contacts/{left}", {"subscribed_email": False}).expect(200)
    there = server.client(server.new_key("there", "--account", server.cli("account", "add", "Other").stdout.strip()))

    file = here.get(f"/exports/contacts.{name}").body
    job = wait_for_import(there, upload(there, file, name=f"contacts.{name}"))

    assert (job["created"], job["failed"]) == (4, 0), job
    same = ("email", "phone", "first_name", "last_name", "source", "country_code", "tracking", "data",
            "subscribed_email", "subscribed_phone")  # fmt: skip
    before, after = (
        {
            row["email"] or row["phone"]: {key: row[key] for key in same}
            for row in lines(one.get("/exports/contacts.jsonl"))
        }
        for one in (here, there)
    )
    for who, expected in before.items():
        assert after[who] == expected, who
