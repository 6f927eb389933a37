"""The flow step `http_request` over the API: what is sent, signed and stored, and which branch follows."""

import json
from typing import Any

import pytest

from tests.api.test_flow_steps import step_errors
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.shared_clock import clock, server
from tests.kit.webhook_receiver import Receiver, WebhookRequest, is_signed_by

__all__ = ["clock", "server"]
SERVER_ENV = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}
SECRET = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0ISE="


def start_run(api: Client, step: dict[str, Any], event: str, **data: Any) -> dict[str, Any]:
    """Create a live flow with a step, let a contact enter it by an event, and return the flow."""
    steps = [{**step, "type": "http_request", "yes": [{"event_name": "went_well"}], "no": [{"event_name": "failed"}]}]
    flow: dict[str, Any] = api.post("/flows", {"trigger": {"event": event}, "steps": steps, "status": "active"}).expect(
        201
    )
    contact = {"contact_email": f"{event}@example.org", "create_contact": True}
    api.post("/events", {"event": event, **contact, "data": data}).expect(201)
    return flow


def wait_for_run(api: Client, flow: dict[str, Any]) -> dict[str, Any]:
    """Wait until the only run of a flow has ended, and return it with its steps."""
    path = f"/flows/{flow['id']}/runs"
    run = api.wait(path, lambda rows: bool(rows) and rows[0]["status"] == "completed")[0]
    return api.get(f"{path}/{run['id']}").expect(200)


def requests_to(receiver: Receiver, path: str) -> list[WebhookRequest]:
    """Return the requests to a path."""
    return [request for request in receiver.requests if request.path.startswith(path)]


def test_a_request_is_filled_in_signed_and_its_response_stored(api: Client, server: Server, receiver: Receiver) -> None:
    """The body keeps the types of values and escapes them; values of the response become data, and `yes` is taken."""
    receiver.respond_with(200, json.dumps({"result": {"score": 7, "tags": ["a"]}, "offers": [{"code": 'X"1'}]}))
    step = {
        "url": f"{receiver.url}/full?size={{{{ event.size }}}}", "method": "PUT",
        "headers": {"X-Shop": "one"}, "secret_headers": {"Authorization": "Bearer hush-hush-1"},
        "signing_secret": SECRET,
        "payload": {"mail": "{{ email }}", "total": "{{ event.total }}", "note": "Size: {{ event.size }}",
                    "n": [1, None]},
        "save_to_contact": {"score": "result.score"}, "save_to_run": {"code": "offers.0.code", "gone": "no.such"},
    }  # fmt: skip
    flow = start_run(api, step, "order_full", size='XL" & "L', total=12.5)
    run = wait_for_run(api, flow)
    (request,) = requests_to(receiver, "/hook/full")
    assert json.loads(request.body) == {
        "mail": "order_full@example.org", "total": 12.5, "note": 'Size: XL" & "L', "n": [1, None],
    }  # fmt: skip
    assert (request.method, request.path) == ("PUT", "/hook/full?size=XL%22%20%26%20%22L")
    assert is_signed_by(SECRET, request.headers, request.body)
    assert (request.headers["authorization"], request.headers["x-shop"]) == ("Bearer hush-hush-1", "one")
    assert request.headers["idempotency-key"] == request.name and request.headers["content-type"] == "application/json"
    contact = api.get(f"/contacts/{run['contact_id']}").expect(200)
    assert contact["data"]["score"] == 7 and run["event_data"] == {"size": 'XL" & "L', "total": 12.5, "code": 'X"1'}
    assert (run["history"][0]["type"], run["history"][0]["outcome"]) == ("http_request", "yes")
    text = json.dumps(api.get(f"/flows/{flow['id']}").expect(200))
    stored = b"".join(path.read_bytes() for path in server.data.glob("campanero.db*"))
    for secret in ("hush-hush-1", SECRET):
        assert secret not in text and secret.encode() not in stored and secret not in server.output


def test_secrets_are_kept_only_for_the_same_server(api: Client, receiver: Receiver) -> None:
    """A response sent back keeps the secrets; for another host they must be given again."""
    step = {"type": "http_request", "url": receiver.url, "secret_headers": {"X-Key": "k1"}, "signing_secret": SECRET}
    flow = api.post("/flows", {"trigger": {"event": "kept"}, "steps": [step]}).expect(201)
    (returned,) = flow["steps"]
    assert (returned["secret_headers"], returned["signed"]) == ({"X-Key": None}, True)
    assert "signing_secret" not in returned
    assert api.patch(f"/flows/{flow['id']}", {"steps": [returned]}).expect(200)["steps"] == [returned]
    elsewhere = {**returned, "url": "https://elsewhere.example/steal"}
    refused = api.patch(f"/flows/{flow['id']}", {"steps": [elsewhere]}).expect(422)
    assert refused["validation_errors"] == {
        "steps[0].secret_headers.X-Key": ["can't be blank"], "steps[0].signing_secret": ["can't be blank"],
    }  # fmt: skip


def test_a_failure_is_tried_again_with_the_same_key_and_body(api: Client, clock: TestClock, receiver: Receiver) -> None:
    """A server error is tried again by the ladder of the webhooks; when the time is over, `no` is taken."""
    receiver.respond_with(503)
    step = {"url": f"{receiver.url}/again", "payload": {"n": "{{ event.n }}"}, "timeout": 80}
    flow = start_run(api, step, "order_again", n=1)
    receiver.wait(lambda _: len(requests_to(receiver, "/hook/again")) == 1)
    clock.advance(seconds=31)
    receiver.wait(lambda _: len(requests_to(receiver, "/hook/again")) == 2)
    # The next attempt would be a minute later.
    run = wait_for_run(api, flow)
    first, second = requests_to(receiver, "/hook/again")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] and first.body == second.body
    assert (run["history"][0]["outcome"], run["history"][0]["reason"]) == ("no", "http_503")
    report = api.get(f"/flows/{flow['id']}/report").expect(200)
    assert [(branch["label"], branch["count"]) for branch in report["steps"][0]["branches"]] == [
        ("Succeeded", 0), ("Failed", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "text", "reason"), [(404, "", "http_404"), (302, "", "http_302"), (200, "<html>", "invalid_response")]
)
def test_an_error_that_is_final_takes_the_branch_at_once(
    api: Client, receiver: Receiver, status: int, text: str, reason: str
) -> None:
    """Another status, a redirect and a response that is no JSON are not tried again."""
    receiver.respond_with(status, text)
    step = {"url": f"{receiver.url}/{reason}", "method": "GET", "save_to_run": {"a": "a"}}
    run = wait_for_run(api, start_run(api, step, f"order_{status}"))
    (request,) = requests_to(receiver, f"/hook/{reason}")
    assert request.method == "GET" and request.body == b"" and "webhook-signature" not in request.headers
    assert (run["history"][0]["outcome"], run["history"][0]["reason"]) == ("no", reason)
    receiver.respond_with()


def test_nothing_is_sent_while_a_flow_is_paused(api: Client, clock: TestClock, receiver: Receiver) -> None:
    """A retry waits until the flow is resumed, and is not made for a run that was removed."""
    receiver.respond_with(500)
    flow = start_run(api, {"url": f"{receiver.url}/paused", "timeout": 7200}, "order_paused")
    receiver.wait(lambda _: len(requests_to(receiver, "/hook/paused")) == 1)
    api.post(f"/flows/{flow['id']}/pause").expect(200)
    receiver.respond_with()
    clock.advance(seconds=60)
    probe = start_run(api, {"url": f"{receiver.url}/probe"}, "order_probe")
    wait_for_run(api, probe)
    assert len(requests_to(receiver, "/hook/paused")) == 1
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    wait_for_run(api, flow)
    assert len(requests_to(receiver, "/hook/paused")) == 2


def test_a_simulation_plays_a_response(api: Client, receiver: Receiver) -> None:
    """Nothing is sent: the response is a success without values, or the one that the simulation is given."""
    is_high = {"filters": [{"name": "event.score", "predicate": "gt", "value": 5}], "yes": [{"type": "exit"}]}
    step = {"type": "http_request", "url": f"{receiver.url}/simulated", "save_to_run": {"score": "score"},
            "yes": [is_high]}  # fmt: skip
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": [step]}).expect(201)
    path, number = f"/flows/{flow['id']}/simulate", flow["steps"][0]["id"]

    def outcomes(**body: Any) -> list[tuple[Any, ...]]:
        timeline = api.post(path, body).expect(200)["timeline"]
        return [(row["type"], row["outcome"], row["reason"]) for row in timeline if row["kind"] == "step"]

    assert outcomes() == [("http_request", "yes", None), ("split", "no", None)]
    assert outcomes(responses=[{"step": number, "body": {"score": 9}}]) == [
        ("http_request", "yes", None), ("split", "yes", None), ("exit", "exited", "exit_step"),
    ]  # fmt: skip
    assert outcomes(responses=[{"step": number, "status": 500}]) == [("http_request", "no", "http_500")]
    assert outcomes(responses=[{"step": number, "status": 0}]) == [("http_request", "no", "timed_out")]
    played = api.post(path, {"responses": [{"step": number, "body": {"score": 9}}]}).expect(200)["timeline"][1]
    assert played["data"] == {"status": 200, "save_to_run": {"score": 9}} and played["branch"] == "Succeeded"
    refused = api.post(path, {"responses": [{"step": 999}]}).expect(422)
    error = "must be the id of a step that makes an HTTP request"
    assert refused["validation_errors"] == {"responses[0].step": [error]}
    assert requests_to(receiver, "/hook/simulated") == []


def test_errors_of_a_request(api: Client) -> None:
    """Every wrong value has its error at its key."""
    request = {"type": "http_request"}
    url = "https://shop.example/hook"
    assert step_errors(
        api, request, {**request, "url": "https://{{ email }}.example/", "method": "DELETE", "timeout": 59},
        {**request, "url": "http://10.0.0.1/", "signed": True, "headers": {"Host": "x", "a b": "1", "X": "é"}},
        {**request, "url": url, "method": "GET", "payload": {"a": 1}, "secret_headers": {"X-Key": None}},
        {**request, "url": url, "payload": {"a": ["{{ email", "{{ email | nothing }}"]}, "signing_secret": "short"},
        {**request, "url": url, "payload": "text", "save_to_contact": {"1": "a", "b": "x..y"}, "save_to_run": [1]},
    ) == {
        "steps[0].url": ["can't be blank"],
        "steps[1].url": ["may have merge tags only after its host"],
        "steps[1].method": ["is not included in the list"],
        "steps[1].timeout": ["must be greater than or equal to 60"],
        "steps[2].url": ["is invalid"],
        "steps[2].signing_secret": ["can't be blank"],
        "steps[2].headers.Host": ["is set by the service"],
        "steps[2].headers.a b": ["is not a valid name"],
        "steps[2].headers.X": ["is invalid"],
        "steps[3].payload": ["must be empty for GET"],
        "steps[3].secret_headers.X-Key": ["can't be blank"],
        "steps[4].payload.a[0]": ["expected '}}' (line 1, column 1)"],
        "steps[4].payload.a[1]": ["unknown filter 'nothing' (line 1, column 12)"],
        "steps[4].signing_secret": ["must have between 16 and 200 characters"],
        "steps[5].payload": ["must be a JSON object or list"],
        "steps[5].save_to_contact.1": ["is not a valid name"],
        "steps[5].save_to_contact.b": ["is invalid"],
        "steps[5].save_to_run": ["is invalid"],
    }  # fmt: skip


def test_a_request_needs_the_right_to_read_contacts(server: Server) -> None:
    """It can send any data of a contact away, so a key for flows alone may not add it."""
    writer = server.client(server.new_key("flows", "--scope", "flows:read,flows:write"))
    step = {"type": "http_request", "url": "https://shop.example/hook"}
    refused = writer.post("/flows", {"trigger": {"event": "cart_add"}, "steps": [step]}).expect(403)
    assert refused["required_scope"] == "contacts:read"


def test_a_notification_in_slack(api: Client, server: Server, receiver: Receiver) -> None:
    """One message names the contact, with its values escaped; the URL is kept and never shown."""
    url = f"{receiver.url}/services/T0/B0/hushhush3"
    steps = [{"type": "notify", "via": "slack", "slack_url": url, "note": "Call <them> & ask"}]
    document = {"name": "Deals", "trigger": {"event": "deal_open"}, "steps": steps, "status": "active"}
    flow = api.post("/flows", document).expect(201)
    (returned,) = flow["steps"]
    assert returned["via"] == "slack" and "hushhush3" not in json.dumps(flow)
    assert api.patch(f"/flows/{flow['id']}", {"steps": [returned]}).expect(200)["steps"] == [returned]
    event = {"event": "deal_open", "contact_email": "amp@example.org", "create_contact": True}
    contact = api.post("/events", event).expect(201)["contact_id"]
    run = wait_for_run(api, flow)
    assert (run["history"][0]["outcome"], run["history"][0]["reason"]) == ("on", None)
    receiver.wait(lambda _: bool(requests_to(receiver, "/hook/services")))
    (request,) = requests_to(receiver, "/hook/services")
    text = json.loads(request.body)["text"]
    assert text.splitlines()[:3] == [
        "*Deals*", "amp@example.org came to a step of this flow.", "Call &lt;them&gt; &amp; ask",
    ]  # fmt: skip
    assert text.endswith(f"/contacts/{contact}|Open contact>") and "idempotency-key" in request.headers
    simulation = api.post(f"/flows/{flow['id']}/simulate", {}).expect(200)
    assert simulation["timeline"][1]["data"] == {"to": "127.0.0.1"}
    stored = b"".join(path.read_bytes() for path in server.data.glob("campanero.db*"))
    assert b"hushhush3" not in stored and "hushhush3" not in server.output


def test_errors_of_a_notification_in_slack(api: Client) -> None:
    """It needs a URL that may be requested, and has nothing that an email has."""
    slack = {"type": "notify", "via": "slack"}
    assert step_errors(
        api, slack, {**slack, "slack_url": "http://10.1.2.3/x", "user_id": 1}, {"type": "notify", "via": "pigeon"},
        {"type": "notify", "user_id": 1, "slack_url": "https://hooks.slack.com/services/x"},
    ) == {
        "steps[0].slack_url": ["can't be blank"],
        "steps[1].slack_url": ["is invalid"],
        "steps[1].user_id": ["is only allowed with another value of via"],
        "steps[2].via": ["is not included in the list"],
        "steps[2].user_id": ["can't be blank"],
        "steps[3].slack_url": ["is only allowed with another value of via"],
    }  # fmt: skip
