"""A hostile agent tries to send with a key that only drafts: each try is refused, and nothing leaves (T49).

The agent knows all ids and the addresses of all contacts. The tries are a table; what must be true after all of them is
read from the ledger, from the objects and from the SMTP server.
"""

import json
import smtplib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from appliance.api.routes import ROUTES
from tests.doors.posting import authorize
from tests.kit.api_users import user_client
from tests.kit.client import Client, Response
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer
from tests.kit.submission import Ports
from tests.mcp.assistant import Assistant

VICTIM, FUTURE, PAST = "victim@example.org", "2099-01-01T09:00:00Z", "2020-01-01T09:00:00Z"
TEXT = {"subject": "Hello", "body": "<p>Hello {{ unsubscribe_url }}</p>"}
TAKEN = {"subject": "Taken over", "body": "<p>Taken over {{ unsubscribe_url }}</p>"}
EVENT = "order_placed"


class World(NamedTuple):
    """An account with live, scheduled and drafted objects, by their ids, and an agent."""

    server: Server
    ports: Ports
    api: Client
    owner: Client
    agent: Client
    key: str
    ids: dict[str, int]
    form_key: str


@pytest.fixture(scope="module")
def world(relay: SmtpServer) -> Iterator[World]:
    """Yield an account where nothing is due, and an agent with all scopes that an agent may have."""
    ports = Ports()
    limits = {"CAMPANERO_LIMITS__AGENT_ACTS_PER_HOUR": "1000", "CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "50"}
    with Server(relay=relay.port, env=ports.env | limits).set_up() as server:
        server.set_postal_address()
        api, owner = server.client(), user_client(server)
        yield build_world(server, ports, api, owner)
        server.stop()


def build_world(server: Server, ports: Ports, api: Client, owner: Client) -> World:
    """Create the objects that the agent attacks."""
    ids: dict[str, int] = {}

    def create(name: str, path: str, body: Any) -> dict[str, Any]:
        row: dict[str, Any] = api.post(path, body).expect(201)
        ids[name] = row["id"]
        return row

    create("list", "/lists", {"name": "Readers"})
    create("victim", "/contacts", {"email": VICTIM, "opt_in": True, "list_ids": [ids["list"]]})
    used = [{"name": "contact_subscribed_email", "predicate": "true", "value": True}]
    create("segment", "/segments", {"name": "In use", "filters": used})
    create("inner", "/segments", {"name": "Inner", "filters": used})
    create("outer", "/segments", {"name": "Outer", "filters": [
        {"name": "contact_segment", "predicate": "eq", "value": ids["inner"]}]})  # fmt: skip
    create("mirrored", "/segments", {"name": "Mirrored", "filters": used})
    create("mirror", "/lists", {"name": "Mirror", "segment_id": ids["mirrored"]})
    for name in ("shown", "seen", "coded", "kept"):  # They decide who sees a section of an email.
        create(name, "/segments", {"name": name, "filters": used})
    create("around", "/segments", {"name": "Around", "filters": [
        {"name": "contact_segment", "predicate": "eq", "value": ids["shown"]}]})  # fmt: skip
    audience = {"contact_list_id": ids["list"]}
    create("draft", "/campaigns", {"name": "Draft", "trigger_attributes": audience, "template_attributes": TEXT})
    scheduled = create("scheduled", "/campaigns", {
        "name": "Scheduled", "scheduled_at": FUTURE, "template_attributes": TEXT,
        "trigger_attributes": audience | {"data": {"exclude_segment_ids": [ids["segment"]]}},
    })  # fmt: skip
    ids["scheduled_template"] = scheduled["template"]["id"]
    api.post(f"/campaigns/{ids['scheduled']}/send").expect(200)
    mail = {"transactional": False, **TEXT}
    live = create("live", "/flows", {"name": "Live", "trigger": {"event": EVENT}, "steps": [
        {"filters": [{"name": "contact_segment", "predicate": "eq", "value": ids["outer"]}], "yes": [mail]},
    ]})  # fmt: skip
    ids["live_template"] = live["templates"][0]["id"]
    api.post(f"/flows/{ids['live']}/activate").expect(200)
    paused = create("paused", "/flows", {"name": "Paused", "trigger": {"event": "sale"}, "steps": [mail]})
    ids["paused_template"] = paused["templates"][0]["id"]
    api.post(f"/flows/{ids['paused']}/activate").expect(200)
    api.post(f"/flows/{ids['paused']}/pause").expect(200)
    create("idle", "/flows", {"name": "Idle", "trigger": {"event": EVENT}, "steps": [mail]})
    create("receipt", "/templates", {"name": "Receipt", **TEXT})
    parts = create("parts", "/campaigns", {
        "name": "Parts", "scheduled_at": FUTURE, "trigger_attributes": audience,
        "template_attributes": {"subject": "Parts", "design": show_to(ids["kept"])},
    })  # fmt: skip
    # The live content is fixed, and the template changes after that.
    first = {"transactional": False, "subject": "Parts", "design": show_to(ids["around"])}
    flow = create("sections", "/flows", {"name": "Sections", "trigger": {"event": "sections"}, "steps": [first]})
    api.post(f"/flows/{ids['sections']}/activate").expect(200)
    api.patch(f"/templates/{flow['templates'][0]['id']}", {"design": show_to(ids["seen"])}).expect(200)
    api.post(f"/campaigns/{parts['id']}/send").expect(200)
    create("code", "/templates", {"name": "Code", "subject": "Code", "design": show_to(ids["coded"])})
    form = create("form", "/forms", {"name": "Sign up", "list_ids": [ids["list"]], "double_opt_in": True})
    create("webhook", "/webhooks", {"url": "https://hooks.example.org/", "events": []})
    secret = owner.post("/api_keys", {"name": "Assistant", "agent": True}).expect(201)
    ids["key"] = secret["id"]
    return World(server, ports, api, owner, server.client(secret["key"]), secret["key"], ids, form["public_key"])


def show_to(segment_id: int) -> dict[str, Any]:
    """Return a design with a section that only a segment sees."""
    condition = [{"name": "contact_segment", "predicate": "eq", "value": segment_id}]
    sections = [{"type": "text", "props": {"text": "For few", "show_if": condition}}]
    column = {"sections": [{"type": "text", "props": {"text": "For few", "show_if": condition}}]}
    plain = {"type": "text", "props": {"text": "For all"}}
    return {"sections": [*sections, {"type": "columns", "props": {"columns": [column]}}, plain, {"type": "footer"}]}


Attempt = Callable[[World], Response]


def ask(method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Attempt:
    """Return a request of the agent; names in braces are ids of the world."""

    def attempt(world: World) -> Response:
        return world.agent.send(method, path.format(**world.ids), fill(body, world), headers)

    return attempt


def fill(value: Any, world: World) -> Any:
    """Return a body with the ids of the world in place of their names in braces."""
    if isinstance(value, dict):
        return {key: fill(inner, world) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, world) for inner in value]
    if isinstance(value, str) and value[:1] == "{" and value[-1:] == "}":
        return world.ids[value[1:-1]]
    return value


def knock(path: str, body: dict[str, Any], header: str = "Authorization", prefix: str = "Bearer ") -> Attempt:
    """Return a request with the agent's key at the door of another service."""

    def attempt(world: World) -> Response:
        return world.server.client(world.key).request(
            "POST", path, json.dumps(body).encode(),
            {"Content-Type": "application/json", header: prefix + world.key},
        )  # fmt: skip

    return attempt


def knock_mailgun(world: World) -> Response:
    """Send at the door of Mailgun, which reads a form and HTTP Basic authentication."""
    body = f"from=shop@bakery.example&to={VICTIM}&subject=Hi&text=Hi".encode()
    headers = authorize(world.key) | {"Content-Type": "application/x-www-form-urlencoded"}
    return world.server.client().request("POST", "/v3/bakery.example/messages", body, headers)


def open_page(path: str, cookie: bool) -> Attempt:
    """Return a post to a page with the agent's key as its bearer token or as its session."""

    def attempt(world: World) -> Response:
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        headers |= {"Cookie": f"campanero={world.key}"} if cookie else {"Authorization": f"Bearer {world.key}"}
        target = path.format(**world.ids)
        return Client(world.server.url, validate=False).request("POST", target, b"when=now&version=x", headers)

    return attempt


def log_in(world: World) -> Response:
    """Sign in with the key as the owner's password."""
    return Client(world.server.url).post("/v1/login", {"email": EMAIL, "password": world.key})


def submit_form(world: World) -> Response:
    """Submit a public form with the agent's key in place of the form's."""
    path = f"/v1/public/forms/{world.key}"
    return Client(world.server.url, validate=False).request(
        "POST", path, f'{{"email": "{VICTIM}"}}'.encode(), {"Content-Type": "application/json"}
    )


def upload_import(world: World) -> Response:
    """Import a file of contacts into a list that could start flows."""
    boundary = "bound"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\nemail\n{VICTIM}\r\n'
        f"--{boundary}--\r\n"
    ).encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Authorization": f"Bearer {world.key}"}
    return world.agent.request("POST", "/v1/my/imports", body, headers)


def approve_own(world: World) -> Response:
    """Propose a send, read its version and approve it."""
    body = {"kind": "send_campaign", "subject_id": world.ids["draft"]}
    proposal = world.agent.post("/proposals", body).expect(201)
    version = world.agent.get(f"/proposals/{proposal['id']}").expect(200)["version"]
    response = world.agent.post(f"/proposals/{proposal['id']}/approve", {"version": version})
    world.agent.post(f"/proposals/{proposal['id']}/withdraw").expect(200)
    return response


def replay_key(world: World) -> Response:
    """Send with the idempotency key of a send that the owner's program made."""
    headers = {"Idempotency-Key": "nightly"}
    return world.agent.post(f"/campaigns/{world.ids['draft']}/send", {}, headers)


MESSAGE = {"to": VICTIM, "subject": "Hi", "body": "<p>Hi</p>"}
STEPS = [{"subject": "Taken over", "body": "<p>Taken over</p>"}]
ATTEMPTS: dict[str, Attempt] = {
    "send a message": ask("POST", "/messages", MESSAGE),
    "send a batch": ask("POST", "/messages/batch", {"messages": [MESSAGE]}),
    "retry a message": ask("POST", "/messages/1/retry", {}),
    "send the draft": ask("POST", "/campaigns/{draft}/send", {}),
    "send it later": ask("POST", "/campaigns/{draft}/send", {"scheduled_at": FUTURE}),
    "send it with the key of a replay": replay_key,
    "make it active": ask("PATCH", "/campaigns/{draft}", {"status": "active"}),
    "make it live": ask("PATCH", "/campaigns/{draft}", {"status": "live", "scheduled_at": PAST}),
    "schedule it": ask("PATCH", "/campaigns/{draft}", {"status": "scheduled", "scheduled_at": FUTURE}),
    "confirm all contacts": ask("PATCH", "/campaigns/{draft}", {
        "trigger_attributes": {"data": {"audience_type": "all_contacts", "confirm_send_to_all": True}}}),
    "confirm all contacts of a new one": ask("POST", "/campaigns", {"name": "All", "trigger_attributes": {
        "data": {"audience_type": "all_contacts", "confirm_send_to_all": True}}}),
    "approve it": ask("POST", "/campaigns/{draft}/approve", {}),
    "ask for approval": ask("POST", "/campaigns/{draft}/ask_approval", {}),
    "resume a campaign": ask("POST", "/campaigns/{scheduled}/resume", {}),
    "send the scheduled one now": ask("PATCH", "/campaigns/{scheduled}", {"scheduled_at": PAST}),
    "change the scheduled one": ask("PATCH", "/campaigns/{scheduled}", {"template_attributes": TAKEN}),
    "rename the scheduled one": ask("PATCH", "/campaigns/{scheduled}", {"name": "Taken over"}),
    "change its audience": ask("PATCH", "/campaigns/{scheduled}", {"trigger_attributes": {"contact_list_id": None}}),
    "change its template": ask("PATCH", "/templates/{scheduled_template}", TAKEN),
    "translate its template": ask("PUT", "/templates/{scheduled_template}/translations/de", {
        "texts": {"subject": "Taken over"}}),
    "change its segment": ask("PATCH", "/segments/{segment}", {"filters": []}),
    "choose a winner": ask("POST", "/campaigns/{scheduled}/experiment/winner", {"variant": 1}),
    "delete a campaign": ask("DELETE", "/campaigns/{scheduled}"),
    "create a live flow": ask("POST", "/flows", {"name": "F", "status": "active", "trigger": {"event": EVENT},
                                                  "steps": STEPS}),
    "activate a flow": ask("POST", "/flows/{idle}/activate", {}),
    "activate it by its status": ask("PATCH", "/flows/{idle}", {"status": "live"}),
    "change the live flow": ask("PATCH", "/flows/{live}", {"steps": STEPS}),
    "change the trigger of the live flow": ask("PATCH", "/flows/{live}", {"trigger": {"event": "opened"}}),
    "change the data of the live flow": ask("PATCH", "/flows/{live}", {"data": {"quiet_hours": None}}),
    "change the template of the live flow": ask("PATCH", "/templates/{live_template}", TAKEN),
    "change a segment below one of the live flow": ask("PATCH", "/segments/{inner}", {"filters": []}),
    "change who sees a section of the scheduled one": ask("PATCH", "/segments/{kept}", {"filters": []}),
    "change a segment below one of a live section": ask("PATCH", "/segments/{shown}", {"filters": []}),
    "change who sees a new section of the live flow": ask("PATCH", "/segments/{seen}", {"filters": []}),
    "change who sees a section of a single message": ask("PATCH", "/segments/{coded}", {"filters": []}),
    "change a segment of a mirror": ask("PATCH", "/segments/{mirrored}", {"filters": []}),
    "change the paused flow": ask("PATCH", "/flows/{paused}", {"steps": STEPS}),
    "change the template of the paused flow": ask("PATCH", "/templates/{paused_template}", TAKEN),
    "resume the paused flow": ask("PATCH", "/flows/{paused}", {"status": "active"}),
    "reopen a flow as a draft": ask("PATCH", "/flows/{paused}", {"status": "archived"}),
    "enroll a contact": ask("POST", "/flows/{live}/enroll", {"contact_ids": ["{victim}"]}),
    "skip a wait": ask("POST", "/flows/{live}/runs/move_on", {}),
    "approve a flow": ask("POST", "/flows/{idle}/approve", {}),
    "record an event": ask("POST", "/events", {"event": EVENT, "contact_email": VICTIM}),
    "record events": ask("POST", "/events/batch", {"events": [{"event": EVENT, "contact_email": VICTIM}]}),
    "create a contact": ask("POST", "/contacts", {"email": "new@example.org", "opt_in": True}),
    "opt a contact in": ask("PATCH", "/contacts/{victim}", {"list_ids": ["{list}"]}),
    "erase a contact": ask("DELETE", "/contacts/{victim}"),
    "lift a suppression": ask("DELETE", "/suppressions/1"),
    "add to a list": ask("POST", "/lists/{list}/contacts/bulk", {"add": [VICTIM]}),
    "import a file": upload_import,
    "create a form": ask("POST", "/forms", {"name": "F", "list_ids": ["{list}"]}),
    "turn off double opt-in": ask("PATCH", "/forms/{form}", {"double_opt_in": False}),
    "submit a form with the key": submit_form,
    "test a template to a contact": ask("POST", "/templates/{receipt}/send_test", {"email": VICTIM}),
    "test it to the contact shown": ask("POST", "/templates/{receipt}/send_test", {"contact_id": "{victim}"}),
    "change a template that programs send": ask("PATCH", "/templates/{receipt}", TAKEN),
    "create a key": ask("POST", "/api_keys", {"name": "Full"}),
    "read the keys": ask("GET", "/api_keys"),
    "create a user": ask("POST", "/users", {"email": "me@example.org", "role": "owner"}),
    "change the account": ask("PATCH", "/account", {"approval_required": False}),
    "create a webhook": ask("POST", "/webhooks", {"url": "https://evil.example.org/", "events": []}),
    "test a webhook": ask("POST", "/webhooks/{webhook}/test", {}),
    "read the test inbox": ask("GET", "/capture"),
    "simulate a click": ask("POST", "/capture/1/simulate", {"act": "click"}),
    "export the contacts": ask("GET", "/exports/contacts.csv"),
    "let agents go on": ask("POST", "/agents/resume", {}),
    "approve an own proposal": approve_own,
    "override the method": ask("POST", "/campaigns/{draft}/send", {}, {"X-HTTP-Method-Override": "GET"}),
    "pose as a user": ask("POST", "/campaigns/{draft}/send", {}, {"X-User-Id": "1", "X-Role": "owner"}),
    "the door of Mailgun": knock_mailgun,
    "the door of Postmark": knock("/compat/postmark/email", {
        "From": "shop@bakery.example", "To": VICTIM, "Subject": "Hi", "TextBody": "Hi"}, "X-Postmark-Server-Token", ""),
    "the door of Resend": knock("/compat/resend/emails", {
        "from": "shop@bakery.example", "to": VICTIM, "subject": "Hi", "text": "Hi"}),
    "the door of SendGrid": knock("/compat/sendgrid/v3/mail/send", {
        "from": {"email": "shop@bakery.example"}, "personalizations": [{"to": [{"email": VICTIM}]}], "subject": "Hi",
        "content": [{"type": "text/plain", "value": "Hi"}]}),
    "sign in with the key": log_in,
    "a page with the key": open_page("/campaigns/{draft}/send", False),
    "a page with the key as its cookie": open_page("/campaigns/{draft}/send", True),
    "the page of proposals": open_page("/proposals/1/approve", True),
    "metrics": lambda world: world.agent.request("GET", "/metrics", headers={"Authorization": f"Bearer {world.key}"}),
}  # fmt: skip


def snapshot(world: World) -> dict[str, Any]:
    """Return all that no try may change: states, contents, members, keys, users, and messages to contacts."""
    api, owner, ids = world.api, world.owner, world.ids
    campaigns = {row["id"]: (row["phase"], row["template"]["subject"], row["trigger"]["segment_id"], row["name"])
                 for row in api.all("/campaigns")}  # fmt: skip
    return {
        "campaigns": campaigns,
        "flows": {row["id"]: (row["status"], row["version"], row["trigger"]["event"]) for row in api.all("/flows")},
        "templates": {name: api.get(f"/templates/{ids[name]}").expect(200)["subject"]
                      for name in ("scheduled_template", "live_template", "paused_template", "receipt")},
        "segments": {row["id"]: row["filters"] for row in api.all("/segments")},
        "contacts": [row["id"] for row in api.all("/contacts")],
        "keys": [row["id"] for row in owner.all("/api_keys")], "users": [row["id"] for row in owner.all("/users")],
        "forms": [row["double_opt_in"] for row in api.all("/forms")], "events": len(api.all("/events", event=EVENT)),
        "messages": [row["id"] for row in api.all("/messages") if row["to"] != EMAIL],
    }  # fmt: skip


def test_no_try_of_a_hostile_agent_sends(world: World, relay: SmtpServer) -> None:
    """Each of more than forty tries is refused, and nothing leaves and nothing live changes."""
    assert len(ATTEMPTS) >= 40
    before, accepted, missing = snapshot(world), {}, set()
    for name, attempt in ATTEMPTS.items():
        response = attempt(world)
        # A page sends whoever is not signed in to the sign-in page.
        if not 400 <= response.status < 500:
            accepted[name] = response.status
        if response.status in (404, 405):
            missing.add(name)
    assert accepted == {}
    # A try that meets nothing proves nothing.
    assert missing == {"submit a form with the key"}
    with pytest.raises(smtplib.SMTPAuthenticationError):
        world.ports.connect(world.key, "Assistant")
    assert snapshot(world) == before
    assert {address for message in relay.messages for address in message.rcpt_to} <= {EMAIL}


# Calls of the API over MCP that send, take effect, or read what is closed
CALLS = (
    ("POST", "/campaigns/{draft}/send", {}), ("POST", "/messages", MESSAGE), ("POST", "/flows/{idle}/activate", {}),
    ("PATCH", "/campaigns/{draft}", {"status": "live"}), ("PATCH", "/flows/{live}", {"steps": STEPS}),
    ("PATCH", "/segments/{inner}", {"filters": []}), ("POST", "/events", {"event": EVENT, "contact_email": VICTIM}),
    ("POST", "/contacts", {"email": "new@example.org"}), ("DELETE", "/contacts/{victim}", None),
    ("POST", "/proposals/1/approve", {"version": "x"}), ("POST", "/api_keys", {"name": "Full"}),
    ("GET", "/messages/1", None), ("GET", "/capture", None), ("GET", "/contacts/{victim}/export", None),
)  # fmt: skip


def test_no_try_over_mcp_sends(world: World, relay: SmtpServer) -> None:
    """The tool that calls the API, and the one that sends tests, can do no more than the key."""
    assistant, before = Assistant(world.server, world.key), snapshot(world)
    for method, path, body in CALLS:
        arguments = {"method": method, "path": path.format(**world.ids)} | ({"body": body} if body is not None else {})
        result = assistant.call("api_call", **arguments)
        assert result["isError"] or result["structuredContent"]["status"] >= 400, (method, path, result)
    assert snapshot(world) == before
    assert {address for message in relay.messages for address in message.rcpt_to} <= {EMAIL}


def test_every_closed_endpoint_refuses_an_agent(world: World) -> None:
    """An endpoint without `agent_scope` says that it is closed, before it looks at anything else."""
    for route in ROUTES:
        if route.agent_scope is not None:
            continue
        path = route.path.replace("{id}", "1").replace(f"{{{route.inner_id_name}}}", "1").replace("{language}", "de")
        response = world.agent.send(route.method, path, None if route.method == "GET" else {})
        assert (response.status, response.json["reason"]) == (403, "closed_to_agents"), (route.method, route.path)


def test_an_agent_with_few_scopes_has_only_those(world: World) -> None:
    """A read does not follow from a draft of another area, and no scope of an agent opens what is closed."""
    body = {"name": "Narrow", "agent": True, "scope": "campaigns:read,templates:write"}
    narrow = world.server.client(world.owner.post("/api_keys", body).expect(201)["key"])
    assert narrow.get("/campaigns").status == narrow.get("/templates").status == 200
    for method, path, scope in (
        ("GET", "/contacts", "contacts:read"), ("POST", "/segments", "segments:write"),
        ("POST", "/campaigns", "campaigns:write"), ("POST", "/proposals", "proposals:write"),
    ):  # fmt: skip
        response = narrow.send(method, path, None if method == "GET" else {})
        assert response.expect(403)["required_scope"] == scope, path


@pytest.mark.parametrize("scope", ["full", "read,messages:send", "campaigns:send", "contacts:write", "events:write"])
def test_no_agent_gets_a_scope_that_takes_effect(world: World, scope: str) -> None:
    """Scopes are checked where keys are made, over the API, on the command line and on the page."""
    body = {"name": "Evil", "agent": True, "scope": scope}
    assert set(world.owner.post("/api_keys", body).expect(422)["validation_errors"]) == {"scope"}
    if scope != "full":  # On the command line this is the default, which of an agent is `draft`.
        result = world.server.cli("key", "create", "Evil", "--agent", "--scope", scope, expect=1)
        assert "agent" in result.stderr
