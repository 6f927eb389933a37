"""Proposals of agents over the API: who makes, sees and decides them, and what an agent may change without one."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.api_users import add_user
from tests.kit.client import Client
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server

# A small limit of acts, which one test reaches
SERVER_ENV = {"CAMPANERO_LIMITS__AGENT_ACTS_PER_HOUR": "40", "CAMPANERO_NETWORK__CHECK_LINKS": "true"}
TEXT = {"subject": "Hello", "body": "<p>Hello {{ unsubscribe_url }}</p>"}
STEPS = [{"subject": "Thanks", "body": "<p>Thank you</p>"}]
SUBSCRIBED = [{"name": "contact_subscribed_email", "predicate": "true", "value": True}]


@pytest.fixture(scope="module")
def editor(server: Server) -> Client:
    """Return a client of a user who may send."""
    return add_user(server, "editor")


@pytest.fixture(scope="module")
def list_id(api: Client) -> int:
    """Return the id of a list with three contacts."""
    number = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    for name in "abc":
        api.post("/contacts", {"email": f"{name}@example.org", "opt_in": True, "list_ids": [number]}).expect(201)
    return number


def create_agent(server: Server, owner: Client, name: str = "Assistant") -> Client:
    """Return a client of a new agent with all scopes."""
    return server.client(owner.post("/api_keys", {"name": name, "agent": True}).expect(201)["key"])


@pytest.fixture
def agent(server: Server, owner: Client) -> Client:
    """Return a client of an agent that has done nothing yet."""
    return create_agent(server, owner)


def draft(agent: Client, list_id: int, **more: Any) -> Any:
    """Create a draft of a campaign to the list."""
    body = {"name": "News", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": TEXT, **more}
    return agent.post("/campaigns", body).expect(201)


def propose(agent: Client, kind: str, subject_id: int, **more: Any) -> Any:
    """Make a proposal."""
    return agent.post("/proposals", {"kind": kind, "subject_id": subject_id, **more}).expect(201)


def look(user: Client, proposal: dict[str, Any]) -> Any:
    """Return a proposal with what a user needs to decide."""
    return user.get(f"/proposals/{proposal['id']}").expect(200)


def approve(user: Client, proposal: dict[str, Any], version: str) -> Any:
    """Approve a proposal at a version."""
    return user.post(f"/proposals/{proposal['id']}/approve", {"version": version})


def test_a_user_sends_what_an_agent_proposes(agent: Client, editor: Client, api: Client, list_id: int) -> None:
    """The user sees recipients and content, and the approval sends as any send of the user does."""
    campaign = draft(agent, list_id)
    proposal = propose(agent, "send_campaign", campaign["id"], note="It is Friday.")
    assert (proposal["state"], proposal["note"], proposal["agent_name"]) == ("open", "It is Friday.", "Assistant")
    shown = look(editor, proposal)
    assert (shown["people"], shown["is_changed"]) == (3, False)
    values = {row["label"]: (row["before"], row["after"]) for row in shown["differences"]}
    assert values["Status"] == ("Draft", "Sent") and values["To"] == ("", "Readers")
    assert values["Subject"] == ("", "Hello")
    # Neither the agent nor a program may decide.
    assert approve(agent, proposal, shown["version"]).expect(403)["reason"] == "closed_to_agents"
    assert approve(api, proposal, shown["version"]).expect(403)["required_role"] == "editor"
    assert approve(editor, proposal, shown["version"]).expect(200)["state"] == "approved"
    assert api.get(f"/campaigns/{campaign['id']}").expect(200)["phase"] in ("holding", "sending")
    approve(editor, proposal, shown["version"]).expect(409)


def get_values(user: Client, proposal: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the values that a proposal changes, by their labels."""
    return {row["label"]: (row["before"], row["after"]) for row in look(user, proposal)["differences"]}


def test_all_that_is_sent_is_shown(agent: Client, editor: Client, list_id: int) -> None:
    """Also translations, of variants and flows too, UTM parameters, tracking, custom data and the test."""
    texts = {"subject": "Anders", "body": "<p>Ganz anders {{ unsubscribe_url }}</p>"}
    variant = {"name": "Loud", "subject": "HEL\u202eLO\u200b"}
    experiment = {"metric": "event", "event": "order", "test_share": 0.4, "variants": [{"name": "Calm"}, variant]}
    settings = {"tracking": False, "utm": {"source": "elsewhere"}, "data": {"Name": "x", "name": "y"}}
    campaign = draft(agent, list_id, **settings, experiment=experiment)
    for template in (campaign["template"]["id"], campaign["experiment"]["variants"][1]["template_id"]):
        agent.put(f"/templates/{template}/translations/de", {"texts": {"subject": texts["subject"]}}).expect(200)
    agent.put(f"/templates/{campaign['template']['id']}/translations/de", {"texts": texts}).expect(200)
    values = get_values(editor, propose(agent, "send_campaign", campaign["id"]))
    assert values["German · Subject"] == values["Loud · German · Subject"] == ("", "Anders")
    assert values["German · Content"][1] == texts["body"] and values["Loud · Subject"] == ("", "HEL[U+202E]LO[U+200B]")
    assert values["Tracking"] == ("", "No") and ("", "elsewhere") in values.values()
    assert {values["Data · Name"][1], values["Data · Name (2)"][1]} == {"x", "y"}
    assert ("", "0.4") in values.values() and ("", "order") in values.values()
    flow = agent.post("/flows", {"name": "F", "trigger": {"event": "order"}, "steps": [
        {"filters": SUBSCRIBED, "yes": STEPS}]}).expect(201)  # fmt: skip
    agent.put(f"/templates/{flow['templates'][0]['id']}/translations/de", {"texts": {"subject": "Nein"}}).expect(200)
    values = get_values(editor, propose(agent, "start_flow", flow["id"]))
    assert values["Step 1 · Yes · 1 · German · Subject"] == ("", "Nein")


def test_what_cannot_be_shown_is_not_proposed(agent: Client, editor: Client, api: Client, list_id: int) -> None:
    """A long value is shown to its end, and one that is too long is neither proposed nor approved."""
    end = "</p><p>The end {{ unsubscribe_url }}</p>"
    campaign = draft(agent, list_id)
    path = f"/templates/{campaign['template']['id']}"
    agent.patch(path, {"body": f"<p>{'benign ' * 5_000}{end}"}).expect(200)
    proposal = propose(agent, "send_campaign", campaign["id"])
    assert get_values(editor, proposal)["Body"][1].endswith(end)
    long = f"<p>{'benign ' * 20_000}{end}"
    agent.patch(path, {"body": long}).expect(200)
    shown = look(editor, proposal)
    assert shown["differences"][-1]["label"] == "More"
    assert "more than can be shown" in str(approve(editor, proposal, shown["version"]).expect(422))
    assert api.get(f"/campaigns/{campaign['id']}").expect(200)["phase"] == "draft"
    agent.post(f"/proposals/{proposal['id']}/withdraw").expect(200)
    body = {"kind": "send_campaign", "subject_id": campaign["id"]}
    assert set(agent.post("/proposals", body).expect(422)["validation_errors"]) == {"subject_id"}
    receipt = api.post("/templates", {"name": "Receipt", **TEXT}).expect(201)["id"]
    body = {"kind": "change_template", "subject_id": receipt, "changes": {"body": long}}
    assert set(agent.post("/proposals", body).expect(422)["validation_errors"]) == {"changes"}


def test_a_change_needs_a_new_look(agent: Client, editor: Client, api: Client, list_id: int) -> None:
    """An approval of what was changed meanwhile is refused and sends nothing.

    It was changed by the agent, in a segment of the audience, or in one that decides who sees a section.
    """
    segment = api.post("/segments", {"name": "S", "filters": SUBSCRIBED}).expect(201)["id"]
    campaign = draft(agent, list_id, trigger_attributes={"contact_list_id": list_id, "segment_id": segment})
    shown = api.post("/segments", {"name": "Shown to", "filters": SUBSCRIBED}).expect(201)["id"]
    few = [{"name": "contact_segment", "predicate": "eq", "value": shown}]
    sections = [{"type": "text", "props": {"text": "Hi", "show_if": few}}, {"type": "text", "props": {"text": "All"}}]
    design = {"sections": [*sections, {"type": "footer"}]}
    agent.patch(f"/templates/{campaign['template']['id']}", {"body": None, "design": design}).expect(200)
    proposal = propose(agent, "send_campaign", campaign["id"])
    path = f"/campaigns/{campaign['id']}"
    changes: list[Callable[[], Any]] = [
        lambda: agent.patch(path, {"template_attributes": {"subject": "Other"}}),
        lambda: agent.patch(path, {"tracking": False}),
        lambda: agent.patch(f"/templates/{campaign['template']['id']}", {"subject": "Third"}),
        lambda: api.patch(f"/segments/{segment}", {"filters": []}),
        lambda: api.patch(f"/segments/{shown}", {"filters": []}),
    ]
    for change in changes:
        version = look(editor, proposal)["version"]
        change().expect(200)
        refused = approve(editor, proposal, version).expect(409)
        assert refused["version"] != version and look(editor, proposal)["is_changed"]
    assert api.get(path).expect(200)["phase"] == "draft"
    assert approve(editor, proposal, look(editor, proposal)["version"]).expect(200)["state"] == "approved"
    [use] = api.delete(f"/segments/{shown}").expect(422)["used_by"]
    assert use["campaign_id"] == campaign["id"]


def test_a_segment_that_only_a_proposal_names_counts(agent: Client, editor: Client, api: Client) -> None:
    """Nothing else uses it, so that the agent may change it, but an approval of the earlier state is refused.

    It is named by conditions of a segment, of a section of an email, and of a step.
    """
    narrow = [{"name": "contact_email", "predicate": "eq", "value": "nobody@example.org"}]
    member = {"name": "contact_segment", "predicate": "eq"}
    used = api.post("/segments", {"name": "Used", "filters": SUBSCRIBED}).expect(201)["id"]
    api.post("/lists", {"name": "Mirror of used", "segment_id": used}).expect(201)
    receipt = api.post("/templates", {"name": "Receipt", **TEXT}).expect(201)["id"]
    flow = api.post("/flows", {"name": "N", "trigger": {"event": "named"}, "steps": STEPS}).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)

    def build_design(value: Any) -> dict[str, Any]:
        section = {"type": "text", "props": {"text": "For few", "show_if": [{**member, "value": value}]}}
        return {"design": {"sections": [section, {"type": "footer"}]}}

    def build_steps(value: Any) -> dict[str, Any]:
        return {"steps": [*flow["steps"], {"filters": [{**member, "value": value}], "yes": STEPS}]}

    kinds: tuple[tuple[str, int, Callable[[Any], dict[str, Any]]], ...] = (
        ("change_segment", used, lambda value: {"filters": [{**member, "value": value}]}),
        ("change_template", receipt, build_design),
        ("change_flow", flow["id"], build_steps),
    )
    for kind, subject, build in kinds:
        inner = agent.post("/segments", {"name": "Inner", "filters": narrow}).expect(201)["id"]
        outer = agent.post("/segments", {"name": "Outer", "filters": [{**member, "value": inner}]}).expect(201)["id"]
        proposal = propose(agent, kind, subject, changes=build(outer))
        seen = look(editor, proposal)["version"]
        agent.patch(f"/segments/{inner}", {"filters": []}).expect(200)
        assert look(editor, proposal)["is_changed"], kind
        approve(editor, proposal, seen).expect(409)
        approve(editor, proposal, look(editor, proposal)["version"]).expect(200)


def test_a_change_shows_the_translations_that_it_moves_or_loses(agent: Client, editor: Client, api: Client) -> None:
    """Translations belong to the ids of sections, which the page does not show."""
    sections = [{"id": name, "type": "text", "props": {"content": f"<p>{name}</p>"}} for name in ("aaaa", "bbbb")]
    design = {"sections": [*sections, {"id": "cccc", "type": "footer"}]}
    template = api.post("/templates", {"name": "T", "subject": "Hi", "design": design}).expect(201)["id"]
    path = f"/templates/{template}/translations/de"
    api.put(path, {"texts": {"aaaa/props.content": "<p>A</p>", "bbbb/props.content": "<p>B</p>"}}).expect(200)
    swapped = [{**sections[0], "id": "bbbb"}, {**sections[1], "id": "aaaa"}]
    lost = [{**section, "id": f"new{number}"} for number, section in enumerate(sections)]
    for changed, after in ((swapped, {"<p>A</p>", "<p>B</p>"}), (lost, {""})):
        changes = {"design": {"sections": [*changed, design["sections"][2]]}}
        proposal = propose(agent, "change_template", template, changes=changes)
        values = get_values(editor, proposal)
        moved = {label: pair for label, pair in values.items() if label.startswith("German")}
        assert len(moved) == 2 and {pair[1] for pair in moved.values()} == after, values
        agent.post(f"/proposals/{proposal['id']}/withdraw").expect(200)


def test_a_proposed_time_is_kept(agent: Client, editor: Client, api: Client, list_id: int) -> None:
    """A proposal with a time schedules; one in the past, or an unknown key, is refused when it is made."""
    campaign = draft(agent, list_id)
    body = {"kind": "send_campaign", "subject_id": campaign["id"]}
    for changes in ({"scheduled_at": "2020-01-01T09:00:00Z"}, {"hold_seconds": 0}, {"scheduled_at": 5}):
        response = agent.post("/proposals", {**body, "changes": changes}).expect(422)
        assert all(name.startswith("changes.") for name in response["validation_errors"]), response
    proposal = propose(agent, "send_campaign", campaign["id"], changes={"scheduled_at": "2099-01-01T09:00:00Z"})
    approve(editor, proposal, look(editor, proposal)["version"]).expect(200)
    sent = api.get(f"/campaigns/{campaign['id']}").expect(200)
    assert (sent["phase"], sent["scheduled_at"]) == ("scheduled", "2099-01-01T09:00:00.000Z")


def test_an_sms_to_all_contacts_shows_its_parts(agent: Client, editor: Client, api: Client) -> None:
    """The user sees whom it reaches and how many parts that are; the approval confirms a send to all contacts."""
    number = {"phone": "+14155552671", "opt_in": True, "consent_source": "form"}
    api.post("/contacts", number).expect(201)
    everybody = {"data": {"audience_type": "all_contacts"}}
    body = {"body": "Sale today. Reply STOP to opt out"}
    campaign = agent.post("/campaigns", {
        "name": "Sale", "channel": "sms", "trigger_attributes": everybody, "template_attributes": body,
    }).expect(201)  # fmt: skip
    proposal = propose(agent, "send_campaign", campaign["id"])
    shown = api.wait(f"/proposals/{proposal['id']}", lambda row: row["sms_parts"] is not None)
    assert (shown["people"], shown["sms_parts"], shown["sms_cost"]) == (1, 1, None)
    assert {"label": "To", "before": "", "after": "All contacts"} in shown["differences"]
    # The price is that of a user, not one of the agent.
    for client, price, cost in ((editor, 0.07, 0.07), (agent, 0.00001, 0.07)):
        flow = agent.post("/flows", {"name": "F", "trigger": {"event": "order"}, "steps": STEPS}).expect(201)["id"]
        client.post(f"/flows/{flow}/replay", {"sms_price": price}).expect(202)
        assert look(editor, proposal)["sms_cost"] == cost
    approve(editor, proposal, shown["version"]).expect(200)
    assert api.get(f"/campaigns/{campaign['id']}").expect(200)["phase"] in ("holding", "sending", "completed")


def test_flows_are_started_and_changed_by_approval(agent: Client, editor: Client, api: Client) -> None:
    """An agent drafts a flow and proposes its start; once it is live, it proposes changes. Both come with a replay."""
    flow = agent.post("/flows", {"name": "F", "trigger": {"event": "order"}, "steps": STEPS}).expect(201)
    path = f"/flows/{flow['id']}"
    agent.patch(path, {"goal": "order"}).expect(200)
    proposal = propose(agent, "start_flow", flow["id"])
    assert api.get(f"{path}/replay").expect(200)["days"] == 90
    approve(editor, proposal, look(editor, proposal)["version"]).expect(200)
    assert api.get(path).expect(200)["status"] == "active"
    assert agent.patch(path, {"name": "Mine"}).expect(403)["reason"] == "agent_drafts_only"
    steps = api.get(path).expect(200)["steps"]
    steps[0]["subject"] = "Many thanks"
    receipt = api.post("/templates", {"name": "Receipt", **TEXT}).expect(201)["id"]
    foreign = [{**steps[0], "template_id": receipt}]
    body = {"kind": "change_flow", "subject_id": flow["id"], "changes": {"steps": foreign}}
    assert "changes.steps[0].template_id" in agent.post("/proposals", body).expect(422)["validation_errors"]
    # A change of the trigger and of steps has the words of the flow editor, and nothing of it is left out.
    wait = {"type": "wait_until", "until": "event", "event_name": "order_paid", "timeout": 7_200}
    where = [{"name": "event.total", "predicate": "in", "value": [*range(9)]}]
    more = [*steps, wait, {"type": "random_split", "branches": [{"name": "Loud", "share": 30}, {"share": 70}]}]
    trigger = {"event": "cart_abandoned", "data": {"where": where, "frequency": {"min_gap_seconds": 86_400}}}
    worded = propose(agent, "change_flow", flow["id"], changes={"steps": more, "trigger": trigger})
    values = {label: after for label, (_, after) in get_values(editor, worded).items()}
    assert values["Trigger · Event"] == "Abandoned a cart" and values["Step 2 · Wait until"] == "something happens"
    assert values["Trigger · Data · How often · At most once every"] == "1 day"
    assert values["Step 2 · Wait at most"] == "2 hours"
    assert "8" in values["Trigger · Data · Conditions"] and values["Step 3 · Branch 1 · Name"] == "Loud"
    agent.post(f"/proposals/{worded['id']}/withdraw").expect(200)
    proposal = propose(agent, "change_flow", flow["id"], changes={"steps": [*steps, {"duration": 86_400}]})
    shown = look(editor, proposal)
    assert [(row["label"], row["before"], row["after"]) for row in shown["differences"]] == [
        ("Step 1 · Subject", "Thanks", "Many thanks"), ("Step 2", "", "Wait"), ("Step 2 · Duration", "", "1 day"),
    ]  # fmt: skip
    approve(editor, proposal, shown["version"]).expect(200)
    changed = api.get(path).expect(200)
    assert (changed["steps"][0]["subject"], changed["version"]) == ("Many thanks", 2)


def test_a_proposal_has_no_secrets(agent: Client, editor: Client, api: Client) -> None:
    """Secrets of requests are refused, because a proposal is stored and shown; without values they stay as they are."""
    step = {"type": "http_request", "url": "https://hooks.example.org/a", "signing_secret": "A" * 20,
            "secret_headers": {"Authorization": "Bearer A", "X-Key": "B"}}  # fmt: skip
    flow = api.post("/flows", {"name": "H", "trigger": {"event": "sale"}, "steps": [step]}).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    [stored] = flow["steps"]
    split = {"filters": SUBSCRIBED, "yes": [{"type": "notify", "via": "slack", "slack_url": "https://a.example/x"}]}
    body = {"kind": "change_flow", "subject_id": flow["id"]}
    for steps, fields in (
        ([{**stored, "signing_secret": "B" * 20}], {"signing_secret"}),
        ([{**stored, "secret_headers": {"Authorization": "Bearer B", "X-Key": None}}], {"secret_headers"}),
        ([{**step, "url": "https://evil.example.org"}], {"signing_secret", "secret_headers"}),
    ):
        errors = agent.post("/proposals", {**body, "changes": {"steps": steps}}).expect(422)["validation_errors"]
        assert set(errors) == {f"changes.steps[0].{field}" for field in fields}
    refused = agent.post("/proposals", {**body, "changes": {"steps": [stored, split]}}).expect(422)
    assert set(refused["validation_errors"]) == {"changes.steps[1].yes[0].slack_url"}
    kept = {**stored, "url": "https://hooks.example.org/b", "secret_headers": {"Authorization": None}}
    values = get_values(editor, propose(agent, "change_flow", flow["id"], changes={"steps": [kept]}))
    assert values["Step 1 · Secret headers"] == ("Authorization and X-Key", "Authorization")


def test_templates_and_segments_in_use_change_by_approval(agent: Client, editor: Client, api: Client) -> None:
    """An agent changes its own template until somebody else does, and a segment until something uses it."""
    own = agent.post("/templates", {"name": "Own", **TEXT}).expect(201)["id"]
    agent.patch(f"/templates/{own}", {"subject": "Okay"}).expect(200)
    api.patch(f"/templates/{own}", {"subject": "Better"}).expect(200)
    assert agent.patch(f"/templates/{own}", {"subject": "Worse"}).expect(403)["reason"] == "agent_drafts_only"
    proposal = propose(agent, "change_template", own, changes={"subject": "Worse"})
    shown = look(editor, proposal)
    assert shown["differences"] == [{"label": "Subject", "before": "Better", "after": "Worse"}]
    approve(editor, proposal, shown["version"]).expect(200)
    assert api.get(f"/templates/{own}").expect(200)["subject"] == "Worse"
    flow = api.post("/flows", {"name": "Receipts", "trigger": {"event": "sale"}, "steps": STEPS}).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    changes = {"subject": "Thank you!"}
    proposal = propose(agent, "change_template", flow["templates"][0]["id"], changes=changes)
    assert {"label": "In use by", "before": "Receipts", "after": "Receipts"} in look(editor, proposal)["differences"]
    segment = agent.post("/segments", {"name": "S", "filters": []}).expect(201)["id"]
    agent.patch(f"/segments/{segment}", {"filters": SUBSCRIBED}).expect(200)
    api.post("/lists", {"name": "Mirror", "segment_id": segment}).expect(201)
    assert agent.patch(f"/segments/{segment}", {"filters": []}).expect(403)["reason"] == "agent_drafts_only"
    proposal = propose(agent, "change_segment", segment, changes={"filters": []})
    shown = look(editor, proposal)
    assert shown["people"] >= shown["people_before"] and {"In use by"} < {row["label"] for row in shown["differences"]}
    approve(editor, proposal, shown["version"]).expect(200)
    assert api.get(f"/segments/{segment}").expect(200)["filters"] == []


def test_programs_send_no_template_that_an_agent_can_still_change(agent: Client, api: Client) -> None:
    """A user takes it over as the page showed it; from then on the agent proposes its changes."""
    design = {"sections": [{"type": "text", "props": {"text": "Hi"}}, {"type": "footer"}]}
    browser, shown = ScriptlessBrowser(api), r'take-over"><input type="hidden" name="revision" value="(\d+)"'
    for content, place in ((TEXT, "banner"), ({"subject": "Hello", "design": design}, "editor-menu")):
        own = agent.post("/templates", {"name": "Own", **content}).expect(201)["id"]
        message = {"to": "a@example.org", "template_id": own}
        for body, path in ((message, "/messages"), ({"messages": [message]}, "/messages/batch")):
            assert "made by an agent" in str(api.post(path, body).json), path
        page = browser.get(f"/templates/{own}/edit")
        assert place in page and f"/templates/{own}/take-over" in page
        [seen] = re.findall(shown, page)
        agent.patch(f"/templates/{own}", {"subject": "Changed in between"}).expect(200)
        assert "Look at it again" in browser.post(f"/templates/{own}/take-over", revision=seen)
        agent.patch(f"/templates/{own}", {"subject": "Still its own"}).expect(200)
        [seen] = re.findall(shown, browser.get(f"/templates/{own}/edit"))
        browser.post(f"/templates/{own}/take-over", revision=seen)
        assert agent.patch(f"/templates/{own}", {"subject": "Too late"}).expect(403)["reason"] == "agent_drafts_only"
        api.post("/messages", message).expect(201)
        assert "take-over" not in browser.get(f"/templates/{own}/edit")


def test_programs_send_no_draft_that_an_agent_wrote(agent: Client, api: Client, editor: Client, list_id: int) -> None:
    """Templates of campaigns, their variants and flows: until a user takes them over, sends or starts them."""
    browser, shown = ScriptlessBrowser(editor), r'take-over"><input type="hidden" name="revision" value="(\d+)"'
    experiment = {"metric": "clicks", "variants": [{"name": "A"}, {"name": "B", "subject": "B"}]}
    campaign = draft(agent, list_id, experiment=experiment)
    copy = agent.post(f"/campaigns/{campaign['id']}/duplicate").expect(201)
    flow = agent.post("/flows", {"name": "F", "trigger": {"event": "sale"}, "steps": [TEXT]}).expect(201)
    variant = campaign["experiment"]["variants"][1]["template_id"]
    first, step = campaign["template"]["id"], flow["templates"][0]["id"]
    for template in (first, variant, step, copy["template"]["id"]):
        message = {"to": "a@example.org", "template_id": template}
        for body, path in ((message, "/messages"), ({"messages": [message]}, "/messages/batch")):
            assert "made by an agent" in str(api.post(path, body).json), (path, template)
    step_path = f"/flows/{flow['id']}/steps/{flow['steps'][0]['id']}/content"
    for template, path in ((first, f"/campaigns/{campaign['id']}/content"), (step, step_path)):
        [seen] = re.findall(shown, browser.get(path))
        agent.patch(f"/templates/{template}", {"subject": "Changed in between"}).expect(200)
        assert "Look at it again" in browser.post(f"/templates/{template}/take-over", revision=seen)
        [seen] = re.findall(shown, browser.get(path))
        assert "take-over" not in browser.post(f"/templates/{template}/take-over", revision=seen)
        api.post("/messages", {"to": "a@example.org", "template_id": template}).expect(201)
    # A draft of the team is a draft of the agent's again once an agent has written in it.
    own = draft(api, list_id)
    message = {"to": "a@example.org", "template_id": own["template"]["id"]}
    agent.patch(f"/campaigns/{own['id']}", {"name": "Renamed"}).expect(200)
    path = f"/templates/{message['template_id']}/translations/de"
    agent.put(path, {"texts": {"subject": "Hallo"}}).expect(200)
    assert "made by an agent" in str(api.post("/messages", message).json)
    api.patch(f"/templates/{message['template_id']}", {"subject": "Mine"}).expect(200)
    agent.patch(f"/campaigns/{own['id']}", {"name": "Renamed again"}).expect(200)
    api.post("/messages", message).expect(201)
    agent.patch(f"/campaigns/{own['id']}", {"template_attributes": {"subject": "After it was sent"}}).expect(200)
    assert "made by an agent" in str(api.post("/messages", message).json)
    # An approval is a look at all of it.
    started = agent.post("/flows", {"name": "G", "trigger": {"event": "sale"}, "steps": [TEXT]}).expect(201)
    message = {"to": "a@example.org", "template_id": started["templates"][0]["id"]}
    assert "made by an agent" in str(api.post("/messages", message).json)
    proposal = propose(agent, "start_flow", started["id"])
    approve(editor, proposal, look(editor, proposal)["version"]).expect(200)
    api.post("/messages", message).expect(201)


def test_an_agent_cancels_only_its_own_replay(agent: Client, api: Client) -> None:
    """A replay that a user or a program started goes on; with a cancelled one, the agent would take its place."""
    flow = api.post("/flows", {"name": "R", "trigger": {"event": "visit"}, "steps": STEPS}).expect(201)
    path = f"/flows/{flow['id']}/replay"
    agent.delete(path).expect(404)
    api.post(path, {"days": 30}).expect(202)
    assert agent.delete(path).expect(403)["reason"] == "agent_drafts_only"
    assert api.get(path).expect(200)["state"] != "cancelled"
    api.delete(path).expect(200)
    agent.post(path).expect(202)
    agent.delete(path).expect(200)


def test_a_returned_proposal_has_a_note_for_its_agent(
    server: Server, agent: Client, owner: Client, editor: Client, list_id: int
) -> None:
    """The agent reads the note and proposes again; another agent sees none of it."""
    campaign = draft(agent, list_id)
    proposal = propose(agent, "send_campaign", campaign["id"])
    path = f"/proposals/{proposal['id']}"
    agent.post("/proposals", {"kind": "send_campaign", "subject_id": campaign["id"]}).expect(409)
    assert editor.post(f"{path}/return", {"note": "Shorter, please."}).expect(200)["state"] == "returned"
    assert agent.get(path).expect(200)["answer"] == "Shorter, please."
    again = propose(agent, "send_campaign", campaign["id"])
    other = create_agent(server, owner, "Other")
    for method, tail in (("GET", ""), ("POST", "/withdraw")):
        assert other.send(method, f"/proposals/{again['id']}{tail}", None if method == "GET" else {}).status == 404
    assert other.get("/proposals").expect(200) == []
    assert agent.post(f"/proposals/{again['id']}/withdraw").expect(200)["state"] == "withdrawn"
    editor.post(f"/proposals/{again['id']}/return").expect(409)


def test_a_proposal_answers_no_question_about_contacts_to_a_narrow_key(
    server: Server, owner: Client, api: Client
) -> None:
    """The number of contacts that meet conditions, and content, need the scopes with which they are read (T45)."""
    segment = api.post("/segments", {"name": "S", "filters": SUBSCRIBED}).expect(201)["id"]
    body = {"kind": "change_segment", "subject_id": segment, "changes": {"filters": []}}
    proposal = api.post("/proposals", body).expect(201)
    for more, missing in (("", "contacts:read"), (",contacts:read", "events:read")):
        key = {"name": "Narrow", "scope": "campaigns:read,campaigns:write" + more}
        narrow = server.client(owner.post("/api_keys", key).expect(201)["key"])
        assert narrow.post("/proposals", body).expect(403)["required_scope"] == missing
        flow = {"kind": "change_flow", "subject_id": 1, "changes": {"name": 5}}
        assert narrow.post("/proposals", flow).expect(403)["required_scope"] == "flows:read"
        assert narrow.get(f"/proposals/{proposal['id']}").status == (200 if more else 404)
        seen = {row["kind"] for row in narrow.get("/proposals", limit=100).expect(200)}
        assert seen <= {"send_campaign", "change_segment"} and ("change_segment" in seen) == bool(more)
    api.post(f"/proposals/{proposal['id']}/withdraw").expect(200)


def test_an_author_decides_nothing(server: Server, agent: Client, list_id: int) -> None:
    """Only users who may send decide, and only in their own account."""
    author = add_user(server, "author")
    proposal = propose(agent, "send_campaign", draft(agent, list_id)["id"])
    version = look(author, proposal)["version"]
    assert approve(author, proposal, version).expect(403)["required_scope"] == "campaigns:send"
    author.post(f"/proposals/{proposal['id']}/return").expect(403)
    account_id = int(server.cli("account", "add", "Elsewhere").stdout)
    stranger = add_user(server, "owner", account_id, "stranger")
    for method, path in (("GET", ""), ("POST", "/approve"), ("POST", "/return")):
        body = None if method == "GET" else {"version": version}
        assert stranger.send(method, f"/proposals/{proposal['id']}{path}", body).status == 404, path
    assert stranger.get("/proposals").expect(200) == []
    assert stranger.get("/agents").expect(200)["agents"] == []


def test_the_work_of_an_agent_counts_as_that_of_its_creator(
    server: Server, agent: Client, owner: Client, editor: Client, list_id: int
) -> None:
    """Where another user must approve, the creator of the key is not another one, and an editor may not approve."""
    admin = add_user(server, "admin")
    owner.patch("/account", {"approval_required": True, "approval_by_another": True}).expect(200)
    try:
        proposal = propose(agent, "send_campaign", draft(agent, list_id)["id"])
        version = look(owner, proposal)["version"]
        for user in (owner, editor):
            assert approve(user, proposal, version).expect(403)["required_scope"] == "campaigns:approve"
        approve(admin, proposal, version).expect(200)
    finally:
        owner.patch("/account", {"approval_required": False, "approval_by_another": False}).expect(200)


def test_every_act_is_in_the_audit_log(agent: Client, owner: Client, api: Client, list_id: int) -> None:
    """Each draft, change, test and proposal is there, under the key of the agent."""
    campaign = draft(agent, list_id)
    agent.patch(f"/campaigns/{campaign['id']}", {"name": "Other"}).expect(200)
    agent.post(f"/campaigns/{campaign['id']}/duplicate").expect(201)
    template = agent.post("/templates", {"name": "T", **TEXT}).expect(201)["id"]
    agent.patch(f"/templates/{template}", {"subject": "Hi"}).expect(200)
    agent.put(f"/templates/{template}/translations/de", {"texts": {"subject": "Hallo"}}).expect(200)
    agent.delete(f"/templates/{template}/translations/de").expect(200)
    email = owner.get("/user").expect(200)["email"]
    agent.post(f"/templates/{template}/send_test", {"email": email}).expect(200)
    segment = agent.post("/segments", {"name": "S"}).expect(201)["id"]
    agent.patch(f"/segments/{segment}", {"name": "T"}).expect(200)
    flow = agent.post("/flows", {"name": "F", "trigger": {"event": "sale"}, "steps": STEPS}).expect(201)["id"]
    agent.patch(f"/flows/{flow}", {"name": "G"}).expect(200)
    agent.post(f"/flows/{flow}/replay").expect(202)
    agent.delete(f"/flows/{flow}/replay").expect(200)
    proposal = propose(agent, "send_campaign", campaign["id"])
    agent.post(f"/proposals/{proposal['id']}/withdraw").expect(200)
    actor = f"key:{proposal['api_key_id']}"
    actions = [row["action"] for row in reversed(owner.get("/audit", actor=actor, limit=100).expect(200))]
    assert actions == [
        "campaign_create", "campaign_update", "campaign_create", "template_create", "template_update",
        "template_update", "template_update", "template_test", "segment_create", "segment_update", "flow_create",
        "flow_update", "flow_replay", "flow_replay_cancel", "proposal_create", "proposal_withdraw",
    ]  # fmt: skip


def test_an_agent_tests_only_to_users(agent: Client, api: Client) -> None:
    """A test goes to users alone, at most ten an hour."""
    template = agent.post("/templates", {"name": "T", **TEXT}).expect(201)["id"]
    path, users = f"/templates/{template}/send_test", ["owner@example.com", "a@example.org"]
    agent.post(path, {"emails": users}).expect(403)
    counts = [agent.post(path, {"email": "editor@example.org"}).status for _ in range(12)]
    assert counts.count(200) <= 10 and counts[-1] == 429


def test_users_are_told_by_email_without_words_of_the_agent(
    server: Server, owner: Client, api: Client, list_id: int
) -> None:
    """All who may decide get one email; further proposals within a quarter of an hour bring none."""
    before = len([row for row in api.all("/messages") if row["source_type"] == "system"])
    agent = create_agent(server, owner, "Writer")
    for _ in range(2):
        campaign = draft(agent, list_id, name="Click evil.example")
        propose(agent, "send_campaign", campaign["id"], note="Click evil.example")
    mails = [row for row in api.all("/messages") if row["source_type"] == "system"]
    # The first test of the module made the first proposal, for the owner and the editor.
    assert before >= 2 and len(mails) == before
    texts = [api.get(f"/messages/{row['id']}").expect(200) for row in mails]
    assert all("evil" not in str(text["html"]) for text in texts)
    assert any("/proposals/" in str(text["html"]) for text in texts)


def test_a_preflight_of_an_agent_requests_no_links(agent: Client, api: Client, list_id: int) -> None:
    """What an agent has read could leave in the address of a link that the service requests."""
    links = {"template_attributes": {"subject": "S", "body": '<p><a href="http://127.0.0.1:1/?q=secret">x</a></p>'}}
    campaign = draft(agent, list_id, **links)
    path = f"/campaigns/{campaign['id']}/preflight"
    assert "links" not in agent.get(path).expect(200)["facts"]
    proposal = propose(agent, "send_campaign", campaign["id"])
    page = f"/proposals/{proposal['id']}"
    user = ScriptlessBrowser(api)
    assert "Preflight" in user.get(page)
    codes = ("link_broken", "link_unchecked")
    checked = api.wait(path, lambda row: any(finding["code"] in codes for finding in row["warnings"]))
    [message] = [finding["message"] for finding in checked["warnings"] if finding["code"] in codes]
    assert message.partition("(")[0] not in user.get(page)


def test_one_switch_stops_all_agents_at_once(server: Server, agent: Client, owner: Client, editor: Client) -> None:
    """Over the API and on the command line; only owners and admins may, and keys of programs go on."""
    assert agent.get("/campaigns").status == 200
    editor.post("/agents/stop").expect(403)
    assert owner.post("/agents/stop").expect(200)["stopped_at"] is not None
    for method, path in (("GET", "/campaigns"), ("POST", "/segments"), ("POST", "/messages")):
        response = agent.send(method, path, None if method == "GET" else {"name": "S"})
        assert response.expect(403)["reason"] == "agents_stopped"
    assert server.client().get("/campaigns").status == 200
    assert owner.post("/agents/resume").expect(200)["stopped_at"] is None
    assert agent.get("/campaigns").status == 200
    server.cli("agents", "stop")
    assert agent.get("/campaigns").status == 403
    server.cli("agents", "resume")
    assert agent.get("/campaigns").status == 200
    actions = [row["action"] for row in owner.get("/audit", subject="account:1", limit=4).expect(200)]
    assert actions == ["agents_resume", "agents_stop", "agents_resume", "agents_stop"]


def test_acts_are_limited_and_reads_are_not(server: Server, owner: Client) -> None:
    """After 40 acts the response is 429 with the time; another agent and reads go on."""
    agent = create_agent(server, owner, "Busy")
    statuses = [agent.post("/segments", {"name": f"S{number}"}).status for number in range(41)]
    assert statuses == [201] * 40 + [429]
    response = agent.post("/segments", {"name": "One more"})
    assert response.expect(429)["reason"] == "agent_acts" and 3500 < int(response.headers["Retry-After"]) <= 3600
    assert agent.get("/segments").status == 200
    assert create_agent(server, owner, "Idle").post("/segments", {"name": "Free"}).status == 201
    [busy] = [row for row in owner.get("/agents").expect(200)["agents"] if row["name"] == "Busy"]
    assert busy["acts"] == 40
