"""Whoever keeps being refused is paused for a person to look, and that is not forgotten before it is written."""

import pytest
from peewee import IntegrityError

from appliance.db import work
from appliance.db.open import rows, run
from appliance.errors import Ours, SenderRefused
from appliance.messages.line import Line
from appliance.work.gate import MOST_REFUSALS
from appliance.work.jobs import Jobs
from tests.domain.home import Home
from tests.domain.test_line import crowd


@pytest.mark.parametrize("who", ["campaign", "provider"])
def test_a_pause_that_cannot_be_written_is_written_later(who: str, home: Home) -> None:
    """While the pause cannot be written the campaign is held back; once it can be it is, and nothing is left over."""
    number = crowd(home, "ana@example.org")
    row, jobs = Line().candidates(1)[0], Jobs("process")
    gate = jobs.sender.gate
    for _ in range(MOST_REFUSALS):
        if who == "campaign":
            gate.answered(row, SenderRefused("550 not from you", 550))
        else:
            gate.connecting_failed(row.provider, Ours("535 wrong password", 535))
    work.write(
        run,
        "CREATE TRIGGER full BEFORE UPDATE ON campaign WHEN new.phase = 'paused' "
        "BEGIN SELECT raise(ABORT, 'no room'); END",
    )
    with pytest.raises(IntegrityError):
        jobs.tend_campaigns()
    assert rows("SELECT phase FROM campaign") == [("sending",)]
    assert gate.held() == ((number,) if who == "campaign" else ())
    work.write(run, "DROP TRIGGER full")
    jobs.tend_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "transport")]
    assert gate.held() == () and not gate.shut().campaigns and not gate.shut().providers
