"""The clock steps in the middle of a send; schedules over steps and clock changes are in the journeys."""

import re
from urllib.parse import urlsplit

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.clock import TestClock
from tests.kit.recipients import address, completed, crowd, send
from tests.kit.smtp import SmtpServer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
STEPS = (-2, +3, +240)


def test_steps_in_the_middle_of_a_send_repeat_and_lose_nothing(
    relayed: Relayed, smtp_server: SmtpServer, clock: TestClock, figures: Figures
) -> None:
    """Two hours back, three forward, ten days forward: one copy each, retries end as they should, links still work."""
    count = 800
    smtp_server.rules.delay("body", 0.01)
    later, never = address(50), address(51)  # tried before the first step: what counts is how long they were tried
    smtp_server.rules.refuse("rcpt", later, code=451, text="4.3.0 later", times=1)
    smtp_server.rules.refuse("rcpt", never, code=451, text="4.3.0 never")
    server = relayed(clock)
    api = server.client(validate=False)
    path = send(api, crowd(api, count))
    for recipient in (later, never):
        smtp_server.wait_for_phase("rcpt", recipient)
    for step, at in zip(STEPS, (100, 300, 500), strict=True):
        smtp_server.wait_for(at)
        clock.advance(hours=step)
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    failed = api.get("/messages", campaign_id=path.rpartition("/")[2], status="failed").expect(200)
    figures.books(books, steps=" h, ".join(f"{step:+d}" for step in STEPS) + " h")
    link = re.search("<(.+)>", smtp_server.messages[0].header("List-Unsubscribe") or "")
    assert link
    answer = api.request("POST", urlsplit(link[1]).path, b"List-Unsubscribe=One-Click", FORM)

    assert answer.status == 200
    assert (books.copies, books.missing) == (0, 0)
    assert {row["to"]: row["error"]["code"] for row in failed} == {never: "expired"}
    assert books.accepted == count - 1
