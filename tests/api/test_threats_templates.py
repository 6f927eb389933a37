"""Templates with code injection or excessive work, over HTTP and in sent mail (T01, T02)."""

import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.sampling import every_nth
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout

CANARY = "zq9canary7f3e"
# Expressions that other template languages evaluate
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
    """Yield a client of a server with a secret in its environment."""
    with Server(env={"TRUST_CANARY": CANARY}).set_up() as running:
        yield running.client(keep_alive=True)
        running.stop()


def fill_payload(value: Any, payload: str) -> Any:
    """Put a payload into every string of a pattern."""
    if isinstance(value, str):
        return value.replace("{}", payload)
    if isinstance(value, dict):
        return {key: fill_payload(item, payload) for key, item in value.items()}
    return [fill_payload(item, payload) for item in value]


def check_harmless(answer: Response, payload: str) -> bool:
    """Check that a response leaks nothing; return whether the payload was accepted."""
    assert answer.status in (200, 201, 422), (payload, answer.status, answer.text)
    text = re.sub(r'"(?:id|[a-z_]*_at|[a-z_]*_id|account_id|request_id|bytes)":\s*[^,}]+', "", answer.text)
    result = LEAKED.search(text.replace(payload, "").replace(payload.replace('"', '\\"'), ""))
    assert result is None, (payload, result)
    return answer.status != 422


@pytest.mark.parametrize("payload", every_nth(PAYLOADS, 5))
def test_payloads_in_templates_are_not_evaluated(guarded: Client, payload: str) -> None:
    """In every field and section a payload is literal text or a 422, in responses, previews and mail (T01)."""
    taken: dict[str, Any] = {"name": "x", "subject": "S", "body": "<p>b</p>"}
    for name in FIELDS:
        if check_harmless(guarded.post("/templates", {**taken, name: payload}), payload):
            taken[name] = payload
        check_harmless(
            guarded.post("/campaigns", {"name": "x", "template_attributes": {"subject": "s", name: payload}}), payload
        )
    sections = []
    for kind, props in SECTIONS.items():
        section = {"type": kind, "props": fill_payload(props, payload)}
        document = {"sections": [section]}
        if check_harmless(guarded.post("/templates/preview", {"document": document, "subject": "s"}), payload):
            sections.append(section)
    response = guarded.post("/templates", {**taken, "design": {"sections": sections}})
    if check_harmless(response, payload):
        check_sent_message(
            guarded, {"to": f"t{response.json['id']}@example.org", "template_id": response.json["id"]}, payload
        )
        tested = guarded.post(f"/templates/{response.json['id']}/send_test", {"email": "owner@example.com"})
        check_harmless(tested, payload)
    for name in ("subject", "body", "text", "from_name"):
        body = {"to": "s@example.org", "subject": "s", "body": "<p>b</p>", name: payload}
        if guarded.post("/messages", body).status == 201:
            check_sent_message(guarded, body, payload)


def check_sent_message(api: Client, body: dict[str, Any], payload: str) -> None:
    """Send a message and check that its content leaks nothing."""
    row = api.post("/messages", body).expect(201)
    api.wait(f"/messages/{row['id']}", lambda row: row["status"] in ("sent", "skipped"))
    detail = api.get(f"/messages/{row['id']}")
    text = "\n".join(str(detail.json[name]) for name in ("subject", "html", "text"))
    result = LEAKED.search(re.sub(r"/[uv]/\S+", "", text.replace(payload, "")))
    assert result is None, (payload, result, body)


@pytest.mark.parametrize("payload", every_nth(PAYLOADS, 5, 1))
def test_payloads_in_contact_data_are_not_evaluated(guarded: Client, payload: str) -> None:
    """A payload in the data of a contact is shown as text."""
    address = f"second{PAYLOADS.index(payload)}@example.org"
    guarded.post("/contacts", {"email": address, "first_name": payload, "data": {"x": payload}}).expect(201)
    content = {"to": address, "subject": "Hi {{ first_name }}", "text": "{{ contact.data.x }}",
               "body": '<p>{{ contact.data.x }}</p><a href="https://x.test/?q={{ contact.data.x }}">x</a>'}  # fmt: skip
    row = guarded.post("/messages", content).expect(201)
    guarded.wait(f"/messages/{row['id']}", lambda row: row["status"] == "sent")
    result = guarded.get(f"/messages/{row['id']}").json
    assert result["subject"] == f"Hi {payload}" and result["text"].strip() == payload
    assert not LEAKED.search(result["html"].replace("&lt;%= 7*7", ""))


LONGER = "| replace: 'a', 'aaaaaaaaaa' "
DEEP: dict[str, Any] = {"type": "text", "props": {"content": "<div>" * 30_000}}
HELLO: dict[str, Any] = {"type": "text", "props": {"content": "<p>Hello {{ email }}</p>"}}


def four_columns(count: int, section: dict[str, Any]) -> dict[str, Any]:
    """Return four columns, each with a section repeated `count` times."""
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
    "many attributes": {"body": "<p " + " ".join(f"a{number}=1" for number in range(60_000)) + ">"},
    "many rules": {"body": f"<style>{'.a b,.c i{x:y}' * 5_000}</style>{'<p>x</p>' * 20_000}"},
    "tags in an address": {"body": f'<a href="https://x.test/{("a" * 500 + "{{ data.x }}") * 1_900}">x</a>'},
    "open comments": {"body": "<!--" * 100_000},
    "braces in a raw block": {"body": f"{{% raw %}}{'{{' * 60_000}{{% endraw %}}"},
    "tags in a raw block": {"body": f"<p>{{% raw %}}{'{%' * 60_000}{{% endraw %}}"},
    "deep sections": {"design": {"sections": [DEEP] * 8}},
    "many sections": {"design": {"sections": [HELLO] * 200}},
    "columns in columns": {"design": {"sections": [four_columns(6, four_columns(50, {"type": "text"}))]}},
    "columns of everything": {"design": {"sections": [four_columns(12, four_columns(5, HELLO))]}},
}  # fmt: skip


def test_expensive_templates_are_limited(fresh_server: FreshServer, full: bool) -> None:
    """Saving, previewing and sending take moments, memory stays low, and other requests are fast (T02).

    With `--full` all of them, else a third.
    """
    server = fresh_server()
    api = server.client(keep_alive=True, validate=False)  # validating large responses against the document is slow
    api.post("/templates/preview", {"document": {"sections": [{"type": "footer"}]}}).expect(200)
    before = resident_memory(server.pid)
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
            for name in list(BOMBS)[:: 1 if full else 3]:
                try_template(api, name, BOMBS[name])
        finally:
            finished.set()
        watching.result()
    assert resident_memory(server.pid) - before < 100 * 1024 * 1024
    assert sorted(waits)[int(len(waits) * 0.99)] < extend_timeout(0.2)
    big = api.post("/templates", {"body": "x" * 5_000_000})
    assert big.status == 413


def test_previews_do_not_hold_up_what_is_sent(fresh_server: FreshServer, full: bool) -> None:
    """While large previews come in parallel, a message waits for one at most; too many are refused (T02).

    With `--full` they have a megabyte each.
    """
    server = fresh_server()
    api = server.client(validate=False)
    content = {"to": "b@example.org", "subject": "s", "body": "<p>hi</p>"}
    api.post("/messages", content).expect(201)
    preview = {"document": {}, "body": '<a href="https://a.test/">x</a>' * (30_000 if full else 3_000)}
    start = time.monotonic()
    api.post("/templates/preview", preview).expect(200)
    single = time.monotonic() - start
    finished = Event()
    answers: list[Response] = []

    def attack(number: int) -> None:
        client = server.client(validate=False)
        while not finished.is_set():
            answers.append(client.post("/templates/preview", {**preview, "subject": f"{number} {time.monotonic()}"}))

    with ThreadPoolExecutor(12) as pool:
        attacking = [pool.submit(attack, number) for number in range(12)]
        try:
            time.sleep(1 if full else 0.3)
            waits = []
            for _ in range(5 if full else 2):
                start = time.monotonic()
                api.post("/messages", content).expect(201)
                waits.append(time.monotonic() - start)
        finally:
            finished.set()
        for done in attacking:
            done.result()
    # One preview in progress, slowed down by the parsing of the requests beside it
    assert max(waits) < extend_timeout(3), (waits, single)
    assert {answer.status for answer in answers} == {200, 429}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers if answer.status == 429)


def try_template(api: Client, name: str, fields: dict[str, Any]) -> None:
    """Save, preview and send one expensive template; an error must be that of a field."""
    document = fields.get("design", {"sections": []})
    preview = {"document": document, **{key: value for key, value in fields.items() if key != "design"}}
    for path, body in (("/templates", fields), ("/templates/preview", preview),
                       ("/messages", {"to": "b@example.org", "subject": "s", **fields})):  # fmt: skip
        if path == "/messages" and "design" in fields:
            continue
        start = time.monotonic()
        response = api.post(path, body)
        assert response.status in (200, 201, 422), (name, path, response.status, response.text[:300])
        assert time.monotonic() - start < extend_timeout(1), (name, path)


def resident_memory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize(
    "body",
    [
        '<p>{% raw %}{{{% endraw %}<a href="{{contact.data.u}}">x</a>}}</p>',
        '<p>{% comment %}<a title="{% endcomment %}</p><a href="{{contact.data.u}}">x</a>',
    ],
)
def test_no_block_hides_that_a_contact_says_where_a_link_leads(guarded: Client, body: str) -> None:
    """A raw block or a comment before a link whose address a contact's data decides is refused as the link is (T27)."""
    plain = guarded.post("/templates", {"body": '<a href="{{contact.data.u}}">x</a>'}).expect(422)
    assert "where a link leads" in str(plain["validation_errors"])
    content = {"subject": "s", "body": body}
    for path, fields in (("/templates", content), ("/templates/preview", {"document": {}, **content}),
                         ("/messages", {"to": "b@example.org", **content}),
                         ("/campaigns", {"name": "c", "template_attributes": content})):  # fmt: skip
        refused = guarded.post(path, fields).expect(422)
        assert "where a link leads" in str(refused["validation_errors"]), path


def test_many_translations_hold_up_nobody(fresh_server: FreshServer) -> None:
    """Translating 2,000 of 3,600 texts takes moments, and the accounts' writes do not wait for it (T02)."""
    server = fresh_server()
    api = server.client(validate=False)
    props = {"items": [{"title": "a", "text": "b"}] * 2}
    lists = iter({"id": f"s{number}", "type": "list", "props": props} for number in range(900))
    columns = [[{"sections": list(islice(lists, 45))} for _ in range(4)] for _ in range(5)]
    sections = [{"id": f"c{at}", "type": "columns", "props": {"columns": row}} for at, row in enumerate(columns)]
    design = {"sections": sections}
    template_id = api.post("/templates", {"subject": "x", "design": design}).expect(201)["id"]
    path = f"/templates/{template_id}/translations/de"
    texts = {row["id"]: "c" for row in api.put(path, {"texts": {}}).expect(200)["texts"]}
    assert len(texts) > 3_600
    texts = dict(list(texts.items())[:2_000])
    finished, waits = Event(), list[float]()

    def watch() -> None:
        while not finished.wait(0.02):
            start = time.monotonic()
            api.post("/contacts", {"email": f"w{len(waits)}@example.org"}).expect(201)
            waits.append(time.monotonic() - start)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            start = time.monotonic()
            api.put(path, {"texts": texts}).expect(200)
            duration = time.monotonic() - start
        finally:
            finished.set()
        watching.result()
    assert duration < extend_timeout(1) and max(waits) < extend_timeout(0.5), (duration, max(waits))
    api.put(path, {"texts": dict.fromkeys(texts, "{{ x")}).expect(422)
