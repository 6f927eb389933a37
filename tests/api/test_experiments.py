"""A/B tests and holdouts of campaigns over the API: how they are set up, and what is rejected."""

from typing import Any

import pytest

from tests.api.test_campaigns import create_draft, list_with_contacts
from tests.kit.client import Client
from tests.kit.recipients import create_list
from tests.kit.server import Server

CONTENT = {"subject": "Offer", "preheader": "Today", "body": "<p>Hi <a href='https://example.org/a'>offer</a></p>"}


def set_up(api: Client, experiment: dict[str, Any], **body: Any) -> dict[str, Any]:
    """Create a draft with a test, and return the campaign."""
    return create_draft(api, template_attributes=CONTENT, experiment=experiment, **body)


def test_a_new_test_has_the_documented_defaults(api: Client) -> None:
    """Two variants are enough; the first is the campaign's own content, and the second keeps what it does not name."""
    campaign = set_up(api, {"variants": [{}, {"subject": " Other "}]})
    experiment = campaign["experiment"]
    first, second = experiment.pop("variants")

    assert experiment == {
        "state": "draft", "test_share": 1, "metric": "clicks", "event": None, "by_amount": False,
        "decide_after_minutes": 1440, "decided_by": "service", "too_close": "leader", "uneven": False, "holdout": 0,
        "ends_at": None, "winner": None, "chosen_by": None, "chosen_at": None,
    }  # fmt: skip
    assert (first["number"], first["template_id"], first["subject"]) == (1, campaign["template"]["id"], None)
    assert (second["number"], second["subject"], second["preheader"]) == (2, "Other", None)
    assert (second["has_own_content"], second["send_after_minutes"], second["name"]) == (False, 0, None)
    assert create_draft(api)["experiment"] is None


def test_a_test_as_it_was_read_can_be_sent_back(api: Client) -> None:
    """The response of a GET is a valid change that changes nothing."""
    campaign = set_up(api, {"variants": [{"name": "A"}, {"subject": "B", "body": "<p>B</p>", "send_after_minutes": 5}]})
    path = f"/campaigns/{campaign['id']}"
    again = api.patch(path, {"experiment": campaign["experiment"]}).expect(200)

    assert again["experiment"] == campaign["experiment"]


def test_a_change_keeps_what_it_does_not_name(api: Client) -> None:
    """Keys and variants that are not sent stay; a variant that is left out of the list goes, with its template."""
    third = {"subject": "C", "body": "<p>C</p>"}
    campaign = set_up(api, {"variants": [{}, {"subject": "B"}, third], "test_share": 0.5})
    path, variants = f"/campaigns/{campaign['id']}", campaign["experiment"]["variants"]
    api.patch(path, {"experiment": {"metric": "event", "event": "order", "by_amount": True}}).expect(200)
    changed = api.patch(
        path, {"experiment": {"variants": [{"id": variants[0]["id"]}, {"id": variants[2]["id"], "subject": None}]}}
    ).expect(200)["experiment"]
    gone = api.get(f"/templates/{variants[1]['template_id']}")

    assert (changed["test_share"], changed["metric"], changed["event"], changed["by_amount"]) == (
        0.5, "event", "order", True,
    )  # fmt: skip
    assert [variant["id"] for variant in changed["variants"]] == [variants[0]["id"], variants[2]["id"]]
    assert (changed["variants"][1]["number"], changed["variants"][1]["subject"]) == (2, None)
    assert changed["variants"][1]["has_own_content"]
    assert gone.status == 404
    assert api.patch(path, {"experiment": None}).expect(200)["experiment"] is None
    assert api.get(f"/templates/{variants[2]['template_id']}").status == 404


def test_all_errors_of_a_test_are_reported_at_once(api: Client) -> None:
    """Each error stands at its field, those of variants with their position."""
    experiment = {
        "variants": [
            {"subject": "Not here"}, {"name": "Same", "subject": "{{ open"},
            {"name": "same ", "id": 987654, "send_after_minutes": 1440, "design": {"sections": [{"type": 5}]}},
        ],
        "metric": "event", "uneven": True, "test_share": 0.9, "holdout": 0.2,
    }  # fmt: skip
    errors = api.post("/campaigns", {"name": "x", "experiment": experiment}).expect(422)["validation_errors"]

    assert set(errors) == {
        "experiment.variants[0].subject", "experiment.variants[1].subject", "experiment.variants[2].name",
        "experiment.variants[2].id", "experiment.event", "experiment.uneven", "experiment.test_share",
        "experiment.decide_after_minutes", "experiment.variants[2].design.sections[0].type",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("experiment", "field"),
    [
        ({"variants": [{}]}, "experiment.variants"),
        ({}, "experiment.variants"),
        ({"variants": [{}] * 6}, "experiment.variants"),
        ({"variants": [{}, {}], "holdout": 0.6}, "experiment.holdout"),
        ({"variants": [{}, {}], "test_share": 0}, "experiment.test_share"),
        ({"variants": [{}, {}], "by_amount": True}, "experiment.by_amount"),
        ({"holdout": 0.1}, "experiment.event"),
        ({"holdout": 0.1, "event": "order", "uneven": True}, "experiment.uneven"),
        ({"variants": [{}, {"html": "x"}]}, "experiment.variants[1].html"),
        ({"variants": [{}, {}], "share": 0.1}, "experiment.share"),
    ],
)
def test_an_invalid_test_is_rejected(api: Client, experiment: dict[str, Any], field: str) -> None:
    """A test needs two variants or a holdout, and every value has its limits."""
    assert set(api.post("/campaigns", {"name": "x", "experiment": experiment}).expect(422)["validation_errors"]) == {
        field
    }


def test_the_event_of_a_test_needs_the_scope_of_what_it_shows(api: Client, server: Server) -> None:
    """Whether contacts had an event is for `contacts:read`, their amounts for `events:read`; what is set stays."""
    narrow = server.client(server.new_key("narrow", "--scope", "campaigns:write"))
    reader = server.client(server.new_key("counts", "--scope", "campaigns:write,contacts:read"))
    sums = {"variants": [{}, {"subject": "B"}], "metric": "event", "event": "order", "by_amount": True}
    holdout = {"holdout": 0.1, "event": "order"}
    for experiment in (sums, holdout):
        refused = narrow.post("/campaigns", {"name": "x", "experiment": experiment}).expect(403)
        assert refused["required_scope"] == "contacts:read"
    assert reader.post("/campaigns", {"name": "x", "experiment": sums}).expect(403)["required_scope"] == "events:read"

    path = f"/campaigns/{reader.post('/campaigns', {'name': 'x', 'experiment': holdout}).expect(201)['id']}"
    stored = narrow.get(path).expect(200)["experiment"]
    assert narrow.patch(path, {"experiment": {**stored, "holdout": 0.2}}).expect(200)["experiment"]["holdout"] == 0.2
    refused = narrow.patch(path, {"experiment": {"event": "refund"}}).expect(403)
    assert refused["required_scope"] == "contacts:read"
    refused = reader.patch(path, {"experiment": sums}).expect(403)
    assert refused["required_scope"] == "events:read"
    api.patch(path, {"experiment": sums}).expect(200)
    refused = reader.patch(path, {"experiment": {"event": "refund"}}).expect(403)
    assert refused["required_scope"] == "events:read"
    assert narrow.patch(path, {"experiment": {"test_share": 0.5}}).expect(200)["experiment"]["by_amount"] is True


def test_a_duplicate_has_the_same_test(api: Client) -> None:
    """A copy has variants of its own, with the same texts."""
    campaign = set_up(api, {"variants": [{}, {"subject": "B", "body": "<p>B</p>"}], "holdout": 0.1, "event": "order"})
    copied = api.post(f"/campaigns/{campaign['id']}/duplicate").expect(201)["experiment"]

    assert (copied["holdout"], copied["event"], copied["variants"][1]["subject"]) == (0.1, "order", "B")
    assert copied["variants"][1]["has_own_content"]
    assert copied["variants"][1]["template_id"] != campaign["experiment"]["variants"][1]["template_id"]


def test_a_draft_shows_its_sample_size(api: Client) -> None:
    """Before the send, the figures are empty, and the sample size is what an audience of this size can find."""
    campaign = set_up(api, {"variants": [{}, {"subject": "B"}]})
    result = api.get(f"/campaigns/{campaign['id']}/experiment").expect(200)

    assert (result["state"], result["decision"], result["adds_up"]) == ("draft", None, True)
    assert [variant["name"] for variant in result["variants"]] == ["A", "B"]
    assert result["sample_size"]["recipients"] == 0
    assert result["sample_size"]["needed"] > 10_000
    assert api.get(f"/campaigns/{create_draft(api)['id']}/experiment").status == 404


def test_preflight_covers_every_variant(api: Client) -> None:
    """Blockers and warnings stand at the field of the variant that has them, and a blocker of one blocks the send."""
    list_id = list_with_contacts(api, "Variants", 3)
    variants = [
        {},
        {"name": "Plain"},
        {"body": "<p>{{ contact.nick }} {{ nobody.knows }}</p>", "from_email": "a@b.example"},
    ]
    campaign = set_up(api, {"variants": variants}, trigger_attributes={"contact_list_id": list_id})
    path = f"/campaigns/{campaign['id']}"
    result = api.get(f"{path}/preflight").expect(200)
    warnings = {(warning["code"], warning["field"]) for warning in result["warnings"]}
    messages = [warning["message"] for warning in result["warnings"]]

    assert result["ok"], result["blockers"]
    assert {
        ("unknown_merge_tag", "experiment.variants[2].body"), ("variant_alike", "experiment.variants[1].subject"),
        ("test_too_small", "experiment.test_share"),
    } <= warnings  # fmt: skip
    assert any(message.startswith("variant C: nobody.knows") for message in messages), messages
    rehearsed = api.wait(
        f"{path}/preflight", lambda row: row["facts"].get("rehearsal", {}).get("status") == "complete", 30
    )["facts"]["rehearsal"]
    assert (rehearsed["done"], rehearsed["failed"]) == (3, 0)
    assert {missing["name"]: missing["count"] for missing in rehearsed["lacking"]} == {"contact.nick": 3}

    api.patch(path, {"tracking": False}).expect(200)
    design = {"sections": [{"type": "hologram"}]}
    kept = [{"id": variant["id"]} for variant in campaign["experiment"]["variants"]]
    api.patch(path, {"experiment": {"variants": [kept[0], kept[1] | {"design": design}, kept[2]]}}).expect(200)
    error = api.post(f"{path}/send").expect(422)
    assert set(error["validation_errors"]) == {"experiment.metric", "experiment.variants[1].design.sections[0]"}


def test_the_control_group_gets_no_campaign(server: Server) -> None:
    """The account's control group is counted, explained and skipped; a larger share only adds contacts to it."""
    api = server.client()
    list_id = create_list(api, 200, "control")
    api.patch("/account", {"control_share": 0.2}).expect(200)
    campaign = create_draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": list_id})
    path = f"/campaigns/{campaign['id']}"
    smaller = api.get(f"{path}/preflight").expect(200)["facts"]
    contacts = [contact["id"] for contact in api.all("/contacts", list_id=list_id)]

    def list_control() -> set[int]:
        explained = {contact_id: api.get(f"{path}/explain", contact_id=contact_id).json for contact_id in contacts[:40]}
        return {contact_id for contact_id, row in explained.items() if row["skip_reason"] == "control_group"}

    few = list_control()
    assert api.patch("/account", {"control_share": 0.4}).expect(200)["control_share"] == 0.4
    larger = api.get(f"{path}/preflight").expect(200)["facts"]
    many = list_control()
    assert few < many
    assert 20 <= smaller["skipped"]["control_group"] <= 60 < larger["skipped"]["control_group"] <= 100
    assert larger["sendable"] + larger["skipped"]["control_group"] == larger["audience"] == 200

    api.post(f"{path}/send").expect(200)
    completed = api.wait(path, lambda row: row["status"] == "completed", 30)
    assert completed["stats"]["skipped"] == larger["skipped"]["control_group"]
    skipped = api.all(f"{path}/recipients", status="skipped")
    assert {row["skip_reason"] for row in skipped} == {"control_group"}
    assert many <= {row["contact_id"] for row in skipped}
    assert api.patch("/account", {"control_share": 0.6}).expect(422)["validation_errors"].keys() == {"control_share"}
    api.patch("/account", {"control_share": None}).expect(200)


def test_a_test_email_of_a_variant_has_its_complete_content(api: Client) -> None:
    """What a variant does not replace comes from the campaign, also in a test email and where the campaign changes."""
    campaign = set_up(api, {"variants": [{}, {"subject": "Other"}]})
    api.patch(f"/campaigns/{campaign['id']}", {"template_attributes": {"body": "<p>Corrected</p>"}}).expect(200)
    template_id = campaign["experiment"]["variants"][1]["template_id"]
    sent = api.post(f"/templates/{template_id}/send_test", {"emails": ["tester@example.org"]}).expect(200)
    message_id = sent["results"][0]["message_id"]
    message = api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent", 30)
    [captured] = [row for row in api.all("/capture") if row["message_id"] == message_id]

    assert message["subject"].endswith("Other")
    assert "Corrected" in api.get(f"/capture/{captured['id']}").json["text"]
