"""A proposal to send a campaign shows each value of its draft: a change of any declared field changes what it shows."""

from typing import Any

from appliance.campaigns.repeats import RepeatWrite
from appliance.campaigns.store import CampaignPatch
from appliance.campaigns.trigger import TriggerWrite
from appliance.campaigns.variants import ExperimentWrite, VariantWrite
from appliance.content.templates.validation import Content
from tests.api.test_proposals import TEXT, agent, approve, draft, editor, look, propose
from tests.kit.client import Client
from tests.kit.server import Server

__all__ = ["agent", "editor"]
SERVER_ENV = {"CAMPANERO_LIMITS__AGENT_ACTS_PER_HOUR": "400"}
# Fields that decide nothing about what is sent: the channel of a draft with content stays, a status is proposed, and
# the event of a trigger starts flows only.
UNSENT = {"channel", "status", "updated_at", "event", "id", "variants", "trigger_attributes", "template_attributes",
          "experiment", "repeat"}  # fmt: skip
DESIGN = {"sections": [{"type": "text", "props": {"content": "Hi"}}, {"type": "footer"}]}


def within(name: str, values: dict[str, list[Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return (field, request) for each value of the fields of an object of a campaign."""
    return [(field, {name: {field: value}}) for field, several in values.items() for value in several]


def build_changes(list_id: int, segment_id: int) -> list[tuple[str, dict[str, Any]]]:
    """Return (field, request) for changes of each field, each from the state that the one before has left."""
    settings: dict[str, list[Any]] = {
        "name": ["Other", "Ot\u200bher"], "data": [{"a": 1}, {"a": None}, {}], "tracking": [False, True],
        "utm": [{}, {"source": "a"}, {"source": "a", "medium": "b"}, None],
    }  # fmt: skip
    audience: list[tuple[str, Any]] = [
        ("segment_id", segment_id), ("segment_id", None), ("data", {"exclude_segment_ids": [segment_id]}),
        ("data", {"exclude_contact_list_ids": [list_id]}), ("data", {}), ("contact_list_id", None),
        ("data", {"contact_list_ids": [list_id]}), ("data", {"audience_type": "all_contacts"}),
        ("contact_list_id", list_id),
    ]  # fmt: skip
    content: dict[str, list[Any]] = {
        "subject": ["S"], "preheader": ["P"], "from_name": ["N"], "from_email": ["news@example.com"],
        "reply_to": ["r@example.com"], "body": ["<p>Other {{ unsubscribe_url }}</p>"],
        "design": [DESIGN, {**DESIGN, "theme": {"width": 500}}],
    }  # fmt: skip
    held = {"holdout": 0.1, "event": "order"}
    experiment: list[tuple[str, dict[str, Any]]] = [
        ("metric", {"metric": "opens"}), ("test_share", {"test_share": 0.5}), ("uneven", {"uneven": True}),
        ("decide_after_minutes", {"decide_after_minutes": 2880}), ("decided_by", {"decided_by": "person"}),
        ("too_close", {"too_close": "person"}), ("holdout", held), ("event", {**held, "event": "paid"}),
        ("by_amount", {**held, "metric": "event", "by_amount": True}),
    ]  # fmt: skip
    texts = {name: values[0] for name, values in content.items() if name != "body"}
    variants: list[tuple[str, Any]] = [("name", "B2"), ("send_after_minutes", 30), *texts.items()]
    changes = [(field, {field: value}) for field, several in settings.items() for value in several]
    changes += [(field, {"trigger_attributes": {field: value}}) for field, value in audience]
    changes += within("template_attributes", content)
    both = {"metric": "clicks", "variants": [{"name": "A"}, {"name": "B", "body": "<p>B {{ unsubscribe_url }}</p>"}]}
    changes.append(("experiment", {"experiment": both}))
    changes += [(field, {"experiment": values}) for field, values in experiment]
    changes += [(field, {"variant": {field: value}}) for field, value in variants]
    changes.append(("body", {"variant": {"design": None, "body": "<p>C {{ unsubscribe_url }}</p>"}}))
    changes.append(("experiment", {"experiment": None}))
    changes += [
        ("local_time", {"local_time": "2031-12-01T08:00"}),
        ("best_hour_until", {"local_time": "2031-12-01T08:00", "best_hour_until": 20}),
    ]
    rules = {
        "every": {"every": "day", "at": "09:00"}, "at": {"every": "day", "at": "10:00"},
        "weekdays": {"every": "week", "at": "10:00", "weekdays": ["mon"]},
        "day_of_month": {"every": "month", "at": "10:00", "day_of_month": 3},
        "week_of_month": {"every": "month", "at": "10:00", "week_of_month": "last", "weekdays": ["fri"]},
        "ends_at": {"every": "day", "at": "10:00", "ends_at": "2031-12-01T08:00:00Z"},
        "only_if_changed": {"every": "day", "at": "10:00", "only_if_changed": True},
    }  # fmt: skip
    return changes + [(field, {"repeat": rule}) for field, rule in rules.items()]


def test_any_change_of_a_draft_is_shown(server: Server, agent: Client, editor: Client, api: Client) -> None:
    """Settings, audience, content, test, variants, time and repetition; and each change needs another look."""
    list_id = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    api.post("/contacts", {"email": "a@example.org", "opt_in": True, "list_ids": [list_id]}).expect(201)
    segment_id = api.post("/segments", {"name": "S", "filters": []}).expect(201)["id"]
    campaign = draft(agent, list_id)
    path, proposal = f"/campaigns/{campaign['id']}", propose(agent, "send_campaign", campaign["id"])
    before, covered = look(editor, proposal), {"scheduled_at"}
    for field, body in build_changes(list_id, segment_id):
        if "variant" in body:
            first, second = agent.get(path).expect(200)["experiment"]["variants"]
            changed = [{"id": first["id"]}, {"id": second["id"], **body["variant"]}]
            body = {"experiment": {"uneven": False, "variants": changed}}
        agent.patch(path, body).expect(200)
        after = look(editor, proposal)
        assert after["version"] != before["version"], (field, body)
        assert after["differences"] != before["differences"], (field, body)
        before, covered = after, {*covered, field}
    kinds = (CampaignPatch, TriggerWrite, Content, ExperimentWrite, VariantWrite, RepeatWrite)
    assert {field for kind in kinds for field in kind.__struct_fields__} - UNSENT <= covered
    approve(editor, proposal, before["version"]).expect(200)
    assert api.get(path).expect(200)["phase"] == "scheduled"
    # The time of a campaign that has none of its own is that of the proposal.
    other = propose(agent, "send_campaign", draft(agent, list_id, scheduled_at="2031-12-01T08:00:00Z")["id"])
    times = [row["after"] for row in look(editor, other)["differences"] if row["label"] == "Time"]
    assert times == ["Once it is approved"] and TEXT["subject"] in str(look(editor, other)["differences"])
