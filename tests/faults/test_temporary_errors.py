"""A 421 in the greeting, to RCPT or after the data: no recipient fails, others go on, and there are no copies (P6)."""

from itertools import pairwise

import pytest

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer

REPLY = "4.7.0 Try again later"


def test_a_421_greeting_counts_no_attempt(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """While the greeting is 421 no message fails and no attempt is counted; afterwards each is sent once."""
    rule = smtp_server.rules.reject("connect", code=421, text=REPLY)
    api = relayed().client(validate=False)
    path = send_campaign(api, create_list(api, 120))
    smtp_server.wait_until(lambda: rule.used >= 8, "eight times 421")
    assert api.get(path).expect(200)["stats"]["pending"] == 120
    smtp_server.rules.clear()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, refusals=rule.used, uncertain=books.uncertain)

    assert (books.accepted, books.copies, books.missing, books.uncertain) == (120, 0, 0, 0)
    assert {row["attempts"] for row in api.all("/messages")} == {1}


@pytest.mark.parametrize("phase", ["rcpt", "body"])
def test_a_421_pauses_one_recipient_group(
    relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures, phase: str
) -> None:
    """After a 421 the recipient group pauses, others get their mail; later each of its messages is sent once."""
    rule = smtp_server.rules.reject(phase, "*@slow.example", code=421, text=REPLY)
    api = relayed(slow_down="1s").client(validate=False)
    path = send_campaign(api, create_list(api, 300, more=[f"s{index}@slow.example" for index in range(20)]))
    api.wait(path, lambda row: row["stats"]["sent"] == 300)
    smtp_server.wait_until(lambda: rule.used >= 5, "a second round of 421")
    times = [entry.time for entry in smtp_server.phases(phase) if entry.rcpt_to[0].endswith("slow.example")]
    assert api.get(path).expect(200)["stats"]["pending"] == 20
    smtp_server.rules.clear()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    pause = max(after - before for before, after in pairwise(times))
    figures.books(books, refusals=rule.used, uncertain=books.uncertain, pause=f"{pause:.1f} s")

    assert pause > 0.9
    assert (books.accepted, books.copies, books.missing, books.uncertain) == (320, 0, 0, 0)
    assert books.stats["failed"] == books.stats["bounced"] == 0
    assert api.get("/suppressions").expect(200) == []
