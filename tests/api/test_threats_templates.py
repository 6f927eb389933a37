"""Templates made to compute or to hold us up, over HTTP and in what is sent (T01, T02)."""

import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout

CANARY = "zq9canary7f3e"
# What template languages of others compute or read
PAYLOADS = [
    "{{7*7}}", "{{7*'7'}}", "{{1337*1337}}", "{{ env('TRUST_CANARY') }}", "{{ env.TRUST_CANARY }}",
    "{{ contact.__class__.__mro__ }}", "{{ contact['__class__'] }}", "{{ self.__init__.__globals__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ contact|attr('__class__') }}",
    "{{ contact | map: '__class__' }}", "{% include '/etc/passwd' %}", "{% render '/etc/passwd' %}",
    "{% assign x = 1337 %}{{ x | times: 1337 }}", "{{ 1337 | times: 1337 }}", "{% import os %}", "${7*7}",
    "<%= 7*7 %>", "#{7*7}", "{{ contact.data.get('x') }}", "{{ config.items() }}", "{{ brand.__dict__ }}",
    "{{ contact | first | last }}", "{{#with \"s\" as |x|}}{{x.constructor}}{{/with}}",
]  # fmt: skip
LEAKED = re.compile(rf"\b49\b|7777777|1787569|{CANARY}|root:|&lt;class|<class|Undefined|Traceback")
FIELDS = ("subject", "preheader", "from_name", "body")
SECTIONS: dict[str, Any] = {
    "heading": {"text": "{}"}, "text": {"content": "<p>{}</p>"}, "button": {"text": "{}", "href": "https://x.test/{}"},
    "html": {"html": "<div>{}</div>"}, "image": {"src": "https://x.test/i.png", "alt": "{}"},
    "footer": {"text": "<p>{}</p>", "unsubscribe_text": "{}"}, "coupon": {"code": "{}", "text": "{}"},
    "list": {"items": [{"title": "{}", "text": "{}"}]}, "quote": {"text": "{}", "author": "{}"},
}  # fmt: skip


@pytest.fixture(scope="module")
def guarded() -> Iterator[Client]:
    """A client of a server with a secret in its environment."""
    with Server(env={"TRUST_CANARY": CANARY}).set_up() as running:
        yield running.client(keep_alive=True)
        running.stop()


def fill(value: Any, payload: str) -> Any:
    """Put a payload into every string of a pattern."""
    if isinstance(value, str):
        return value.replace("{}", payload)
    if isinstance(value, dict):
        return {key: fill(one, payload) for key, one in value.items()}
    return [fill(one, payload) for one in value]


def harmless(answer: Response, payload: str) -> bool:
    """Check that an answer is a fault of a field or gives nothing away; say whether it was taken."""
    assert answer.status in (200, 201, 422), (payload, answer.status, answer.text)
    said = re.sub(r'"(?:id|[a-z_]*_at|[a-z_]*_id|account_id|request_id|bytes)":\s*[^,}]+', "", answer.text)
    found = LEAKED.search(said.replace(payload, "").replace(payload.replace('"', '\\"'), ""))
    assert found is None, (payload, found)
    return answer.status != 422


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_template_computes(guarded: Client, payload: str) -> None:
    """In every field and every text of a design: literal text or 422, in answers, previews and mail (T01)."""
    taken: dict[str, Any] = {"name": "x", "subject": "S", "body": "<p>b</p>"}
    for name in FIELDS:
        if harmless(guarded.post("/templates", {**taken, name: payload}), payload):
            taken[name] = payload
        harmless(
            guarded.post("/campaigns", {"name": "x", "template_attributes": {"subject": "s", name: payload}}), payload
        )
    sections = []
    for kind, props in SECTIONS.items():
        section = {"type": kind, "props": fill(props, payload)}
        document = {"sections": [section]}
        if harmless(guarded.post("/templates/preview", {"document": document, "subject": "s"}), payload):
            sections.append(section)
    made = guarded.post("/templates", {**taken, "design": {"sections": sections}})
    if harmless(made, payload):
        sent(guarded, {"to": f"t{made.json['id']}@example.org", "template_id": made.json["id"]}, payload)
        tested = guarded.post(f"/templates/{made.json['id']}/send_test", {"email": "owner@example.com"})
        harmless(tested, payload)
    for name in ("subject", "body", "text", "from_name"):
        body = {"to": "s@example.org", "subject": "s", "body": "<p>b</p>", name: payload}
        if guarded.post("/messages", body).status == 201:
            sent(guarded, body, payload)


def sent(api: Client, body: dict[str, Any], payload: str) -> None:
    """Send a message, and look at what it says."""
    row = api.post("/messages", body).expect(201)
    api.wait(f"/messages/{row['id']}", lambda one: one["status"] in ("sent", "skipped"))
    detail = api.get(f"/messages/{row['id']}")
    said = "\n".join(str(detail.json[name]) for name in ("subject", "html", "text"))
    found = LEAKED.search(re.sub(r"/[uv]/\S+", "", said.replace(payload, "")))
    assert found is None, (payload, found, body)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_contact_is_called_is_only_ever_a_name(guarded: Client, payload: str) -> None:
    """Second order: a contact's data that is a template is shown as the text that it is."""
    address = f"second{PAYLOADS.index(payload)}@example.org"
    guarded.post("/contacts", {"email": address, "first_name": payload, "data": {"x": payload}}).expect(201)
    content = {"to": address, "subject": "Hi {{ first_name }}", "text": "{{ contact.data.x }}",
               "body": '<p>{{ contact.data.x }}</p><a href="https://x.test/?q={{ contact.data.x }}">x</a>'}  # fmt: skip
    row = guarded.post("/messages", content).expect(201)
    guarded.wait(f"/messages/{row['id']}", lambda one: one["status"] == "sent")
    found = guarded.get(f"/messages/{row['id']}").json
    assert found["subject"] == f"Hi {payload}" and found["text"].strip() == payload
    assert not LEAKED.search(found["html"].replace("&lt;%= 7*7", ""))


LONGER = "| replace: 'a', 'aaaaaaaaaa' "
DEEP: dict[str, Any] = {"type": "text", "props": {"content": "<div>" * 30_000}}
HELLO: dict[str, Any] = {"type": "text", "props": {"content": "<p>Hello {{ email }}</p>"}}


def columns(count: int, section: dict[str, Any]) -> dict[str, Any]:
    """Return four columns that hold a section many times."""
    return {"type": "columns", "props": {"columns": [{"sections": [section] * count}] * 4}}


BOMBS: dict[str, dict[str, Any]] = {
    "nested loops": {"body": "{% for a in (1..100) %}" * 5 + "x" + "{% endfor %}" * 5},
    "a long range": {"body": "{% for a in (1..999999999) %}x{% endfor %}"},
    "a long replacement": {"body": f"{{{{ 'aaaaaaaaaa' {LONGER * 10}}}}}"},
    "a wide date": {"body": "{{ 'now' | date: '%0500000000d' }}"},
    "deep blocks": {"body": "{% if first_name %}" * 5_000 + "{% endif %}" * 5_000},
    "unclosed tags": {"body": "{{" * 200_000},
    "unclosed blocks": {"body": "{% if a %}" * 1_999},
    "many tags": {"body": "{{ first_name }}" * 100_000},
    "half tags": {"body": "{{ a " * 50_000},
    "quotes in a tag": {"body": "{{ '" + "\\'" * 100_000 + "' }}"},
    "deep elements": {"body": "<div>" * 100_000},
    "misnested elements": {"body": "<a><b><i><p>" * 40_000},
    "many attributes": {"body": "<p " + " ".join(f"a{one}=1" for one in range(60_000)) + ">"},
    "many rules": {"body": f"<style>{'.a b,.c i{x:y}' * 5_000}</style>{'<p>x</p>' * 20_000}"},
    "tags in an address": {"body": f'<a href="https://x.test/{("a" * 500 + "{{ data.x }}") * 1_900}">x</a>'},
    "open comments": {"body": "<!--" * 100_000},
    "deep sections": {"design": {"sections": [DEEP] * 8}},
    "many sections": {"design": {"sections": [HELLO] * 200}},
    "columns in columns": {"design": {"sections": [columns(6, columns(50, {"type": "text"}))]}},
    "columns of everything": {"design": {"sections": [columns(12, columns(5, HELLO))]}},
}  # fmt: skip


def test_bombs_go_off_in_our_hands(fresh_server: FreshServer) -> None:
    """Saved, previewed, or sent: answered in a moment, memory stays, others are served meanwhile (T02)."""
    server = fresh_server()
    api = server.client(keep_alive=True, validate=False)  # holding large answers against the document takes long
    api.post("/templates/preview", {"document": {"sections": [{"type": "footer"}]}}).expect(200)
    before = memory(server.pid)
    finished, waits = Event(), list[float]()

    def watch() -> None:
        watcher = server.client(keep_alive=True)
        while not finished.wait(0.02):
            start = time.monotonic()
            watcher.request("GET", "/healthz", None, {}, False)
            waits.append(time.monotonic() - start)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            for name, fields in BOMBS.items():
                explode(api, name, fields)
        finally:
            finished.set()
        watching.result()
    assert memory(server.pid) - before < 100 * 1024 * 1024
    assert sorted(waits)[int(len(waits) * 0.99)] < extend_timeout(0.2)
    big = api.post("/templates", {"body": "x" * 5_000_000})
    assert big.status == 413


def explode(api: Client, name: str, fields: dict[str, Any]) -> None:
    """Save, preview and send one bomb; what is refused is refused as a fault of a field."""
    document = fields.get("design", {"sections": []})
    preview = {"document": document, **{key: value for key, value in fields.items() if key != "design"}}
    for path, body in (("/templates", fields), ("/templates/preview", preview),
                       ("/messages", {"to": "b@example.org", "subject": "s", **fields})):  # fmt: skip
        if path == "/messages" and "design" in fields:
            continue
        start = time.monotonic()
        answer = api.post(path, body)
        assert answer.status in (200, 201, 422), (name, path, answer.status, answer.text[:300])
        assert time.monotonic() - start < extend_timeout(1), (name, path)


def memory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
