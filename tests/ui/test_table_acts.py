"""What is done to many segments, flows and templates at once, and the way back; told by the pages without scripts."""

import re

import pytest

from tests.kit.client import Client
from tests.kit.paper import Paper, toast


@pytest.fixture(scope="module")
def paper(api: Client) -> Paper:
    """The owner at the pages."""
    return Paper(api)


def rows(page: str) -> list[str]:
    """Return the names in a table or a gallery, in their order."""
    return [" ".join(name.split()) for name in re.findall(r'<a class="name[^"]*"[^>]*>([^<]+)</a>', page)]


def test_segments_are_found_ordered_and_deleted_with_their_use(api: Client, paper: Paper) -> None:
    """Chips count those in use; what is needed stays and says why, the rest goes and comes back with one click."""
    rule = [{"name": "data.visits", "predicate": "gt", "value": 10}]
    names = ("Berlin", "Aachen", "Celle")
    one, two, three = (api.post("/segments", {"name": name, "filters": rule}).expect(201)["id"] for name in names)
    api.post("/lists", {"name": "Mirror", "segment_id": three}).expect(201)
    assert rows(paper.get("/segments?sort=name")) == ["Aachen", "Berlin", "Celle"]
    assert rows(paper.get("/segments?sort=-name&search=e")) == ["Celle", "Berlin", "Aachen"]
    assert rows(paper.get("/segments?show=used")) == ["Celle"]
    assert 'In use <span class="n">1</span>' in paper.get("/segments?show=unused")
    asked = paper.post("/segments/acts", act="delete", ids=[one, two, three])
    assert "Delete 2 segments?" in asked and ">Mirror</a>" in asked
    assert len(api.get("/segments").expect(200)) == 3
    gone = paper.post("/segments/acts", act="delete", ids=[one, two, three], expected="2-0")
    assert toast(gone).startswith("2 segments are deleted.") and "Kept, as it is in use: Celle." in toast(gone)
    assert [row["name"] for row in api.get("/segments").expect(200)] == ["Celle"]
    assert "2 segments are back." in toast(paper.undo(gone))
    assert sorted(row["name"] for row in api.get("/segments").expect(200)) == ["Aachen", "Berlin", "Celle"]
    paper.post("/segments/acts", **{"act": "duplicate", "all": "yes", "state.show": "unused"})
    assert "Aachen, copy" in rows(paper.get("/segments"))


def flow(api: Client, name: str, **more: object) -> int:
    """Make a flow that could be live."""
    said = {
        "name": name,
        "trigger": {"event": "order_paid"},
        "steps": [{"subject": "Hi", "body": "<p>Hi</p>"}, {"duration": 60}],
    }
    made: int = api.post("/flows", said | more).expect(201)["id"]
    return made


def test_flows_are_moved_together_and_stand_again_where_they_stood(api: Client, paper: Paper) -> None:
    """Pausing and archiving offer the way back, each flow to its own state; a copy is a draft with its own words."""
    live, paused, draft = (flow(api, name, status=status) for name, status in (
        ("Live", "active"), ("Resting", "active"), ("Sketch", "draft")))  # fmt: skip
    page = paper.post("/flows/acts", act="pause", ids=[paused, draft])
    assert toast(page).startswith("Resting is paused.")
    assert rows(paper.get("/flows?sort=name")) == ["Live", "Resting", "Sketch"]
    assert rows(paper.get("/flows?status=paused")) == ["Resting"]
    page = paper.post("/flows/acts", **{"act": "archive", "all": "yes"})
    assert toast(page).startswith("3 flows are archived. Nobody enters any more.")
    assert "3 flows are back." in toast(paper.undo(page))
    stand = {row["name"]: row["status"] for row in api.get("/flows").expect(200)}
    assert stand == {"Live": "active", "Resting": "paused", "Sketch": "draft"}
    page = paper.post(f"/flows/{live}/archive", inside="stay")
    assert toast(page).startswith("Live is archived.") and "Live is back." in toast(paper.undo(page))
    assert api.get(f"/flows/{live}").expect(200)["status"] == "active"
    paper.post("/flows/acts?only=" + str(live), act="duplicate")
    copy = api.get("/flows", search="Live, copy").expect(200)[0]
    assert (copy["status"], copy["trigger"]["event"], copy["steps"][0]["subject"]) == ("draft", "order_paid", "Hi")
    api.patch(f"/templates/{copy['templates'][0]['id']}", {"subject": "Other"}).expect(200)
    assert api.get(f"/flows/{live}").expect(200)["steps"][0]["subject"] == "Hi"
    asked = paper.post("/flows/acts", act="delete", ids=[draft, copy["id"]])
    assert "Delete 2 flows?" in asked and api.get(f"/flows/{draft}").status == 200
    assert (
        toast(paper.post("/flows/acts", act="delete", ids=[draft, copy["id"]], expected="2")) == "2 flows are deleted."
    )


def test_people_inside_are_asked_about_before_their_flow_is_archived(api: Client, paper: Paper) -> None:
    """Whoever takes people out is offered no way back, for they do not come back."""
    one = flow(api, "Full", status="active")
    who = api.post("/contacts", {"email": "in@example.org"}).expect(201)["id"]
    api.post("/events", {"event": "order_paid", "contact_id": who}).expect(201)
    api.wait(f"/flows/{one}", lambda row: row["stats"]["active"] == 1)
    assert "1 person is inside" in paper.post("/flows/acts", act="archive", ids=[one])
    page = paper.post("/flows/acts", act="archive", ids=[one], expected="1", inside="out")
    assert toast(page).startswith("Full is archived.") and "Undo" not in toast(page)


def test_templates_are_put_away_together_and_come_back(api: Client, paper: Paper) -> None:
    """Chips count each kind, all that match is the filter, and deleting says what was made from them."""
    for name in ("Spring", "Summer", "Winter"):
        api.post("/templates", {"name": name, "body": "<p>Hi</p>"}).expect(201)
    api.post("/templates", {"name": "Short", "channel": "sms", "body": "Hi"}).expect(201)
    page = paper.get("/templates?sort=name")
    assert rows(page) == ["Short", "Spring", "Summer", "Winter"]
    assert 'SMS <span class="n">1</span>' in page and 'Email <span class="n">3</span>' in page
    page = paper.post("/templates/acts", **{"act": "archive", "all": "yes", "state.search": "er"})
    assert toast(page).startswith("2 templates are archived.")
    assert sorted(rows(paper.get("/templates?show=away"))) == ["Summer", "Winter"]
    assert "2 templates are back." in toast(paper.undo(page))
    ids = {row["name"]: row["id"] for row in api.get("/templates", standalone=True).expect(200)}
    asked = paper.post("/templates/acts", act="delete", ids=[ids["Spring"], ids["Short"]])
    assert "Delete 2 templates?" in asked
    gone = paper.post("/templates/acts", act="delete", ids=[ids["Spring"], ids["Short"]], expected="2")
    assert toast(gone).startswith("2 templates are deleted.")
    assert rows(paper.get("/templates?sort=name")) == ["Summer", "Winter"]
    paper.post("/templates/acts?only=" + str(ids["Winter"]), act="duplicate")
    assert "Winter (copy)" in rows(paper.get("/templates"))
