"""Whatever happened to somebody, and whatever data came with it, the pages that tell of it can be read."""

import re
from typing import Any

import pytest

from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.server import EMAIL, Server
from tests.kit.uploads import done, upload

# Keys by which the pages know what to say of events of our own, and names that mappings have anyway
KEYS = ("fields", "tag", "body", "reason", "campaign_id", "verdict", "items", "get", "note")
SHAPES: tuple[Any, ...] = (None, True, 7, 1.5, "words", "", [], {}, [1, None, {"a": [[]]}], {"a": {"b": [1]}})


@pytest.fixture(scope="module")
def visitor(server: Server) -> Visitor:
    """Somebody signed in."""
    return Visitor(server, EMAIL)


def is_read(visitor: Visitor, path: str) -> str:
    """Return a page; fails unless it is one."""
    page = visitor.send("GET", path)
    assert page.status == 200, (path, page.text[:500])
    return page.text


def test_the_page_of_somebody_whom_an_import_changed(server: Server, visitor: Visitor) -> None:
    """An import says that somebody was changed, and not which fields."""
    api = server.client()
    contact = api.post("/contacts", {"email": "known@example.org", "first_name": "Ann"}).expect(201)["id"]
    done(api, upload(api, "email,first_name,tags\nknown@example.org,Anna,vip\n"))
    assert "Anna" in is_read(visitor, f"/contacts/{contact}")
    assert api.get("/events", contact_id=contact, event="contact_update").json[0]["data"].get("fields") is None
    for path in ("/", "/contacts", f"/activity?contact_id={contact}"):
        is_read(visitor, path)


def test_events_with_data_of_every_shape(server: Server, visitor: Visitor) -> None:
    """What a program sends along with an event is shown as what it is."""
    api = server.client()
    for number, shape in enumerate(SHAPES):
        contact = api.post("/contacts", {"email": f"odd{number}@example.org"}).expect(201)["id"]
        api.post("/events", {"event": "bought", "contact_id": contact, "data": dict.fromkeys(KEYS, shape)}).expect(201)
        for path in (f"/contacts/{contact}", f"/activity?contact_id={contact}"):
            assert "bought" in is_read(visitor, path).lower()


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_dates_at_the_ends_of_the_calendar(server: Server, visitor: Visitor, zone: str) -> None:
    """A date that some time zone cannot say is refused; the last ones that are taken are shown everywhere."""
    api = server.client()
    api.patch("/account", {"time_zone": zone}).expect(200)
    since = [{"name": "contact_created_at", "predicate": "lt", "value": ""}]
    for wrong in ("9999-12-31T23:59:59Z", "9999-12-31", "0001-01-01", "9999-01-01T00:00:00Z"):
        api.post("/campaigns", {"name": "x", "scheduled_at": wrong}).expect(422)
        api.post("/segments", {"name": f"{zone} {wrong}", "filters": [since[0] | {"value": wrong}]}).expect(422)
    for right in ("9998-12-31T23:59:59Z", "9998-12-31", "0002-01-01", "1970-01-01T00:00:00Z"):
        api.post("/segments", {"name": f"{zone} {right}", "filters": [since[0] | {"value": right}]}).expect(201)
    api.post("/campaigns", {"name": f"late {zone}", "scheduled_at": "9998-12-31T23:59:59Z"}).expect(201)
    for path in ("/", "/campaigns", "/segments", "/contacts?created_before=9999-12-31", "/activity?to=9999-12-31"):
        is_read(visitor, path)
    for path in ("/campaigns", "/segments"):
        api.get(path).expect(200)


def test_nobody_is_laid_over_a_contact_by_being_added(server: Server, visitor: Visitor) -> None:
    """Who adds a person with somebody's address is told whose it is; the contact stays as it was."""
    api = server.client()
    known = {"email": "gunther@example.org", "phone": "+14155550191", "first_name": "Gunther", "last_name": "Jager"}
    contact = api.post("/contacts", known).expect(201)["id"]
    for given in ({"email": "GUNTHER@example.org"}, {"email": "new@example.org", "phone": "+1 415 555 0191"}):
        page = visitor.send("POST", "/contacts", {"first_name": "Omer", "last_name": "Celik", **given})
        assert page.status == 422 and "Gunther Jager" in page.text and f"/contacts/{contact}" in page.text
    kept = api.get(f"/contacts/{contact}").expect(200)
    assert (kept["first_name"], kept["last_name"]) == ("Gunther", "Jager")
    assert visitor.send("POST", "/contacts", {"first_name": "Omer", "email": "nobody at all"}).status == 422


def test_pages_show_internationalized_domains_in_unicode(fresh_server: FreshServer) -> None:
    """The report, its lists and the test inbox show what was typed, not the ASCII form that mail servers use."""
    server = fresh_server().give_address()
    api = server.client(validate=False)
    api.patch("/account", {"email_from_email": "ana@bäckerei.example"}).expect(200)
    group = api.post("/lists", {"name": "Bread"}).expect(201)["id"]
    api.post("/contacts", {"email": "ann@XN--mnchen-3ya.example", "list_ids": [group]}).expect(201)
    content = {"subject": "Bread", "body": "<p>Fresh</p>"}
    body = {"name": "Bread", "trigger_attributes": {"contact_list_id": group}, "template_attributes": content}
    campaign = api.post("/campaigns", body).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send").expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["phase"] == "completed", 60)
    visitor = Visitor(server, EMAIL)
    filtered = f"/campaigns/{campaign}/people?domain=xn--mnchen-3ya.example"
    pages = (f"/campaigns/{campaign}", f"/campaigns/{campaign}/domains", filtered, "/inbox", "/inbox/1", "/contacts")
    for path in pages:
        words = re.sub(r"<[^>]*>", " ", is_read(visitor, path))
        assert "münchen.example" in words and "xn--" not in words, path
    assert "ana@bäckerei.example" in is_read(visitor, "/inbox/1")
