"""Imports over the API: valid rows, errors, consent, other products, undo (docs/decisions.md#9 and #16; T21)."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.uploads import import_results, multipart_form, upload, wait_for_import

SAMPLES = Path(__file__).resolve().parents[1] / "samples"


def get_contact(api: Client, address: str) -> dict[str, Any]:
    """Return the only contact with an address, with its first phone number as `phone`."""
    results = [
        row
        for row in api.all("/contacts", search=address)
        if address in [channel["value"] for channel in row["channels"]]
    ]
    assert len(results) == 1, f"{address}: {len(results)}"
    phones = [channel["value"] for channel in results[0]["channels"] if channel["kind"] == "phone"]
    return results[0] | {"phone": phones[0] if phones else None}


def row_counts(job: dict[str, Any]) -> tuple[int, ...]:
    """Return total, created, updated, skipped, failed."""
    return tuple(job[name] for name in ("total", "created", "updated", "skipped", "failed"))


def test_import_contacts(api: Client) -> None:
    """Columns are recognized, others become data, and each line has a result and a reason."""
    list_id = api.post("/lists", {"name": "Imported"}).expect(201)["id"]
    file = (
        "E-Mail;Vorname;Surname;Phone;City;Orders;tags;id\r\n"
        "one@example.org;Änne;Öst;+1 (415) 555-0101;Bath;3;a,b;17\r\n"
        "not an address;X;;;;;;\r\n"
        "\r\n"
        'two@example.org;"Jo ""J"" \r\nTwo";;;;007;;\r\n'
        "three@example.org;T;;12345;;;;\r\n"
        ";;;;;;;\r\n"
    )
    job = wait_for_import(api, upload(api, file, list_ids=[list_id], consent_source="the counter book"))

    assert (job["status"], row_counts(job), job["warnings"]) == ("complete", (4, 3, 0, 0, 1), 1)
    contact = get_contact(api, "one@example.org")
    assert (contact["first_name"], contact["last_name"], contact["phone"]) == ("Änne", "Öst", "+14155550101")
    assert contact["data"] == {"city": "Bath", "orders": "3", "tags": ["a", "b"]}
    assert (contact["list_ids"], contact["subscribed_email"], contact["subscribed_phone"]) == ([list_id], True, True)
    lines = import_results(api, job["id"])
    assert [(row["line"], row["result"]) for row in lines] == [
        ("2", "created"), ("3", "failed"), ("5", "created"), ("7", "created"),
    ]  # fmt: skip
    assert lines[1]["reason"] == "email is invalid: not an address"
    assert get_contact(api, "two@example.org")["first_name"] == 'Jo "J" Two'
    assert lines[3]["warnings"] == "phone: 12345 (has no country code)"
    assert api.get(f"/lists/{list_id}").json["contacts_count"] == 3
    assert api.get("/contacts/search", q="änne").json[0]["id"] == contact["id"]
    events = {row["event"]: row["data"] for row in api.get("/events", contact_id=contact["id"]).json}
    assert events["contact_add"]["import_id"] == events["list_add"]["import_id"] == job["id"]
    assert "trigger_flows" not in events["contact_add"]


def test_on_conflict_of_an_import(api: Client) -> None:
    """`merge` overwrites with the values of the row, `skip` keeps the contact; an empty cell changes nothing."""
    api.post("/contacts", {"email": "Known@example.org", "first_name": "Kay", "last_name": "Old", "data": {"a": 1}})
    file = "email,first_name,last_name,b\nknown@EXAMPLE.org,,New,x\n"
    skipped = wait_for_import(api, upload(api, file, on_conflict="skip"))
    assert row_counts(skipped) == (1, 0, 0, 1, 0)
    assert get_contact(api, "Known@example.org")["last_name"] == "Old"
    merged = wait_for_import(api, upload(api, file))

    assert row_counts(merged) == (1, 0, 1, 0, 0)
    kay = get_contact(api, "Known@example.org")
    assert (kay["first_name"], kay["last_name"], kay["data"]) == ("Kay", "New", {"a": 1, "b": "x"})
    assert api.get("/contacts/search", q="kay new").json[0]["id"] == kay["id"]


def test_repeated_addresses_in_a_file(api: Client) -> None:
    """Addresses are compared without case and spaces; the later line updates the contact and names the first line."""
    file = "email,first_name,x\ntwin@example.org,First,1\n\u00a0TWIN@example.org\u00a0,Second,\n"
    job = wait_for_import(api, upload(api, file))

    assert row_counts(job) == (2, 1, 1, 0, 0)
    twin = get_contact(api, "twin@example.org")
    assert (twin["first_name"], twin["data"]) == ("Second", {"x": 1})
    assert import_results(api, job["id"])[1]["reason"] == "the same address as line 2"


def test_a_dry_run_writes_nothing(api: Client) -> None:
    """The dry run has the numbers and reasons of the import, and writes no contact."""
    api.post("/contacts", {"email": "dry0@example.org"}).expect(201)
    before = api.get("/contacts").headers["X-Total-Count"]
    job = wait_for_import(api, upload(api, "email\ndry1@example.org\ndry0@example.org\nbad\n", dry_run=True))

    assert (job["dry_run"], row_counts(job)) == (True, (3, 1, 1, 0, 1))
    assert [row["result"] for row in import_results(api, job["id"])] == ["created", "updated", "failed"]
    assert api.get("/contacts").headers["X-Total-Count"] == before
    assert api.post(f"/imports/{job['id']}/undo").status == 422


def test_imports_and_opt_outs(api: Client) -> None:
    """An import subscribes new contacts, lifts opt-outs by an operator, and keeps those by the recipient."""
    list_id = api.post("/lists", {"name": "Rules"}).expect(201)["id"]
    api.post("/contacts", {"email": "operator@example.org"}).expect(201)
    api.post("/contacts", {"email": "operator@example.org", "opt_in": False}).expect(200)
    wait_for_import(api, upload(api, "email,status\nrecipient@example.org,unsubscribed\n"))
    api.post("/suppressions", {"address": "complained@example.org", "reason": "complaint"}).expect(201)
    api.post("/suppressions", {"address": "bounced@example.org", "reason": "hard_bounce"}).expect(201)
    names = ("fresh", "operator", "recipient", "complained", "bounced")
    file = "email\n" + "".join(f"{name}@example.org\n" for name in names)
    quiet = wait_for_import(api, upload(api, file.replace("fresh", "quiet"), opt_in=False))
    assert not any(row["kept_opt_out"] for row in import_results(api, quiet["id"]))
    assert not get_contact(api, "quiet@example.org")["subscribed_email"]
    assert not get_contact(api, "operator@example.org")["subscribed_email"]
    job = wait_for_import(api, upload(api, file, list_ids=[list_id]))

    lines = {row["address"]: row["kept_opt_out"] for row in import_results(api, job["id"])}
    assert lines == {
        "fresh@example.org": "", "operator@example.org": "", "recipient@example.org": "recipient@example.org",
        "complained@example.org": "complained@example.org", "bounced@example.org": "bounced@example.org",
    }  # fmt: skip
    assert get_contact(api, "operator@example.org")["subscribed_email"]
    assert not get_contact(api, "recipient@example.org")["subscribed_email"]
    assert not get_contact(api, "complained@example.org")["sendable_email"]
    assert api.get(f"/lists/{list_id}").json["sendable_count"] == {"email": 2, "sms": 0}


def test_import_suppressions(api: Client) -> None:
    """Addresses are suppressed with their reason, by default `manual`."""
    api.post("/contacts", {"email": "sup1@example.org"}).expect(201)
    file = (
        "address,reason,note\nSUP1@example.org,bounced,came back\n+14155550199,,\nx,manual,\nsup2@example.org,weird,\n"
    )
    job = wait_for_import(api, upload(api, file, resource="suppressions"))

    assert (row_counts(job), job["warnings"]) == ((4, 3, 0, 0, 1), 1)
    assert not get_contact(api, "sup1@example.org")["sendable_email"]
    reasons = {row["address"]: row["reason"] for row in api.all("/suppressions")}
    assert (reasons["SUP1@example.org"], reasons["+14155550199"]) == ("hard_bounce", "manual")
    assert reasons["sup2@example.org"] == "manual"


def test_a_bounce_of_an_email_address_suppresses_no_phone_number(api: Client) -> None:
    """A bounce or complaint beside an invalid email address is not the phone number's; a manual suppression is."""
    words = ("bounced", "soft_bounce", "complaint", "unsubscribed", "manual")
    numbers = {word: f"+1415555018{index}" for index, word in enumerate(words)}
    file = "email,phone,reason\n" + "".join(f"no address,{numbers[word]},{word}\n" for word in words)
    file += "no address,,bounced\n,+14155550188,bounced\n"
    job = wait_for_import(api, upload(api, file, resource="suppressions"))
    assert (row_counts(job)[1], job["failed"]) == (3, 4)
    reasons = {row["address"]: row["reason"] for row in api.all("/suppressions")}
    assert [reasons.get(numbers[word]) for word in words] == [None, None, None, "manual", "manual"]
    assert reasons["+14155550188"] == "hard_bounce"

    numbers = {word: f"+1415555019{index}" for index, word in enumerate(words)}
    file = "email,phone,status\n" + "".join(f"no address,{numbers[word]},{word}\n" for word in words)
    job = wait_for_import(api, upload(api, file, opt_in_phone=True))
    assert job["created"] == len(words)
    channels = [get_contact(api, number)["channels"][0] for number in numbers.values()]
    assert [channel["suppression_reason"] for channel in channels] == [None, None, None, None, "manual"]
    assert [channel["subscribed"] for channel in channels] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("file", "product", "expected"),
    [
        ("listmonk.csv", "listmonk", {"anna.visser": "in", "bob": "off", "carla": "manual"}),
        ("mailchimp_subscribed.csv", "mailchimp", {"dora": "in"}),
        ("mailchimp_unsubscribed.csv", "mailchimp", {"emil": "out"}),
        ("mailchimp_cleaned.csv", "mailchimp", {"frieda": "hard_bounce"}),
        ("keila.csv", "keila", {"greta": "in", "hans": "out", "ida": "hard_bounce"}),
        ("mautic.csv", "mautic", {"jana": "in", "karl": "out"}),
        ("mautic_report.csv", "mautic", {"lena": "hard_bounce", "moritz": "out", "nils": "manual", "olga": "in"}),
    ],
)
def test_exports_of_other_products_keep_their_opt_outs(
    api: Client, file: str, product: str, expected: dict[str, str]
) -> None:
    """The product is recognized by its columns, and opted-out contacts stay opted out."""
    job = wait_for_import(api, upload(api, (SAMPLES / file).read_bytes(), file))

    assert (job["product"], job["failed"]) == (product, 0), import_results(api, job["id"])
    for name, state in expected.items():
        result = get_contact(api, f"{name}@example.org")
        channel = result["channels"][0]
        texts = channel["suppression_reason"] or {"recipient": "out", "operator": "off"}.get(channel["opted_out_by"])
        assert (texts or ("in" if channel["subscribed"] else "off")) == state, name
        assert result["sendable_email"] == (state == "in")


def test_exports_of_other_products_keep_their_fields(api: Client) -> None:
    """Names, attributes, tags and phone numbers are imported."""
    anna, dora, greta, jana = (
        get_contact(api, f"{name}@example.org") for name in ("anna.visser", "dora", "greta", "jana")
    )  # fmt: skip

    assert (anna["first_name"], anna["last_name"], anna["data"]) == ("Anna", "Visser", {"city": "Bath", "orders": 3})
    assert (dora["phone"], dora["country_code"], dora["data"]["tags"]) == ("+14155550123", "GB", ["early bird", "2024"])
    assert greta["data"] == {"tags": ["vip"], "visits": 7}
    assert (jana["last_name"], jana["phone"], jana["data"]["tags"]) == ("Novak", "+442079460123", ["lead", "trial"])


def test_import_json_lines(api: Client) -> None:
    """Values keep their types, keys may differ between lines, and an invalid line fails."""
    rows = [
        '{"email": "j1@example.org", "data": {"deep": {"n": 1}}, "tags": ["t"]}',
        "{",
        '{"email": "j2@example.org", "vip": true}',
    ]
    job = wait_for_import(api, upload(api, "\n".join(rows), "people.jsonl"))

    assert (job["format"], row_counts(job)) == ("jsonl", (3, 2, 0, 0, 1))
    assert get_contact(api, "j1@example.org")["data"] == {"deep": {"n": 1}, "tags": ["t"]}
    assert get_contact(api, "j2@example.org")["data"] == {"vip": True}


def test_undo_an_import(api: Client) -> None:
    """Created contacts are deleted, changed fields restored; what was changed since stays."""
    list_id = api.post("/lists", {"name": "Undone"}).expect(201)["id"]
    old = api.post("/contacts", {"email": "u-old@example.org", "first_name": "Old", "data": {"k": 1}}).json["id"]
    wait_for_import(api, upload(api, "email\nu-left@example.org\n", opt_in=False))
    file = (
        "email,first_name,k,n,status\nu-old@example.org,New,2,3,\nu-new@example.org,N,,,\nu-kept@example.org,K,,,\n"
        "u-left@example.org,,,,cleaned\n"
    )
    job = wait_for_import(api, upload(api, file, list_ids=[list_id]))
    assert row_counts(job) == (4, 2, 2, 0, 0)
    kept = get_contact(api, "u-kept@example.org")
    api.patch(f"/contacts/{kept['id']}", {"last_name": "Touched"}).expect(200)
    api.patch(f"/contacts/{old}", {"data_merge": {"n": 4}}).expect(200)
    api.post(f"/imports/{job['id']}/undo").expect(200)
    after = api.wait(f"/imports/{job['id']}", lambda job: job["phase"] == "undone")

    assert after["undone_at"] and after["status"] == "complete"
    result = api.get(f"/contacts/{old}").expect(200)
    assert (result["first_name"], result["data"], result["list_ids"]) == ("Old", {"k": 1, "n": 4}, [])
    assert api.get("/contacts", search="u-new").json == []
    assert api.get(f"/contacts/{kept['id']}").expect(200)["list_ids"] == [list_id]
    assert get_contact(api, "u-left@example.org")["channels"][0]["suppression_reason"] is None
    assert api.get(f"/lists/{list_id}").json["contacts_count"] == 1
    assert api.post(f"/imports/{job['id']}/undo").status == 422


def test_invalid_imports_are_rejected(api: Client, server: Server) -> None:
    """Each error is reported before anything is written."""
    mirror = api.post(
        "/lists", {"name": "Mirror", "segment_id": api.post("/segments", {"name": "All"}).json["id"]}
    ).json["id"]
    before = api.get("/imports").headers["X-Total-Count"]

    assert set(upload(api, "email\n", list_ids=[999999]).expect(422)["validation_errors"]) == {"options.list_ids"}
    assert set(upload(api, "email\n", list_ids=[mirror]).expect(422)["validation_errors"]) == {"options.list_ids"}
    assert set(upload(api, "city\nBath\n").expect(422)["validation_errors"]) == {"file"}
    assert set(upload(api, "").expect(422)["validation_errors"]) == {"file"}
    assert set(upload(api, "email\n", map={"nope": "phone"}).expect(422)["validation_errors"]) == {"options.map.nope"}
    assert set(upload(api, "email\n", map={"email": "id"}).expect(422)["validation_errors"]) >= {"options.map.email"}
    assert upload(api, "email\n", on_conflict="x").expect(422)["validation_errors"] == {
        "options.on_conflict": ["is not included in the list"]
    }
    body, kind = multipart_form(None)
    headers = {"Authorization": f"Bearer {api.key}", "Content-Type": kind}
    assert api.request("POST", "/v1/my/imports", body, headers).expect(422)["validation_errors"] == {
        "file": ["can't be blank"]
    }
    assert api.request("POST", "/v1/my/imports", body[:-10], headers).status == 400
    assert api.post("/imports", {}).status == 415
    reader = server.client(server.new_key("reader", "--scope", "contacts:read"))
    assert upload(reader, "email\n").status == 403
    assert api.get("/imports").headers["X-Total-Count"] == before


def test_imports_of_another_account(api: Client, server: Server) -> None:
    """Imports, their results and lists of another account are unknown (T09)."""
    other = server.cli("account", "add", "Elsewhere").stdout.strip()
    theirs = server.client(server.cli("key", "create", "k", "--account", other).stdout.strip())
    list_id = api.post("/lists", {"name": "Ours"}).json["id"]
    job = wait_for_import(api, upload(api, "email\nours@example.org\n"))

    for path in (f"/imports/{job['id']}", f"/imports/{job['id']}/results.csv"):
        assert theirs.get(path).status == 404
    for act in ("cancel", "undo"):
        assert theirs.post(f"/imports/{job['id']}/{act}").status == 404
    assert upload(theirs, "email\n", list_ids=[list_id]).status == 422
    assert theirs.get("/imports").json == []


def test_a_too_large_file_is_rejected_early(api: Client, server: Server) -> None:
    """A length over the limit gets a 413 before the file is sent."""
    head = (
        f"POST /v1/my/imports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 2147483648\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(head.encode() + b"--b\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_complete_import_cannot_be_cancelled(api: Client) -> None:
    """Cancelling it is `invalid_transition`."""
    job = wait_for_import(api, upload(api, "email\nover@example.org\n"))
    error = api.post(f"/imports/{job['id']}/cancel").expect(422)

    assert (error["reason"], error["from"]) == ("invalid_transition", "complete")
    assert json.dumps(api.get("/imports").json[0]["id"]) == str(job["id"])


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [("resource", "suppressions", "the form field `resource` beside `options`"), ("dry_run", True, "`dry_run`"),
     ("opt-in", False, "opt_in"), ("subscribed", False, "`opt_in`")],
)  # fmt: skip
def test_misplaced_import_options_are_rejected(api: Client, key: str, value: Any, hint: str) -> None:
    """A misspelt or misplaced option is an error with a hint, so that no contact is subscribed by mistake."""
    body, kind = multipart_form(b"email\nmisplaced@example.org\n", "people.csv", options=json.dumps({key: value}))
    headers = {"Authorization": f"Bearer {api.key}", "Content-Type": kind}
    response = api.request("POST", "/v1/my/imports", body, headers)
    assert response.status == 422 and hint in response.json["validation_errors"][f"options.{key}"][0]
    assert not api.all("/contacts", search="misplaced@example.org")


def test_import_options_as_form_fields_are_rejected(api: Client) -> None:
    """Form fields that belong into `options` or the query are all reported."""
    body, kind = multipart_form(b"email\nmisplaced@example.org\n", "people.csv", opt_in="false", dry_run="true")
    headers = {"Authorization": f"Bearer {api.key}", "Content-Type": kind}
    response = api.request("POST", "/v1/my/imports", body, headers)
    assert response.status == 422 and set(response.json["validation_errors"]) == {"opt_in", "dry_run"}
    assert "`options.opt_in`" in response.json["validation_errors"]["opt_in"][0]
    assert not api.all("/contacts", search="misplaced@example.org")
