"""The system clock steps in the middle of a send; schedules over steps and DST changes are in the journeys."""

import re
from urllib.parse import urlsplit

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list, recipient_address, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
STEPS = (-2, +3, +240)


def test_clock_steps_during_a_send(
    relayed: StartRelayed, smtp_server: SmtpServer, clock: TestClock, figures: Figures
) -> None:
    """After steps backwards and forwards each message is sent once, retries end, and links still work."""
    count = 800
    smtp_server.rules.delay("body", 0.01)
    delayed, rejected = (
        recipient_address(50),
        recipient_address(51),
    )  # both are attempted before the first step
    smtp_server.rules.reject("rcpt", delayed, code=451, text="4.3.0 later", times=1)
    smtp_server.rules.reject("rcpt", rejected, code=451, text="4.3.0 never")
    server = relayed(clock)
    api = server.client(validate=False)
    path = send_campaign(api, create_list(api, count))
    for recipient in (delayed, rejected):
        smtp_server.wait_for_phase("rcpt", recipient)
    for step, sent_count in zip(STEPS, (100, 300, 500), strict=True):
        smtp_server.wait_for(sent_count)
        clock.advance(hours=step)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    failed = api.get("/messages", campaign_id=path.rpartition("/")[2], status="failed").expect(200)
    figures.books(books, steps=" h, ".join(f"{step:+d}" for step in STEPS) + " h")
    link = re.search("<(.+)>", smtp_server.messages[0].header("List-Unsubscribe") or "")
    assert link
    response = api.request("POST", urlsplit(link[1]).path, b"List-Unsubscribe=One-Click", FORM)

    assert response.status == 200
    assert (books.copies, books.missing) == (0, 0)
    assert {row["to"]: row["error"]["code"] for row in failed} == {rejected: "expired"}
    assert books.accepted == count - 1
