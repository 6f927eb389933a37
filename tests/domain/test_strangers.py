"""A block of unknown numbers gets so many single SMS in an hour, and no more: each may pay somebody."""

from pathlib import Path
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.core import clock, validation
from appliance.core.errors import RateLimitExceeded
from appliance.ops.doctor import accounts as automations
from appliance.sending.messages import sms_rules, transactional
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import run, scalar
from appliance.storage.models import Message
from tests.domain.home import Home
from tests.domain.sms_crowd import go_to, real


def ask(home: Home, number: str, test: bool = False, **more: Any) -> Message:
    """Ask for a code to a number."""
    body = {"channel": "sms", "to": number, "body": "Your code is 1234"} | more
    return transactions.write(
        transactional.queue_message, home.account_id, validation.read(MessageWrite, body), None, test
    )


@pytest.fixture
def few(home: Home) -> Home:
    """Let two unknown numbers of a block get an SMS in an hour."""
    go_to(home, "2030-01-05T12:00:00Z")
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    real(new_numbers_per_hour=2)
    return home


def test_a_block_of_numbers_gets_so_many(few: Home, caplog: pytest.LogCaptureFixture) -> None:
    """The third of a block is refused and nothing is kept; other blocks go on, and so does this one after an hour."""
    ask(few, "+447700900001")
    few.advance(600)
    ask(few, "+447700900002")
    for _ in range(2):
        with pytest.raises(RateLimitExceeded, match=r"\+44770090$") as refused:
            ask(few, "+447700909999")
    assert 2_990 <= refused.value.retry_after <= 3_001
    assert [record.levelname for record in caplog.records if "+44770090" in record.message] == ["WARNING"]
    assert scalar("SELECT count(*) FROM message") == 2
    ask(few, "+447700910000")
    ask(few, "+44770090000")  # of another length: no neighbour
    few.advance(3_001)
    ask(few, "+447700909999")
    with pytest.raises(RateLimitExceeded):
        ask(few, "+447700909998")


def test_who_is_known_is_no_stranger(few: Home) -> None:
    """Numbers of subscribers get theirs and are not counted; nor are tests, skipped ones, those of other accounts."""
    few.upsert(phone="+447700900001")
    few.upsert(phone="+447700900002")
    few.leave("+447700900002")
    for _ in range(3):
        ask(few, "+447700900001")
        ask(few, "+447700900003", test=True)
    few.suppress("+447700900004", "manual")
    assert ask(few, "+447700900004").status == "skipped"
    ask(few, "+447700900002")
    ask(few, "+447700900003")
    with pytest.raises(RateLimitExceeded):
        ask(few, "+447700900002")
    ask(few, "+447700900001")
    other = transactions.write(lambda: accounts.create("Other").id)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    first, few.account_id = few.account_id, other
    ask(few, "+447700900003")
    few.account_id = first


def test_no_bound_where_none_is_set_and_nothing_leaves(few: Home) -> None:
    """0 bounds nothing, and what stays in the inbox is not bounded."""
    real(new_numbers_per_hour=0)
    for last in range(3):
        ask(few, f"+44770090000{last}")
    real(new_numbers_per_hour=1, transport="capture")
    for last in range(3):
        ask(few, f"+44770090000{last}")
    assert sms_rules.list_full_blocks(few.account_id) == [("+44770090", 3)]


def test_the_doctor_names_what_is_used_up(few: Home, tmp_path: Path) -> None:
    """Blocks that get no more, and accounts whose parts of the day are used up; of the inbox nothing."""
    assert list(automations.check_sms_limits(tmp_path, None)) == []
    ask(few, "+447700900001")
    ask(few, "+447700900002")
    [line] = automations.check_sms_limits(tmp_path, few.account_id)
    assert line.level == "warn" and "2 single SMS went to unknown numbers beginning with +44770090 " in line.words
    real(parts_per_day=5)
    day = sms_rules._get_day_number("UTC", clock.now_ms())
    transactions.write(run, "INSERT INTO sms_day (account_id, day, parts) VALUES (?, ?, 5)", (few.account_id, day))
    assert "wait until 2030-01-06T00:00:00.000Z" in next(iter(automations.check_sms_limits(tmp_path, None))).words
    assert list(automations.check_sms_limits(tmp_path, few.account_id + 1)) == []
    real(transport="capture")
    assert list(automations.check_sms_limits(tmp_path, None)) == []
