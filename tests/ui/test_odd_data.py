"""Pages about contacts and events with unusual data can be displayed."""

import re
from typing import Any

import pytest

from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.server import EMAIL, Server
from tests.kit.uploads import upload, wait_for_import

# Keys that pages read from our own events, and names of dict methods
KEYS = ("fields", "tag", "body", "reason", "campaign_id", "verdict", "items", "get", "note")
SHAPES: tuple[Any, ...] = (None, True, 7, 1.5, "words", "", [], {}, [1, None, {"a": [[]]}], {"a": {"b": [1]}})


@pytest.fixture(scope="module")
def visitor(server: Server) -> Visitor:
    """The owner, signed in."""
    return Visitor(server, EMAIL)


def read_page(visitor: Visitor, path: str) -> str:
    """Return the text of a page; fail unless its status is 200."""
    page = visitor.send("GET", path)
    assert page.status == 200, (path, page.text[:500])
    return page.text


def test_a_contact_changed_by_an_import(server: Server, visitor: Visitor) -> None:
    """The event of an import has no list of changed fields, and pages still show it."""
    api = server.client()
    contact_id = api.post("/contacts", {"email": "known@example.org", "first_name": "Ann"}).expect(201)["id"]
    wait_for_import(api, upload(api, "email,first_name,tags\nknown@example.org,Anna,vip\n"))
    assert "Anna" in read_page(visitor, f"/contacts/{contact_id}")
    assert api.get("/events", contact_id=contact_id, event="contact_update").json[0]["data"].get("fields") is None
    for path in ("/", "/contacts", f"/activity?contact_id={contact_id}"):
        read_page(visitor, path)


def test_events_with_data_of_every_shape(server: Server, visitor: Visitor) -> None:
    """Events with data of any JSON type are displayed."""
    api = server.client()
    for number, shape in enumerate(SHAPES):
        contact_id = api.post("/contacts", {"email": f"odd{number}@example.org"}).expect(201)["id"]
        api.post("/events", {"event": "bought", "contact_id": contact_id, "data": dict.fromkeys(KEYS, shape)}).expect(
            201
        )
        for path in (f"/contacts/{contact_id}", f"/activity?contact_id={contact_id}"):
            assert "bought" in read_page(visitor, path).lower()


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_dates_at_the_ends_of_the_calendar(server: Server, visitor: Visitor, zone: str) -> None:
    """Dates outside the calendar of some time zone are rejected; the last valid ones are displayed."""
    api = server.client()
    api.patch("/account", {"time_zone": zone}).expect(200)
    filters = [{"name": "contact_created_at", "predicate": "lt", "value": ""}]
    for invalid in ("9999-12-31T23:59:59Z", "9999-12-31", "0001-01-01", "9999-01-01T00:00:00Z"):
        api.post("/campaigns", {"name": "x", "scheduled_at": invalid}).expect(422)
        api.post("/segments", {"name": f"{zone} {invalid}", "filters": [filters[0] | {"value": invalid}]}).expect(422)
    for valid in ("9998-12-31T23:59:59Z", "9998-12-31", "0002-01-01", "1970-01-01T00:00:00Z"):
        api.post("/segments", {"name": f"{zone} {valid}", "filters": [filters[0] | {"value": valid}]}).expect(201)
    api.post("/campaigns", {"name": f"late {zone}", "scheduled_at": "9998-12-31T23:59:59Z"}).expect(201)
    for path in ("/", "/campaigns", "/segments", "/contacts?created_before=9999-12-31", "/activity?to=9999-12-31"):
        read_page(visitor, path)
    for path in ("/campaigns", "/segments"):
        api.get(path).expect(200)


def test_adding_a_contact_with_a_taken_address(server: Server, visitor: Visitor) -> None:
    """Adding a contact with a taken address or number names its owner and leaves that contact unchanged."""
    api = server.client()
    known = {"email": "gunther@example.org", "phone": "+14155550191", "first_name": "Gunther", "last_name": "Jager"}
    contact_id = api.post("/contacts", known).expect(201)["id"]
    for given in ({"email": "GUNTHER@example.org"}, {"email": "new@example.org", "phone": "+1 415 555 0191"}):
        page = visitor.send("POST", "/contacts", {"first_name": "Omer", "last_name": "Celik", **given})
        assert page.status == 422 and "Gunther Jager" in page.text and f"/contacts/{contact_id}" in page.text
    existing = api.get(f"/contacts/{contact_id}").expect(200)
    assert (existing["first_name"], existing["last_name"]) == ("Gunther", "Jager")
    assert visitor.send("POST", "/contacts", {"first_name": "Omer", "email": "nobody at all"}).status == 422


def test_pages_show_internationalized_domains_in_unicode(fresh_server: FreshServer) -> None:
    """Report, lists and inbox show the Unicode form of a domain, not its A-label."""
    server = fresh_server().set_postal_address()
    api = server.client(validate=False)
    api.patch("/account", {"email_from_email": "ana@bäckerei.example"}).expect(200)
    list_id = api.post("/lists", {"name": "Bread"}).expect(201)["id"]
    api.post("/contacts", {"email": "ann@XN--mnchen-3ya.example", "list_ids": [list_id]}).expect(201)
    content = {"subject": "Bread", "body": "<p>Fresh</p>"}
    body = {"name": "Bread", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content}
    campaign_id = api.post("/campaigns", body).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["phase"] == "completed", 60)
    visitor = Visitor(server, EMAIL)
    filtered = f"/campaigns/{campaign_id}/people?domain=xn--mnchen-3ya.example"
    pages = (
        f"/campaigns/{campaign_id}",
        f"/campaigns/{campaign_id}/domains",
        filtered,
        "/inbox",
        "/inbox/1",
        "/contacts",
    )
    for path in pages:
        text = re.sub(r"<[^>]*>", " ", read_page(visitor, path))
        assert "münchen.example" in text and "xn--" not in text, path
    assert "ana@bäckerei.example" in read_page(visitor, "/inbox/1")
