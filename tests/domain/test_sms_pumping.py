"""The hourly limit of transactional SMS to unknown numbers with the same prefix, against SMS pumping."""

from pathlib import Path
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.core import clock, validation
from appliance.core.errors import RateLimitExceeded
from appliance.ops import doctor
from appliance.sending.messages import sms_rules, transactional
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import run, scalar
from appliance.storage.models import Message
from tests.domain.home import Home
from tests.domain.sms_crowd import advance_to, use_sms_transport


def queue_sms(home: Home, number: str, test: bool = False, **fields: Any) -> Message:
    """Queue an SMS with a code to a number."""
    body = {"channel": "sms", "to": number, "body": "Your code is 1234"} | fields
    return transactions.write(
        transactional.queue_message, home.account_id, validation.read(MessageWrite, body), None, test
    )


@pytest.fixture
def limited_home(home: Home) -> Home:
    """Limit unknown numbers of a prefix to two SMS in an hour."""
    advance_to(home, "2030-01-05T12:00:00Z")
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    use_sms_transport(new_numbers_per_hour=2)
    return home


def test_sms_to_unknown_numbers_of_a_prefix_are_limited(limited_home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """The third one is rejected and not stored; other prefixes are not affected, and the limit is per hour."""
    queue_sms(limited_home, "+447700900001")
    limited_home.advance(600)
    queue_sms(limited_home, "+447700900002")
    for _ in range(2):
        with pytest.raises(RateLimitExceeded, match=r"\+44770090$") as error_info:
            queue_sms(limited_home, "+447700909999")
    assert 2_990 <= error_info.value.retry_after <= 3_001
    assert [record.levelname for record in caplog.records if "+44770090" in record.message] == ["WARNING"]
    assert scalar("SELECT count(*) FROM message") == 2
    queue_sms(limited_home, "+447700910000")
    queue_sms(limited_home, "+44770090000")  # a number of another length has another prefix
    limited_home.advance(3_001)
    queue_sms(limited_home, "+447700909999")
    with pytest.raises(RateLimitExceeded):
        queue_sms(limited_home, "+447700909998")


def test_known_numbers_are_not_limited(limited_home: Home) -> None:
    """Numbers of subscribers do not count, nor do tests, skipped messages and other accounts."""
    limited_home.upsert(phone="+447700900001")
    limited_home.upsert(phone="+447700900002")
    limited_home.opt_out("+447700900002")
    for _ in range(3):
        queue_sms(limited_home, "+447700900001")
        queue_sms(limited_home, "+447700900003", test=True)
    limited_home.suppress("+447700900004", "manual")
    assert queue_sms(limited_home, "+447700900004").status == "skipped"
    queue_sms(limited_home, "+447700900002")
    queue_sms(limited_home, "+447700900003")
    with pytest.raises(RateLimitExceeded):
        queue_sms(limited_home, "+447700900002")
    queue_sms(limited_home, "+447700900001")
    other_account = transactions.write(lambda: accounts.create("Other").id)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    own_account, limited_home.account_id = limited_home.account_id, other_account
    queue_sms(limited_home, "+447700900003")
    limited_home.account_id = own_account


def test_no_limit_with_zero_or_capture(limited_home: Home) -> None:
    """With 0 there is no limit, and captured SMS are not limited."""
    use_sms_transport(new_numbers_per_hour=0)
    for digit in range(3):
        queue_sms(limited_home, f"+44770090000{digit}")
    use_sms_transport(new_numbers_per_hour=1, transport="capture")
    for digit in range(3):
        queue_sms(limited_home, f"+44770090000{digit}")
    assert sms_rules.list_full_blocks(limited_home.account_id) == [("+44770090", 3)]


def test_the_doctor_reports_used_up_limits(limited_home: Home, tmp_path: Path) -> None:
    """The doctor reports prefixes at their limit and accounts without segments left today, but not with capture."""
    assert list(doctor.check_sms_limits(tmp_path, None)) == []
    queue_sms(limited_home, "+447700900001")
    queue_sms(limited_home, "+447700900002")
    [check] = doctor.check_sms_limits(tmp_path, limited_home.account_id)
    assert check.level == "warn" and "2 single SMS went to unknown numbers beginning with +44770090 " in check.words
    use_sms_transport(parts_per_day=5)
    day = sms_rules._get_day_number("UTC", clock.now_ms())
    transactions.write(
        run, "INSERT INTO sms_day (account_id, day, parts) VALUES (?, ?, 5)", (limited_home.account_id, day)
    )
    assert "wait until 2030-01-06T00:00:00.000Z" in next(iter(doctor.check_sms_limits(tmp_path, None))).words
    assert list(doctor.check_sms_limits(tmp_path, limited_home.account_id + 1)) == []
    use_sms_transport(transport="capture")
    assert list(doctor.check_sms_limits(tmp_path, None)) == []
