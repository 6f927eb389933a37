"""Several accounts of one service: slow templates of one do not delay the mail of the others."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.hostile_html import OPENED
from tests.kit.process_metrics import list_process_tree, runs_command
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.uploads import upload, wait_for_import

# Exceeds the time limit of a message
SLOW = "{% for a in (1..100) %}{% for b in (1..100) %}{% for c in (1..100) %}{% endfor %}{% endfor %}{% endfor %}"
SLOW_MESSAGES = 120


def post(api: Client, body: str) -> int:
    """Post a message and return its id."""
    number: int = api.post("/messages", {"to": "ann@example.org", "subject": "x", "body": body}).expect(201)["id"]
    return number


def queued_count(api: Client) -> int:
    """Return the number of queued messages of an account."""
    return int(api.get("/messages", status="queued", limit=1).headers["X-Total-Count"])


def second_account(server: Server) -> Client:
    """Add a second account and return its client."""
    account_id = server.cli("account", "add", "Other").stdout.strip()
    other = server.client(server.new_key("other", "--account", account_id), keep_alive=True)
    other.put("/brand", {"company_name": "Other", "physical_address": "1 Main St, Town"}).expect(200)
    return other


def test_slow_templates_do_not_delay_another_account(fresh_server: FreshServer) -> None:
    """Behind a hundred slow messages of one account, a message of another is sent among the first."""
    server = fresh_server()
    slow, other = server.client(keep_alive=True), second_account(server)
    stop = server.data / "STOP"
    stop.touch()
    ids = [post(slow, SLOW) for _ in range(SLOW_MESSAGES)]
    message_id = post(other, "Your code is 1234")
    stop.unlink()
    other.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")
    assert queued_count(slow) > SLOW_MESSAGES // 2
    # A message that comes while they are rendered does not wait either
    later = post(other, "Your code is 5678")
    other.wait(f"/messages/{later}", lambda row: row["status"] == "sent")
    assert queued_count(slow) > SLOW_MESSAGES // 3
    row = slow.wait(f"/messages/{ids[0]}", lambda row: row["status"] == "skipped")
    sms = slow.post("/messages", {"channel": "sms", "to": "+14155550123", "body": SLOW}).expect(422)
    assert "takes longer than 50 ms" in sms["validation_errors"]["body"][0]
    assert row["skip_reason"] == "render_error" and "takes longer than 50 ms to render" in str(row)


@pytest.mark.full
def test_slow_templates_do_not_delay_another_campaign(fresh_server: FreshServer) -> None:
    """A campaign completes while earlier slow messages of another account are still being rendered."""
    server = fresh_server()
    slow, other = server.client(keep_alive=True), second_account(server)
    list_id = other.post("/lists", {"name": "Readers"}).expect(201)["id"]
    for number in range(60):
        other.post("/contacts", {"email": f"p{number}@example.org", "list_ids": [list_id], "opt_in": True}).expect(201)
    content = {"subject": "News", "body": "<p>Hello {{ first_name }}</p>", "from_email": "a@other.example"}
    campaign = other.post("/campaigns", {"name": "News", "template_attributes": content}).expect(201)["id"]
    stop = server.data / "STOP"
    stop.touch()
    for _ in range(2 * SLOW_MESSAGES):
        post(slow, SLOW)
    other.post(f"/campaigns/{campaign}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    other.wait("/messages", lambda rows: len(rows) > 0, campaign_id=campaign, limit=1)
    stop.unlink()
    completed = other.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed", timeout=120)
    remaining = queued_count(slow)
    assert completed["stats"]["sent"] == 60 and remaining > 200, remaining


@pytest.mark.full
def test_large_previews_do_not_delay_another_account(fresh_server: FreshServer) -> None:
    """During five large previews of one account, each read of another takes less than a quarter of that time."""
    server = fresh_server()
    other = second_account(server)
    body = "".join(f'<a href="https://x.test/{number}">w</a>' for number in range(8_000))

    def preview(number: int) -> None:
        server.client().post("/templates/preview", {"document": {}, "body": f"{number}{body}"}).expect(200)

    def seconds() -> float:
        started = time.monotonic()
        other.get("/contacts").expect(200)
        return time.monotonic() - started

    started = time.monotonic()
    with ThreadPoolExecutor(5) as pool:
        previews = [pool.submit(preview, number) for number in range(5)]
        reads = []
        while not all(preview_request.done() for preview_request in previews):
            reads.append(seconds())
    for preview_request in previews:
        preview_request.result()
    assert max(reads) < (time.monotonic() - started) / 4


STYLED = "<style>p{color:red}</style><p>Hello {{ first_name }}</p>"


def find_sanitizer(server: Server) -> int | None:
    """Return the id of the child process that sanitizes HTML, or None if it is not running."""
    return next((pid for pid in list_process_tree(server.pid) if runs_command(pid, "sanitize-html")), None)


def peak_megabytes(pid: int) -> int:
    """Return the largest resident memory that a process has had."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) // 1024


def test_complex_html_does_not_delay_another_account(fresh_server: FreshServer) -> None:
    """While one account previews HTML that takes the limit, the other previews and sends HTML of its own."""
    server = fresh_server()
    other = second_account(server)
    before, is_over, statuses = peak_megabytes(server.pid), threading.Event(), []

    def preview_complex(first: int) -> None:
        api = server.client(validate=False)
        while not is_over.is_set():
            body = f"{OPENED}<p>{first} {len(statuses)}" + "<p>x" * 20_000
            response = api.post("/templates/preview", {"document": {}, "body": body})
            assert response.status == 429 or "<font" not in response.json["html"]
            statuses.append(response.status)

    waits = []
    with ThreadPoolExecutor(8) as pool:
        attacks = [pool.submit(preview_complex, number) for number in range(8)]
        time.sleep(1)
        for number in range(2):
            begun = time.monotonic()
            html = other.post("/templates/preview", {"document": {}, "body": f"{STYLED}{number}"}).expect(200)["html"]
            message_id = post(other, f"{STYLED}{number} again")
            other.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")
            waits.append(time.monotonic() - begun)
            assert 'style="color:red"' in html
        is_over.set()
        for attack in attacks:
            attack.result()
    assert {200, 429} == set(statuses)
    # Each of three tasks waits for one that takes the limit, and for the start of two children.
    assert max(waits) < 8, waits
    assert peak_megabytes(server.pid) - before < 100


@contextlib.contextmanager
def signal_sanitizers(server: Server, number: signal.Signals) -> Iterator[set[int]]:
    """Send a signal to each child that sanitizes HTML as soon as it starts, and yield the set of their process ids."""
    is_over, pids = threading.Event(), set[int]()

    def watch() -> None:
        while not is_over.wait(0.01):
            pid = find_sanitizer(server)
            if pid is not None and pid not in pids:
                pids.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield pids
    finally:
        is_over.set()
        thread.join()


@contextlib.contextmanager
def stop_sanitizers(server: Server) -> Iterator[None]:
    """Stop each child that sanitizes HTML as soon as it starts, and let the last one continue at the end."""
    with signal_sanitizers(server, signal.SIGSTOP) as pids:
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def schedule(api: Client, list_id: int, body: str, at: float) -> int:
    """Schedule a campaign to a list for a Unix time and return its id."""
    content = {"subject": "Later", "body": body, "from_email": "a@bakery.example"}
    campaign: int = api.post("/campaigns", {"name": "Later", "template_attributes": content}).expect(201)["id"]
    scheduled_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    request = {"scheduled_at": scheduled_at, "trigger_attributes": {"contact_list_id": list_id}}
    api.patch(f"/campaigns/{campaign}", request | {"status": "active"}).expect(200)
    return campaign


@pytest.mark.full
def test_a_campaign_waits_for_the_sanitizer(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """While its HTML cannot be sanitized, a campaign waits; then everybody gets the same email, not paragraphs."""
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    list_id = api.post("/lists", {"name": "Readers"}).expect(201)["id"]
    for number in range(30):
        api.post("/contacts", {"email": f"p{number}@example.org", "list_ids": [list_id], "opt_in": True}).expect(201)
    content = {"subject": "News", "body": STYLED, "from_email": "a@bakery.example"}
    campaign = api.post("/campaigns", {"name": "News", "template_attributes": content}).expect(201)["id"]
    stop = server.data / "STOP"
    stop.touch()
    api.post(f"/campaigns/{campaign}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait("/messages", lambda rows: len(rows) == 30, campaign_id=campaign, limit=100)
    due_at = time.time() + 10
    waiting, started = (schedule(api, list_id, body, due_at) for body in (f"{STYLED} later", "<p>No styles</p>"))
    server.restart()  # so that nothing is compiled
    assert time.time() < due_at - 1
    with signal_sanitizers(server, signal.SIGKILL):
        response = server.client(validate=False).post("/templates/preview", {"document": {}, "body": STYLED + "x"})
        assert (response.status, response.json["code"]) == (503, "unavailable")
        assert int(response.headers["Retry-After"]) > 0
        stop.unlink()
        server.wait_for_line(r"renderer: compiling the content of message \d+ failed")
        plain = post(api, "A message without HTML")
        api.wait(f"/messages/{plain}", lambda row: row["status"] == "sent")
        # A scheduled campaign waits too, and holds up no other.
        api.wait(f"/campaigns/{started}", lambda row: row["status"] == "completed", timeout=30)
        assert api.get(f"/campaigns/{waiting}").json["phase"] == "scheduled"
    tries = server.output.count("renderer: compiling the content")
    assert tries <= 3, "the campaign was tried again and again"
    api.wait(f"/campaigns/{waiting}", lambda row: row["status"] == "completed", timeout=60)
    row = api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed", timeout=60)
    assert row["stats"] | {"audience": 30, "sent": 30, "failed": 0, "skipped": 0} == row["stats"]
    news = [message.html() or "" for message in smtp_server.messages if message.subject == "News"]
    assert len(news) == 30 and all('<p style="color:red">Hello' in html for html in news)


@pytest.mark.full
def test_slow_html_does_not_delay_the_start_of_another_campaign(fresh_server: FreshServer) -> None:
    """While the HTML of many due campaigns of one account is sanitized, a later one of another account starts."""
    server = fresh_server()
    other = second_account(server)
    list_ids = []
    for api in (server.client(), other):
        list_ids.append(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
        api.post("/contacts", {"email": "p@example.org", "list_ids": list_ids[-1:], "opt_in": True}).expect(201)
    due_at = time.time() + 15
    waiting = [schedule(server.client(), list_ids[0], f"{STYLED}{number}", due_at) for number in range(21)]
    started = schedule(other, list_ids[1], "<p>No styles</p>", due_at + 1)
    server.restart()  # so that nothing is compiled
    assert time.time() < due_at - 1
    with stop_sanitizers(server):
        time.sleep(due_at + 1 - time.time())
        other.wait(f"/campaigns/{started}", lambda row: row["status"] == "completed", timeout=10)
        assert all(server.client().get(f"/campaigns/{number}").json["phase"] == "scheduled" for number in waiting)
    for number in waiting:
        server.client().wait(f"/campaigns/{number}", lambda row: row["status"] == "completed", timeout=60)


@pytest.mark.full
def test_drafts_of_one_account_do_not_delay_preflights_of_another(fresh_server: FreshServer) -> None:
    """While the drafts of one account take long to render for all recipients, that of another is complete at once."""
    server = fresh_server()
    slow, other = server.client(keep_alive=True), second_account(server)
    lists = {api: api.post("/lists", {"name": "Readers"}).expect(201)["id"] for api in (slow, other)}
    for api, count in ((slow, 400), (other, 3)):
        rows = "".join(f"p{number}@example.org\n" for number in range(count))
        wait_for_import(api, upload(api, f"email\n{rows}", list_ids=[lists[api]]))

    def preflight(api: Client, body: str) -> str:
        content = {"subject": "News", "body": body, "from_email": "a@example.org"}
        draft = {"name": "News", "template_attributes": content, "trigger_attributes": {"contact_list_id": lists[api]}}
        path = f"/campaigns/{api.post('/campaigns', draft).expect(201)['id']}/preflight"
        api.get(path).expect(200)
        return path

    def status(api: Client, path: str) -> str:
        return str(api.get(path).expect(200)["facts"]["rehearsal"]["status"])

    # 400 recipients at 50 ms are 20 seconds for each draft
    paths = [preflight(slow, f"{number}{SLOW}") for number in range(3)]
    slow.wait(paths[0], lambda row: row["facts"]["rehearsal"]["status"] != "waiting")
    for number in range(2):
        path = preflight(other, f"<p>Hello {number}")
        other.wait(path, lambda row: row["facts"]["rehearsal"]["status"] == "complete", timeout=12)
    assert sorted(status(slow, path) for path in paths) == ["running", "waiting", "waiting"]
