"""What a proposal shows over the API is what its approval does: flows, templates and segments."""

from typing import Any

from tests.api.test_proposals import SUBSCRIBED, TEXT, agent, approve, draft, editor, get_values, look, propose
from tests.kit.client import Client
from tests.kit.server import Server

__all__ = ["agent", "editor"]
SERVER_ENV = {"CAMPANERO_LIMITS__AGENT_ACTS_PER_HOUR": "400"}
NAMES = ("aaaa", "bbbb")


def build_sections(*names: str) -> list[dict[str, Any]]:
    """Return text sections with these ids, whose texts are always those of `NAMES`, and a footer."""
    texts = [{"id": name, "type": "text", "props": {"content": f"<p>{text}</p>"}}
             for name, text in zip(names, NAMES, strict=True)]  # fmt: skip
    return [*texts, {"id": "cccc", "type": "footer"}]


def activate(api: Client, steps: list[dict[str, Any]], event: str = "sale") -> Any:
    """Return a new active flow."""
    flow = api.post("/flows", {"name": "F", "trigger": {"event": event}, "steps": steps}).expect(201)
    return api.post(f"/flows/{flow['id']}/activate").expect(200)


def withdraw(agent: Client, proposal: dict[str, Any]) -> None:
    """Withdraw a proposal, so that the next one for the same object can be made."""
    agent.post(f"/proposals/{proposal['id']}/withdraw").expect(200)


def test_a_flow_change_shows_the_translations_that_it_moves_or_loses(
    agent: Client, editor: Client, api: Client
) -> None:
    """A translation belongs to a section by its id, and to a step by its id; both can be exchanged unseen."""
    email = {"subject": "Hi", "design": {"sections": build_sections(*NAMES)}}
    flow = activate(api, [email, email])
    for template, subject in zip(flow["templates"], ("Eins", "Zwei"), strict=True):
        path = f"/templates/{template['id']}/translations/de"
        texts = {f"{name}/props.content": f"<p>{subject} {name}</p>" for name in NAMES}
        api.put(path, {"texts": {"subject": subject, **texts}}).expect(200)
    first, second = api.get(f"/flows/{flow['id']}").expect(200)["steps"]
    swapped = {**first, "design": {"sections": build_sections(*reversed(NAMES))}}
    proposal = propose(agent, "change_flow", flow["id"], changes={"steps": [swapped, second]})
    values = get_values(editor, proposal)
    moved = {pair for label, pair in values.items() if "German" in label}
    assert moved == {("<p>Eins aaaa</p>", "<p>Eins bbbb</p>"), ("<p>Eins bbbb</p>", "<p>Eins aaaa</p>")}, values
    withdraw(agent, proposal)
    proposal = propose(agent, "change_flow", flow["id"], changes={"steps": [second, first]})
    values = get_values(editor, proposal)
    assert values["Step 1 · German · Subject"] == ("Eins", "Zwei")
    assert values["Step 1"] == ("Email", "Email (moved from Step 2)")
    withdraw(agent, proposal)
    new = {name: value for name, value in first.items() if name not in ("id", "template_id")}
    proposal = propose(agent, "change_flow", flow["id"], changes={"steps": [new, second]})
    values = get_values(editor, proposal)
    assert values["Step 1 · German · Subject"] == ("Eins", "") and values["Step 1"] == ("Email", "Email (new)")
    approve(editor, proposal, look(editor, proposal)["version"]).expect(200)
    [template] = [row for row in api.get(f"/flows/{flow['id']}").expect(200)["templates"] if row["languages"]]
    assert template["id"] == flow["templates"][1]["id"]


def test_exchanged_secrets_are_shown(agent: Client, editor: Client, api: Client) -> None:
    """Steps with the same names of secret headers keep their secrets by their ids, so a swap sends them elsewhere."""
    steps = [
        {"type": "http_request", "url": f"https://hooks.example.org/{name}", "secret_headers": {"X-Key": name * 20}}
        for name in "ab"
    ]
    flow = activate(api, steps)
    first, second = flow["steps"]
    swapped = [{**first, "id": second["id"]}, {**second, "id": first["id"]}]
    values = get_values(editor, propose(agent, "change_flow", flow["id"], changes={"steps": swapped}))
    assert values == {
        "Step 1": ("HTTP request", "HTTP request (moved from Step 2)"),
        "Step 2": ("HTTP request", "HTTP request (moved from Step 1)"),
    }


def test_a_trigger_is_shown_as_it_will_be_stored(agent: Client, editor: Client, api: Client) -> None:
    """Keys that the request leaves out stay, and without an event a segment decides the event."""
    segment = api.post("/segments", {"name": "VIP", "filters": SUBSCRIBED}).expect(201)["id"]
    trigger = {"event": "sale", "segment_id": segment, "data": {"tag": "a", "other": 0}}
    flow = api.post("/flows", {"name": "T", "trigger": trigger, "steps": [TEXT]}).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    changes: list[tuple[dict[str, Any], dict[str, tuple[str, str]]]] = [
        ({"event": None}, {"Trigger · Event": ("Sale", "Entered a segment")}),
        ({"data": {"tag": "a", "other": False}}, {"Trigger · Data · other": ("0", "No")}),
        ({"data": {"tag": "a"}}, {"Trigger · Data · other": ("0", "")}),
    ]
    for change, expected in changes:
        proposal = propose(agent, "change_flow", flow["id"], changes={"trigger": change})
        values = get_values(editor, proposal)
        assert {label: pair for label, pair in values.items() if label.startswith("Trigger")} == expected
        withdraw(agent, proposal)
    proposal = propose(agent, "change_flow", flow["id"], changes={"trigger": {"event": None}})
    approve(editor, proposal, look(editor, proposal)["version"]).expect(200)
    stored = api.get(f"/flows/{flow['id']}").expect(200)["trigger"]
    assert (stored["event"], stored["segment_id"], stored["data"]["tag"]) == ("segment_enter", segment, "a")


def test_values_that_a_step_removes_are_shown(agent: Client, editor: Client, api: Client) -> None:
    """A null in a step means something, such as to remove a custom field, also in a flow that starts."""
    update = {"type": "contact_update", "data_merge": {"vip": None, "level": ""}}
    flow = agent.post("/flows", {"name": "S", "trigger": {"event": "sale"}, "steps": [update]}).expect(201)
    values = get_values(editor, propose(agent, "start_flow", flow["id"]))
    assert values["Step 1 · Custom fields · vip"] == ("", "null")
    assert values["Step 1 · Custom fields · level"] == ("", '""')


def test_all_conditions_of_a_segment_are_shown(agent: Client, editor: Client, api: Client) -> None:
    """The sentence names six values at most; a change of the ninth is shown by the conditions as JSON."""
    condition = {"name": "contact_email", "predicate": "in"}
    addresses = [f"{number}@example.org" for number in range(9)]
    segment = api.post("/segments", {"name": "Few", "filters": [{**condition, "value": addresses}]}).expect(201)["id"]
    api.post("/lists", {"name": "Mirror of few", "segment_id": segment}).expect(201)
    changed = [{**condition, "value": [*addresses[:-1], "hidden@example.org"]}]
    values = get_values(editor, propose(agent, "change_segment", segment, changes={"filters": changed}))
    assert "hidden@example.org" in values["Conditions"][1] and "8@example.org" in values["Conditions"][0]


def test_sections_without_values_and_their_order_are_shown(agent: Client, editor: Client, api: Client) -> None:
    """A section that has no values, and the order of sections of different kinds, change what is sent too."""
    heading, text = {"type": "heading", "props": {"text": "H"}}, {"type": "text", "props": {"content": "T"}}
    template = api.post(
        "/templates", {"name": "T", "subject": "Hi", "design": {"sections": [heading, text, {"type": "footer"}]}}
    ).expect(201)["id"]
    for sections, order in (
        ([text, heading, {"type": "footer"}], "Text 1, Heading 1, Footer 1"), ([heading, text], "Heading 1, Text 1"),
    ):  # fmt: skip
        proposal = propose(agent, "change_template", template, changes={"design": {"sections": sections}})
        assert get_values(editor, proposal) == {"Order of sections": ("Heading 1, Text 1, Footer 1", order)}
        withdraw(agent, proposal)


def test_content_that_is_copied_from_a_removed_step_is_shown(agent: Client, editor: Client, api: Client) -> None:
    """A proposal may name a step that a user removes later; its template is then copied to a new step."""
    flow = activate(api, [TEXT, {**TEXT, "subject": "Second"}])
    first, second = flow["steps"]
    named = {"id": second["id"], "type": "email", "template_id": second["template_id"]}
    proposal = propose(agent, "change_flow", flow["id"], changes={"steps": [first, named]})
    editor.patch(f"/flows/{flow['id']}", {"steps": [first]}).expect(200)
    shown = look(editor, proposal)
    assert shown["is_changed"]
    values = {row["label"]: row["after"] for row in shown["differences"]}
    assert values["Step 2 · Subject"] == "Second" and TEXT["body"] in values.values()
    approve(editor, proposal, shown["version"]).expect(200)
    assert [step["subject"] for step in api.get(f"/flows/{flow['id']}").expect(200)["steps"]] == ["Hello", "Second"]


def test_an_id_of_another_type_is_refused(agent: Client, api: Client) -> None:
    """It is an error of the request like any other."""
    flow = activate(api, [TEXT])
    for value in ([1], {"a": 1}, True):
        steps = [{**TEXT, "id": value, "template_id": 1}]
        body = {"kind": "change_flow", "subject_id": flow["id"], "changes": {"steps": steps}}
        assert agent.post("/proposals", body).status == 422, value


def test_segments_are_shown_with_their_conditions(
    server: Server, owner: Client, agent: Client, editor: Client, api: Client
) -> None:
    """Those of audiences, triggers, steps, sections and of other segments, to who may read contacts."""
    condition = {"name": "contact_email", "predicate": "cont", "value": "everybody.example"}
    inner = agent.post("/segments", {"name": "Only the board\u202e", "filters": [condition]}).expect(201)["id"]
    member = {"name": "contact_segment", "predicate": "eq", "value": inner}
    outer = agent.post("/segments", {"name": "Few", "filters": [member]}).expect(201)["id"]
    list_id = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    api.post("/contacts", {"email": "a@everybody.example", "opt_in": True, "list_ids": [list_id]}).expect(201)
    row = ("Email address contains “everybody.example”",) * 2
    shown = {"Segment “Only the board[U+202E]”": row, "Segment “Few”": ("In the segment “Only the board[U+202E]”",) * 2}
    design = {"sections": [{"type": "text", "props": {"content": "Hi", "show_if": [member]}}, {"type": "footer"}]}
    trigger = {"contact_list_id": list_id, "segment_id": outer}
    campaign = draft(agent, list_id, trigger_attributes=trigger)
    flow = agent.post("/flows", {"name": "S", "trigger": {"event": "sale", "segment_id": outer}, "steps": [TEXT]})
    live, template = activate(api, [TEXT]), api.post("/templates", {"name": "T", **TEXT}).expect(201)
    mirrored = api.post("/segments", {"name": "M", "filters": SUBSCRIBED}).expect(201)["id"]
    api.post("/lists", {"name": "Mirror of M", "segment_id": mirrored}).expect(201)
    inside = {"Segment “Only the board[U+202E]”": row}
    for kind, subject, changes, expected in (
        ("send_campaign", campaign["id"], {}, shown),
        ("start_flow", flow.expect(201)["id"], {}, shown),
        ("change_flow", live["id"], {"trigger": {"event": "sale", "segment_id": outer}}, shown),
        ("change_flow", live["id"], {"steps": [{"filters": [member], "yes": [TEXT]}]}, inside),
        ("change_flow", live["id"], {"steps": [{"subject": "S", "design": design}]}, inside),
        ("change_flow", live["id"], {"name": "Renamed"}, {}),
        ("change_segment", mirrored, {"filters": [member]}, inside),
        ("change_template", template["id"], {"body": None, "design": design}, inside),
    ):
        proposal = propose(agent, kind, subject, changes=changes)
        values = {label: pair for label, pair in get_values(editor, proposal).items() if label.startswith("Segment “")}
        assert values == expected, (kind, changes)
        if kind == "send_campaign":
            audience = [(row["label"], row["after"]) for row in look(editor, proposal)["differences"]][2:4]
            assert audience == [("To", "Readers"), ("Narrow by segment", "Few")]
            key = {"name": "Narrow", "scope": "campaigns:read"}
            narrow = server.client(owner.post("/api_keys", key).expect(201)["key"])
            assert "everybody.example" not in str(look(narrow, proposal)["differences"])
        withdraw(agent, proposal)


def test_an_unchanged_flow_shows_no_change(agent: Client, editor: Client, api: Client) -> None:
    """Neither the steps and the trigger as they were read, nor what was just approved, differ from what is stored."""
    list_id = int(api.post("/lists", {"name": "Buyers"}).expect(201)["id"])
    email = {"subject": "Hi", "design": {"sections": build_sections(*NAMES)}, "utm": {"source": "flow"}}
    steps = [
        email, {"type": "sms", "body": "Hello. Reply STOP to opt out"}, {"duration": 60},
        {"type": "wait_until", "until": "time", "at": "09:00", "weekdays": ["mon"]},
        {"filters": SUBSCRIBED, "yes": [{"type": "tag_add", "tag": "a"}], "no": [{"type": "exit"}]},
        {"type": "random_split", "branches": [{"name": "A", "share": 30, "steps": [TEXT]}, {"share": 70}]},
        {"type": "emit_event", "event_name": "bought", "event_data": {"a": 0, "b": None, "c": False}},
        {"type": "list_add", "contact_list_id": list_id},
        {"type": "contact_update", "data_merge": {"vip": None, "level": 0}},
        {"type": "http_request", "url": "https://hooks.example.org/", "payload": {"a": None}, "timeout": 60,
         "headers": {"X-A": "a"}, "secret_headers": {"X-B": "b" * 20}, "signing_secret": "s" * 20},
    ]  # fmt: skip
    trigger = {"event": "sale", "contact_list_id": list_id, "data": {"frequency": "once", "other": [0, None, {}]}}
    body = {"name": "All", "trigger": trigger, "goal": "bought", "steps": steps, "data": {"name": 1, "Name": None}}
    flow = api.post("/flows", body).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    for template in flow["templates"][:1]:
        api.put(f"/templates/{template['id']}/translations/de", {"texts": {"subject": "Hallo"}}).expect(200)
    flow = api.get(f"/flows/{flow['id']}").expect(200)
    same = {name: flow[name] for name in ("name", "goal", "steps", "data")}
    same["trigger"] = {name: flow["trigger"][name] for name in ("event", "segment_id", "contact_list_id", "data")}
    proposal = propose(agent, "change_flow", flow["id"], changes=same)
    assert get_values(editor, proposal) == {}
    withdraw(agent, proposal)
    same["steps"] = [*flow["steps"][3:], *flow["steps"][:3], {**email, "subject": "New"}]
    proposal = propose(agent, "change_flow", flow["id"], changes=same)
    assert get_values(editor, proposal)["Step 1"] == ("Email", "Wait until (moved from Step 4)")
    approve(editor, proposal, look(editor, proposal)["version"]).expect(200)
    same["steps"] = api.get(f"/flows/{flow['id']}").expect(200)["steps"]
    assert get_values(editor, propose(agent, "change_flow", flow["id"], changes=same)) == {}
