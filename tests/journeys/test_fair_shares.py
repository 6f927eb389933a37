"""Several accounts of one service: slow templates of one do not delay the mail of the others."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server

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
