"""Several accounts of one service: the slow templates of one do not hold up the mail of the others."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server

# Uses up all the time that a message has, and is then given up
SLOW = "{% for a in (1..100) %}{% for b in (1..100) %}{% for c in (1..100) %}{% endfor %}{% endfor %}{% endfor %}"
SLOW_MESSAGES = 120


def post(api: Client, body: str) -> int:
    """Post one message and return its id."""
    number: int = api.post("/messages", {"to": "ann@example.org", "subject": "x", "body": body}).expect(201)["id"]
    return number


def queued(api: Client) -> int:
    """Return how many messages of an account wait."""
    return int(api.get("/messages", status="queued", limit=1).headers["X-Total-Count"])


def second_account(server: Server) -> Client:
    """Make a second account and return its client."""
    number = server.cli("account", "add", "Other").stdout.strip()
    other = server.client(server.new_key("other", "--account", number), keep_alive=True)
    other.put("/brand", {"company_name": "Other", "physical_address": "1 Main St, Town"}).expect(200)
    return other


def test_a_message_does_not_wait_for_the_slow_templates_of_another_account(fresh_server: FreshServer) -> None:
    """Behind a hundred messages that each use up the limit, another account's message leaves among the first."""
    server = fresh_server()
    slow, other = server.client(keep_alive=True), second_account(server)
    stop = server.data / "STOP"
    stop.touch()
    ids = [post(slow, SLOW) for _ in range(SLOW_MESSAGES)]
    number = post(other, "Your code is 1234")
    stop.unlink()
    other.wait(f"/messages/{number}", lambda row: row["status"] == "sent")
    assert queued(slow) > SLOW_MESSAGES // 2
    # Who comes while they are at work does not wait either
    again = post(other, "Your code is 5678")
    other.wait(f"/messages/{again}", lambda row: row["status"] == "sent")
    assert queued(slow) > SLOW_MESSAGES // 3
    row = slow.wait(f"/messages/{ids[0]}", lambda row: row["status"] == "skipped")
    sms = slow.post("/messages", {"channel": "sms", "to": "+14155550123", "body": SLOW}).expect(422)
    assert "takes longer than 50 ms" in sms["validation_errors"]["body"][0]
    assert row["skip_reason"] == "render_error" and "takes longer than 50 ms to render" in str(row)


def test_a_campaign_goes_on_beside_the_slow_messages_of_another_account(fresh_server: FreshServer) -> None:
    """A campaign is done while another account's slow messages, which were there first, are still being made."""
    server = fresh_server()
    slow, other = server.client(keep_alive=True), second_account(server)
    group = other.post("/lists", {"name": "Readers"}).expect(201)["id"]
    for number in range(60):
        other.post("/contacts", {"email": f"p{number}@example.org", "list_ids": [group], "opt_in": True}).expect(201)
    content = {"subject": "News", "body": "<p>Hello {{ first_name }}</p>", "from_email": "a@other.example"}
    campaign = other.post("/campaigns", {"name": "News", "template_attributes": content}).expect(201)["id"]
    stop = server.data / "STOP"
    stop.touch()
    for _ in range(2 * SLOW_MESSAGES):
        post(slow, SLOW)
    other.post(f"/campaigns/{campaign}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    other.wait("/messages", lambda rows: len(rows) > 0, campaign_id=campaign, limit=1)
    stop.unlink()
    done = other.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed", timeout=120)
    left = queued(slow)
    assert done["stats"]["sent"] == 60 and left > 200, left


def test_large_previews_of_one_account_do_not_hold_up_what_another_reads(fresh_server: FreshServer) -> None:
    """While one account has six large previews made at once, each read of another takes a small part of that."""
    server = fresh_server()
    other = second_account(server)
    body = "".join(f'<a href="https://x.test/{number}">w</a>' for number in range(8_000))

    def preview(number: int) -> None:
        server.client().post("/templates/preview", {"document": {}, "body": f"{number}{body}"}).expect(200)

    def seconds() -> float:
        began = time.monotonic()
        other.get("/contacts").expect(200)
        return time.monotonic() - began

    began = time.monotonic()
    with ThreadPoolExecutor(6) as pool:
        previews = [pool.submit(preview, number) for number in range(6)]
        reads = []
        while not all(one.done() for one in previews):
            reads.append(seconds())
    for one in previews:
        one.result()
    assert max(reads) < (time.monotonic() - began) / 4
