"""F04: 421 at the banner, at a recipient, after the dot: nobody is blamed, others go on, one copy in the end (P6)."""

import pytest

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.recipients import completed, crowd, send
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4


@pytest.mark.parametrize("phase", ["connect", "rcpt", "body"])
def test_a_server_that_says_later_is_waited_for(
    relayed: Relayed, smtp_server: SmtpServer, figures: Figures, phase: str
) -> None:
    """As long as it says 421 nothing is taken and nobody fails; when it stops, everybody gets one copy."""
    rule = smtp_server.rules.refuse(phase, code=421, text="4.7.0 Try again later")
    api = relayed().client(validate=False)
    path = send(api, crowd(api, 120))
    smtp_server.wait_until(lambda: rule.used >= 8, "eight times 421")
    assert api.get(path).expect(200)["stats"]["pending"] == 120
    smtp_server.rules.clear()
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, refusals=rule.used, uncertain=books.uncertain)

    assert (books.accepted, books.copies, books.missing, books.uncertain) == (120, 0, 0, 0)
    assert books.stats["failed"] == books.stats["bounced"] == 0
    assert api.get("/suppressions").expect(200) == []
