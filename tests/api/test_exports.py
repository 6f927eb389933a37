"""Exports over the API: complete, safe in spreadsheets, filtered like lists (docs/decisions.md#5 and #16)."""

import csv
import io
import json
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.uploads import upload, wait_for_import

FORMULAS = ['=HYPERLINK("http://x","y")', "@SUM(1)", "-2+3", "+1+1", "＝1", "＋1", "－1", "＠x", "'=1", "''@x"]


def csv_rows(answer: Response) -> list[dict[str, str]]:
    """Return the rows of a CSV response as dicts."""
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text.removeprefix("\ufeff"), newline="")))


def json_lines(answer: Response) -> list[Any]:
    """Return the values of a JSON Lines response."""
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/jsonl"
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture(scope="module")
def exported(api: Client) -> Any:
    """Return a list with two contacts: one with all fields, one with almost none."""
    list_id = api.post("/lists", {"name": 'News, "weekly"'}).expect(201)["id"]
    full = api.post("/contacts", {
        "email": "full@example.org", "phone": "+14155550123", "first_name": "Zoë", "last_name": 'O"Neil, Jr.',
        "source": "Fair", "country_code": "us", "language": "pt_br", "tracking": "aggregate", "list_ids": [list_id],
        "channels_attributes": [{"value": "second@example.org", "subscribed": False}],
        "data": {"tags": ["VIP", "a,b"], "city": "Köln", "visits": 12, "ratio": 0.5, "member": True, "zip": "01067",
                 "code": "123", "nested": {"a": [1]}, "note": "two\nlines", "nothing": None, "empty": ""},
    }).expect(201)  # fmt: skip
    bare = api.post("/contacts", {"first_name": "Nobody", "list_ids": [list_id]}).expect(201)
    return {"list": list_id, "full": full, "bare": bare}


def test_export_contacts_as_csv(api: Client, exported: Any) -> None:
    """Every field has a column, newest contact first; data that can be read back unchanged has its own columns."""
    response = api.get("/exports/contacts.csv", list_id=exported["list"])
    assert response.headers["Content-Disposition"] == 'attachment; filename="contacts.csv"'
    bare, full = csv_rows(response)

    assert (bare["first_name"], bare["email"], bare["subscribed_email"], bare["channels"]) == ("Nobody", "", "", "")
    assert (full["email"], full["phone"], full["last_name"]) == ("full@example.org", "+14155550123", 'O"Neil, Jr.')
    assert (full["country_code"], full["tracking"], full["source"]) == ("US", "aggregate", "Fair")
    assert (full["language"], bare["language"]) == ("pt-BR", "")
    assert (json.loads(full["tags"]), json.loads(full["lists"])) == (["VIP", "a,b"], ['News, "weekly"'])
    assert (full["data.city"], full["data.visits"], full["data.ratio"], full["data.member"]) == (
        "Köln", "12", "0.5", "true",
    )  # fmt: skip
    assert (full["data.zip"], full["data.note"]) == ("01067", "two\nlines")
    assert json.loads(full["data"]) == {"code": "123", "nested": {"a": [1]}, "nothing": None, "empty": ""}
    assert (full["subscribed_email"], full["opted_out_by"], full["verified"]) == ("true", "", "false")
    assert full["opt_in_at"] == exported["full"]["channels"][0]["opt_in_at"]
    assert (full["created_at"], full["uuid"]) == (exported["full"]["created_at"], exported["full"]["uuid"])
    assert [row["value"] for row in json.loads(full["channels"])] == [
        "full@example.org", "+14155550123", "second@example.org",
    ]  # fmt: skip


def test_export_contacts_as_json_lines(api: Client, exported: Any) -> None:
    """Each line is a contact with all fields."""
    bare, full = json_lines(api.get("/exports/contacts.jsonl", list_id=exported["list"]))
    assert full["data"] == exported["full"]["data"]
    assert full["lists"] == ['News, "weekly"'] and len(full["channels"]) == 3
    assert bare["email"] is None and bare["channels"] == []


def test_exports_include_consent(api: Client) -> None:
    """An export has opt-outs, who made them, and the suppression of the address."""
    contact = api.post("/contacts", {"email": "told@example.org", "source": "told"}).expect(201)
    api.patch(f"/contacts/{contact['id']}", {"subscribed_email": False}).expect(200)
    api.post("/contacts", {"email": "told2@example.org", "source": "told"}).expect(201)
    api.post("/suppressions", {"address": "told2@example.org", "reason": "complaint"}).expect(201)
    second, first = csv_rows(api.get("/exports/contacts.csv", source="told"))
    assert (first["subscribed_email"], first["opted_out_by"], first["status"]) == ("false", "operator", "")
    assert first["opt_out_at"] > first["opt_in_at"] or first["opt_in_at"]
    assert (second["status"], second["suppression_reason"], second["opted_out_by"]) == (
        "complaint", "complaint", "recipient",
    )  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_no_csv_cell_is_a_formula(text: str, api: Client) -> None:
    """A cell that a spreadsheet would run starts with a quote, except phone numbers (T05)."""
    source = f"f{FORMULAS.index(text)}"
    api.post("/contacts", {"phone": f"+1415555020{FORMULAS.index(text)}", "first_name": text, "source": source,
                           "data": {"tags": [text], "x": text, "y": f"\t{text}"}}).expect(201)  # fmt: skip
    (row,) = csv_rows(api.get("/exports/contacts.csv", source=source))
    assert row["first_name"] == row["data.x"] == "'" + text
    assert row["phone"].startswith("+1415")
    cells = [cell for name, cell in row.items() if name != "phone"]
    assert not [cell for cell in cells if cell[:1] in tuple("=+-@\t\r＝＋－＠")]
    assert json.loads(row["data"]) == {"y": f"\t{text}"}


def test_every_csv_cell_is_quoted(api: Client, exported: Any) -> None:
    """Every cell is in double quotes."""
    text = api.get("/exports/contacts.csv", list_id=exported["list"]).text
    assert text.startswith('"id","uuid","email"') and text.endswith('"\r\n') and ",," not in text.replace('",,"', "")


def test_the_byte_order_mark_is_optional(api: Client, exported: Any) -> None:
    """`bom=true` puts a UTF-8 byte order mark before the first line."""
    with_mark = api.get("/exports/contacts.csv", list_id=exported["list"], bom="true").body
    without = api.get("/exports/contacts.csv", list_id=exported["list"]).body
    assert with_mark == b"\xef\xbb\xbf" + without and not without.startswith(b"\xef")


def test_exports_take_the_filters_of_the_lists(api: Client, exported: Any) -> None:
    """An export applies the filters of its list, and rejects invalid ones with a 422."""
    full = exported["full"]["id"]
    for query in ({"search": "zoë"}, {"tag": "vip"}, {"source": "fair"}, {"subscribed_phone": "true", "q": "neil"}):
        assert [row["id"] for row in json_lines(api.get("/exports/contacts.jsonl", **query))] == [full], query
        assert [row["id"] for row in csv_rows(api.get("/exports/contacts.csv", **query))] == [str(full)], query
    assert json_lines(api.get("/exports/contacts.jsonl", created_after="2100-01-01")) == []
    assert csv_rows(api.get("/exports/contacts.csv", created_after="2100-01-01")) == []
    for wrong in ({"list_id": 424242}, {"created_after": "x"}, {"nonsense": "1"}, {"page": "2"}):
        for path in ("/exports/contacts.csv", "/exports/contacts.jsonl"):
            assert api.get(path, **wrong).status == 422, (path, wrong)
            assert api.get(path, bom="true", **wrong).status == 422, (path, wrong)
    assert api.get("/exports/events.csv", created_after="x").status == 422
    assert api.get("/exports/messages.csv", status="nonsense").status == 422


@pytest.mark.full
def test_exports_of_many_rows(api: Client) -> None:
    """A long export has each row once, newest first, for every filter."""
    list_id = api.post("/lists", {"name": "Many"}).expect(201)["id"]
    for number in range(950):
        body = {"email": f"many{number}@example.org", "source": "many", "list_ids": [list_id], "opt_in": False}
        api.send("POST", "/contacts", body)
    for query in ({"source": "many"}, {"list_id": list_id}, {"search": "many"}):
        results = [row["email"] for row in json_lines(api.get("/exports/contacts.jsonl", **query))]
        assert results == [f"many{number}@example.org" for number in reversed(range(950))], query
    events = json_lines(api.get("/exports/events.jsonl", event="list_add"))
    assert len({row["id"] for row in events}) == len(events) >= 950
    order = [(row["created_at"], row["id"]) for row in events]
    assert order == sorted(order, reverse=True)


def test_export_events_and_messages(api: Client) -> None:
    """Exported events and messages have the fields and values of the API."""
    contact = api.post("/contacts", {"email": "log@example.org"}).expect(201)
    api.post(
        "/events", {"event": "order_paid", "contact_id": contact["id"], "amount": 12.5, "data": {"a": "=1"}}
    ).expect(201)
    sent = api.post("/messages", {"to": "log@example.org", "subject": "=1+1", "body": "<p>x</p>"}).expect(201)
    api.wait(f"/messages/{sent['id']}", lambda row: row["status"] == "sent")

    event = api.get("/events", event="order_paid", contact_id=contact["id"]).json[0]
    assert json_lines(api.get("/exports/events.jsonl", event="order_paid", contact_id=contact["id"])) == [event]
    (row,) = csv_rows(api.get("/exports/events.csv", event="order_paid", contact_id=contact["id"]))
    assert (row["amount"], row["data"], row["test"], row["ip"]) == ("12.5", '{"a":"=1"}', "false", "")
    assert (row["created_at"], list(row)) == (event["created_at"], list(event))

    message = api.get(f"/messages/{sent['id']}").json
    (line,) = json_lines(api.get("/exports/messages.jsonl", contact_id=contact["id"]))
    assert {name: line[name] for name in ("to", "from", "status", "sent_at", "transactional", "test")} == {
        name: message[name] for name in ("to", "from", "status", "sent_at", "transactional", "test")
    }
    (row,) = csv_rows(api.get("/exports/messages.csv", to="LOG@example.org"))
    assert (row["subject"], row["to"], row["status"]) == ("'=1+1", "log@example.org", "sent")


def test_exports_respect_accounts_and_scopes(fresh_server: FreshServer) -> None:
    """An export has no data of another account, and needs the scope (T09)."""
    server = fresh_server()
    server.client().post("/contacts", {"email": "mine@example.org"}).expect(201)
    account = server.cli("account", "add", "Other").stdout.strip()
    other = server.client(server.new_key("other", "--account", account))
    assert len(json_lines(server.client().get("/exports/contacts.jsonl"))) == 1
    assert len(json_lines(server.client().get("/exports/contacts.jsonl", search="mine"))) == 1
    for name in ("contacts", "events", "messages"):
        assert json_lines(other.get(f"/exports/{name}.jsonl")) == []
        assert csv_rows(other.get(f"/exports/{name}.csv")) == []
    assert json_lines(other.get("/exports/contacts.jsonl", search="mine")) == []
    narrow = server.client(server.new_key("narrow", "--scope", "templates:read"))
    for name in ("contacts", "events", "messages"):
        assert narrow.get(f"/exports/{name}.csv").status == 403


PEOPLE: list[dict[str, Any]] = [
    {"email": "Round@example.org", "first_name": "=1", "last_name": "'@x", "source": "-", "country_code": "de",
     "data": {"tags": ["=a", "b,c;d", "\"q\""], "a b": "x", "n": -5, "text": "-5", "f": 1.5, "t": True, "s": "true",
              "o": {"a": [1, None]}, "e": "", "z": "01067", "x=y": "＝1", "w": " padded ", "null": None, "d.e": "dot"}},
    {"phone": "+14155550199", "first_name": "Only phone", "tracking": "none", "language": "zh-Hant-TW"},
    {"email": "both@example.org", "phone": "+14155550198", "opt_in": False, "data": {"n": "text here, a number there"}},
    {"email": "left@example.org", "data": {"tags": ["x"]}},
]  # fmt: skip


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_an_export_can_be_imported_unchanged(name: str, fresh_server: FreshServer) -> None:
    """An export imported into another account keeps names, addresses, typed data, tags and consent (T05)."""
    server = fresh_server()
    client = server.client()
    for person in PEOPLE:
        client.post("/contacts", person).expect(201)
    left = client.get("/contacts", search="left").json[0]["id"]
    client.patch(f"/contacts/{left}", {"subscribed_email": False}).expect(200)
    there = server.client(server.new_key("there", "--account", server.cli("account", "add", "Other").stdout.strip()))

    file = client.get(f"/exports/contacts.{name}").body
    job = wait_for_import(there, upload(there, file, name=f"contacts.{name}"))

    assert (job["created"], job["failed"]) == (4, 0), job
    same = ("email", "phone", "first_name", "last_name", "source", "country_code", "language", "tracking", "data",
            "subscribed_email", "subscribed_phone")  # fmt: skip
    before, after = (
        {
            row["email"] or row["phone"]: {key: row[key] for key in same}
            for row in json_lines(client.get("/exports/contacts.jsonl"))
        }
        for client in (client, there)
    )
    for who, expected in before.items():
        assert after[who] == expected, who
