"""The TypeScript client: its strict type check, its examples and webhooks with the service, and its transport."""

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

from campanero_client import Campanero, errors, webhooks
from tests.clients.scripted_server import Reply, ScriptedServer
from tests.kit import typescript
from tests.kit.server import Server
from tests.kit.webhook_receiver import Receiver

PEOPLE = "email,first_name\ncyn@example.org,Cy\ndeb@example.org,Dee\nno address,Ed\n"
BUSY = Reply(429, {"code": "rate_limited", "message": "Too many."}, {"Retry-After": "0"})
LOST, DONE = Reply(0), Reply(200, {"id": 1})


def test_webhooks_are_verified_in_both_languages(server: Server, tmp_path: Path, compiled_client: Path) -> None:
    """A request of the service is valid; a changed, old or unsigned one, or one for another secret, is not."""
    client = Campanero(server.url, server.new_key())
    with Receiver(tmp_path) as receiver:
        secret = client.webhooks.create(url=receiver.url, events=["order_paid"])["secret"]
        client.events.create(event="order_paid", contact_email="anna@example.org", create_contact=True)
        request = receiver.wait(lambda requests: bool(requests))[0]
    signed = {name: value for name, value in request.headers.items() if name.startswith("webhook-")}
    other_secret = "whsec_" + base64.b64encode(b"x" * 32).decode()
    old = str(int(signed["webhook-timestamp"]) - 600)
    mac = hmac.new(base64.b64decode(secret[6:]), f"{request.name}.{old}.".encode() + request.body, hashlib.sha256)
    old_signature = "v1," + base64.b64encode(mac.digest()).decode()
    cases: list[tuple[bytes, dict[str, str], str]] = [
        (request.body, signed, secret),
        (request.body, {name.title(): value for name, value in signed.items()}, secret),
        (request.body, {**signed, "webhook-signature": f"v1,AAAA {signed['webhook-signature']}"}, secret),
        (request.body.replace(b"order_paid", b"order_past"), signed, secret),
        (request.body, signed, other_secret),
        (request.body, {**signed, "webhook-id": "other"}, secret),
        (request.body, {**signed, "webhook-timestamp": old, "webhook-signature": old_signature}, secret),
        (request.body, {**signed, "webhook-timestamp": "soon"}, secret),
        (request.body, {**signed, "webhook-signature": "v1,\xe9 v2,"}, secret),
        (request.body, {}, secret),
    ]
    names = [verify_in_python(*case) for case in cases]
    assert names == ["order_paid"] * 3 + ["InvalidSignature"] * 7

    script = tmp_path / "verify.mjs"
    script.write_text(f"""
        import {{ webhooks }} from {json.dumps(str(compiled_client / "src/index.js"))};
        for (const [body, headers, secret] of {json.dumps([(body.decode(), *rest) for body, *rest in cases])}) {{
          const event = await webhooks.verify(body, headers, secret).catch((error) => ({{ event: error.name }}));
          console.log(event.event);
        }}
    """)
    assert typescript.run_node(script).split() == names


def verify_in_python(body: bytes, headers: dict[str, str], secret: str) -> Any:
    """Return the name of the event of a request, or that of the error."""
    try:
        return webhooks.verify(body, headers, secret)["event"]
    except errors.InvalidSignature as error:
        return type(error).__name__


def test_examples(server: Server, tmp_path: Path, compiled_client: Path) -> None:
    """The examples do what those in Python do."""
    (tmp_path / "in.csv").write_text(PEOPLE)
    examples, key = compiled_client / "examples", server.new_key()
    printed = typescript.run_node(examples / "sendCampaign.js", server.url, key)
    assert printed == "anna@example.org sent\n"
    printed = typescript.run_node(examples / "importAndExport.js", server.url, key, tmp_path / "in.csv")
    assert printed.startswith("2 created, 0 updated, 1 failed\n") and printed.endswith(" contacts\n")


def run_client(compiled_client: Path, directory: Path, url: str, code: str) -> list[Any]:
    """Return what `out(...)` of a piece of code got, with `client` and `errors` of the compiled client.

    `caught` returns the error of a promise. The client retries twice.
    """
    script = directory / "script.mjs"
    script.write_text(f"""
        import * as campanero from {json.dumps(str(compiled_client / "src/index.js"))};
        const client = new campanero.Campanero({json.dumps(url)}, "key\\n", {{ maxRetries: 2 }});
        const out = (...values) => console.log(JSON.stringify(values));
        const caught = (promise) => promise.then(() => "no error", (error) => error);
        {code}
    """)
    lines = typescript.run_node(script).strip("\n").split("\n")  # other line ends stand within the values
    return [value for line in lines for value in json.loads(line)]


def test_retries(compiled_client: Path, tmp_path: Path) -> None:
    """What was not carried out is repeated; a lost POST only with the same Idempotency-Key."""
    with ScriptedServer(LOST, DONE, BUSY, DONE, LOST, DONE, BUSY) as server:
        results = run_client(compiled_client, tmp_path, server.url, """
            out((await client.messages.create({ to: "a@example.org" })).id);
            out((await client.contacts.create({ email: "a@example.org" })).id);
            out((await caught(client.contacts.create({ email: "a@example.org" }))).name);
            out((await client.campaigns.send(3, {}, { idempotencyKey: "monday" })).id);
            const error = await caught(client.account.get());
            out(error.name, error.status, error.retryAfter);
        """)  # fmt: skip
    assert results == [1, 1, "ConnectionFailed", 1, "RateLimited", 429, 0]
    keys = [arrival.headers.get("idempotency-key") for arrival in server.arrivals]
    assert keys[0] == keys[1] and keys[2:] == [None, None, None, "monday", None, None, None]
    assert {arrival.headers["authorization"] for arrival in server.arrivals} == {"Bearer key"}


def test_errors_and_time_limits(compiled_client: Path, tmp_path: Path) -> None:
    """Errors have their fields; nobody waits longer than asked; a stopped request is not repeated, and leaves no timer.

    A timer would keep the program running until the time limit of the request, 30 seconds.
    """
    begun = time.monotonic()
    body = {"code": "validation_error", "message": "email is invalid", "validation_errors": {"email": ["is invalid"]}}
    hour = BUSY._replace(headers={"Retry-After": "3600"})
    with ScriptedServer(Reply(422, body), hour, Reply(301, b"", {"Location": "https://m.example.com/"})) as server:
        results = run_client(compiled_client, tmp_path, server.url, """
            const error = await caught(client.contacts.create({ email: "x" }));
            out(error.name, error.fields, error.code, error instanceof campanero.ApiError);
            out((await caught(client.account.get())).name, (await caught(client.account.get())).message);
            out((await caught(client.contacts.create({}, { signal: AbortSignal.abort(new Error("stop")) }))).message);
            for (const id of ["..", "", 1.5]) {
              let name = "no error";
              try { await client.contacts.get(id); } catch (problem) { name = problem.name; }
              out(name);
            }
            for (const [url, key] of [["ftp://x", "k"], ["https://a:b@x", "k"], ["https://x", "two words"]]) {
              let name = "no error";
              try { new campanero.Campanero(url, key); } catch (problem) { name = problem.name; }
              out(name);
            }
        """)  # fmt: skip
    assert results == [
        "ValidationFailed", {"email": ["is invalid"]}, "validation_error", True, "RateLimited",
        "301 unknown: The address redirects to https://m.example.com/.", "stop", *["TypeError"] * 6,
    ]  # fmt: skip
    assert len(server.arrivals) == 3 and time.monotonic() - begun < 25


def test_pages_and_files(compiled_client: Path, tmp_path: Path) -> None:
    """Pages follow each other; a file that arrives incomplete is an error; lines end only at line feeds."""
    first = Reply(200, [{"id": 1}], {"X-Total-Count": "2", "X-Total-Pages": "2", "X-Next-Page": "2"})
    script = (
        first,
        Reply(200, [{"id": 2}]),
        first,
        Reply(200, '{"a":"x\u2028"}\n{"a":2}'.encode()),
        Reply(200, b"a\nb", cut=1),
    )
    with ScriptedServer(*script) as server:
        results = run_client(compiled_client, tmp_path, server.url, """
            for await (const contact of client.contacts.list({ list_id: 7 })) out(contact.id);
            const page = await client.contacts.list({ limit: 5 }).page();
            out(page.total, page.pages, page.items.length);
            for await (const record of client.exports.contactsJsonl().records()) out(record.a);
            out((await caught(client.exports.contactsCsv().text())).name);
        """)  # fmt: skip
    assert results == [1, 2, 2, 2, 1, "x\u2028", 2, "ConnectionFailed"]
    assert [arrival.path.partition("?")[2] for arrival in server.arrivals[:3]] == [
        "list_id=7&limit=100", "list_id=7&limit=100&page=2", "limit=5",
    ]  # fmt: skip


def test_a_list_that_leads_back_is_an_error(compiled_client: Path, tmp_path: Path) -> None:
    """A broken service cannot keep the client busy for ever."""
    pages = [Reply(200, [{"id": number}], {"X-Next-Page": "2"}) for number in (1, 2, 3)]
    with ScriptedServer(*pages, Reply(200, [{"id": 4}])) as server:
        results = run_client(compiled_client, tmp_path, server.url, """
            const error = await caught((async () => { for await (const row of client.lists.list()) out(row.id); })());
            out(error.name, error.message);
        """)  # fmt: skip
    assert results == [1, 2, "CampaneroError", "the list leads back from page 2 to page 2"]
