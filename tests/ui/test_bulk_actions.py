"""Bulk actions on segments, flows and templates, and their undo, without JavaScript."""

import re

import pytest

from tests.kit.client import Client
from tests.kit.scriptless_browser import ScriptlessBrowser, notice_text


@pytest.fixture(scope="module")
def paper(api: Client) -> ScriptlessBrowser:
    """A client of the pages without JavaScript."""
    return ScriptlessBrowser(api)


def rows(page: str) -> list[str]:
    """Return the names in a table or gallery, in order."""
    return [" ".join(name.split()) for name in re.findall(r'<a class="name[^"]*"[^>]*>([^<]+)</a>', page)]


def test_bulk_actions_of_segments(api: Client, paper: ScriptlessBrowser) -> None:
    """Segments are sorted, filtered, deleted except those in use, restored and duplicated."""
    rule = [{"name": "data.visits", "predicate": "gt", "value": 10}]
    names = ("Berlin", "Aachen", "Celle")
    first_id, second_id, used_id = (
        api.post("/segments", {"name": name, "filters": rule}).expect(201)["id"] for name in names
    )
    api.post("/lists", {"name": "Mirror", "segment_id": used_id}).expect(201)
    assert rows(paper.get("/segments?sort=name")) == ["Aachen", "Berlin", "Celle"]
    assert rows(paper.get("/segments?sort=-name&search=e")) == ["Celle", "Berlin", "Aachen"]
    assert rows(paper.get("/segments?show=used")) == ["Celle"]
    assert 'In use <span class="n">1</span>' in paper.get("/segments?show=unused")
    confirmation = paper.post("/segments/acts", act="delete", ids=[first_id, second_id, used_id])
    assert "Delete 2 segments?" in confirmation and ">Mirror</a>" in confirmation
    assert len(api.get("/segments").expect(200)) == 3
    deleted_page = paper.post("/segments/acts", act="delete", ids=[first_id, second_id, used_id], expected="2-0")
    assert notice_text(deleted_page).startswith(
        "2 segments deleted."
    ) and "Not deleted because in use: Celle." in notice_text(deleted_page)
    assert [row["name"] for row in api.get("/segments").expect(200)] == ["Celle"]
    assert "2 segments restored." in notice_text(paper.undo(deleted_page))
    assert sorted(row["name"] for row in api.get("/segments").expect(200)) == ["Aachen", "Berlin", "Celle"]
    paper.post("/segments/acts", **{"act": "duplicate", "all": "yes", "state.show": "unused"})
    assert "Aachen, copy" in rows(paper.get("/segments"))


def create_flow(api: Client, name: str, **overrides: object) -> int:
    """Create a flow that could be activated, and return its id."""
    fields = {
        "name": name,
        "trigger": {"event": "order_paid"},
        "steps": [{"subject": "Hi", "body": "<p>Hi</p>"}, {"duration": 60}],
    }
    flow_id: int = api.post("/flows", fields | overrides).expect(201)["id"]
    return flow_id


def test_bulk_actions_of_flows(api: Client, paper: ScriptlessBrowser) -> None:
    """Pausing and archiving can be undone, each flow to its former status; a copy is an independent draft."""
    live, paused, draft = (create_flow(api, name, status=status) for name, status in (
        ("Live", "active"), ("Resting", "active"), ("Sketch", "draft")))  # fmt: skip
    page = paper.post("/flows/acts", act="pause", ids=[paused, draft])
    assert notice_text(page).startswith("“Resting” is paused.")
    assert rows(paper.get("/flows?sort=name")) == ["Live", "Resting", "Sketch"]
    assert rows(paper.get("/flows?status=paused")) == ["Resting"]
    page = paper.post("/flows/acts", **{"act": "archive", "all": "yes"})
    assert notice_text(page).startswith("3 flows are archived. No more contacts can enter.")
    assert "3 flows restored." in notice_text(paper.undo(page))
    statuses = {row["name"]: row["status"] for row in api.get("/flows").expect(200)}
    assert statuses == {"Live": "active", "Resting": "paused", "Sketch": "draft"}
    page = paper.post(f"/flows/{live}/archive", inside="stay")
    assert notice_text(page).startswith("“Live” is archived.") and "“Live” restored." in notice_text(paper.undo(page))
    assert api.get(f"/flows/{live}").expect(200)["status"] == "active"
    paper.post("/flows/acts?only=" + str(live), act="duplicate")
    copy = api.get("/flows", search="Live (copy)").expect(200)[0]
    assert (copy["status"], copy["trigger"]["event"], copy["steps"][0]["subject"]) == ("draft", "order_paid", "Hi")
    api.patch(f"/templates/{copy['templates'][0]['id']}", {"subject": "Other"}).expect(200)
    assert api.get(f"/flows/{live}").expect(200)["steps"][0]["subject"] == "Hi"
    confirmation = paper.post("/flows/acts", act="delete", ids=[draft, copy["id"]])
    assert "Delete 2 flows?" in confirmation and api.get(f"/flows/{draft}").status == 200
    assert (
        notice_text(paper.post("/flows/acts", act="delete", ids=[draft, copy["id"]], expected="2"))
        == "2 flows deleted."
    )


def test_archiving_a_flow_with_contacts(api: Client, paper: ScriptlessBrowser) -> None:
    """Archiving a flow with live runs asks first; if the contacts are removed, there is no undo."""
    flow_id = create_flow(api, "Full", status="active")
    contact_id = api.post("/contacts", {"email": "in@example.org"}).expect(201)["id"]
    api.post("/events", {"event": "order_paid", "contact_id": contact_id}).expect(201)
    api.wait(f"/flows/{flow_id}", lambda row: row["stats"]["active"] == 1)
    assert "1 contact in the flow" in paper.post("/flows/acts", act="archive", ids=[flow_id])
    page = paper.post("/flows/acts", act="archive", ids=[flow_id], expected="1", inside="out")
    assert notice_text(page).startswith("“Full” is archived.") and "Undo" not in notice_text(page)


def test_bulk_actions_of_templates(api: Client, paper: ScriptlessBrowser) -> None:
    """Templates are counted by kind, archived by a filter, restored, deleted and duplicated."""
    for name in ("Spring", "Summer", "Winter"):
        api.post("/templates", {"name": name, "body": "<p>Hi</p>"}).expect(201)
    api.post("/templates", {"name": "Short", "channel": "sms", "body": "Hi"}).expect(201)
    page = paper.get("/templates?sort=name")
    assert rows(page) == ["Short", "Spring", "Summer", "Winter"]
    assert 'SMS <span class="n">1</span>' in page and 'Email <span class="n">3</span>' in page
    page = paper.post("/templates/acts", **{"act": "archive", "all": "yes", "state.search": "er"})
    assert notice_text(page).startswith("2 templates archived.")
    assert sorted(rows(paper.get("/templates?show=away"))) == ["Summer", "Winter"]
    assert "2 templates restored." in notice_text(paper.undo(page))
    ids = {row["name"]: row["id"] for row in api.get("/templates", standalone=True).expect(200)}
    confirmation = paper.post("/templates/acts", act="delete", ids=[ids["Spring"], ids["Short"]])
    assert "Delete 2 templates?" in confirmation
    deleted_page = paper.post("/templates/acts", act="delete", ids=[ids["Spring"], ids["Short"]], expected="2")
    assert notice_text(deleted_page).startswith("2 templates deleted.")
    assert rows(paper.get("/templates?sort=name")) == ["Summer", "Winter"]
    paper.post("/templates/acts?only=" + str(ids["Winter"]), act="duplicate")
    assert "Winter (copy)" in rows(paper.get("/templates"))
