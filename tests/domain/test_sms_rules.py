"""Whether and when an SMS may be sent: numbers, consent evidence, quiet hours, and segments a day."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from appliance.accounts import accounts
from appliance.accounts.accounts import AccountWrite
from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.campaigns import audience_explanation, send, store
from appliance.campaigns.store import CampaignCreate
from appliance.core import addresses, clock, signals, validation
from appliance.sending.messages import delivery_status, queue, sms_rules
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.queue_reader import QueueReader
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.home import Home
from tests.domain.sms_crowd import (
    advance_to,
    claim_all,
    message_states,
    queue_sms_campaign,
    record_accepted,
    use_sms_transport,
)

NIGHT = '{"from":"21:00","to":"08:00"}'
BERLIN, BOSTON, HONOLULU, TOKYO = "+4915112345678", "+16175550123", "+18085550123", "+819012345678"


def set_quiet_hours(home: Home, hours: str | None = NIGHT) -> None:
    """Set the account's quiet hours."""
    transactions.write(run, "UPDATE account SET sms_quiet_hours = ?", (hours,))


@pytest.mark.parametrize(
    ("number", "countries", "reason"),
    [
        (BOSTON, [], None), (BERLIN, [], None), ("+447700900123", [], None), ("+493012345678", [], None),
        ("+19005551234", [], "invalid_address"), ("+33899123456", [], "invalid_address"),
        ("+491805123456", [], "invalid_address"), ("+1415555", [], "invalid_address"),
        ("+999123456789", [], "invalid_address"), ("+80012345678", [], None),
        (BOSTON, ["us", "CA"], None), (BERLIN, ["US"], "country_not_allowed"),
        ("+80012345678", ["US"], "country_not_allowed"), ("+17875550123", ["US"], "country_not_allowed"),
    ],
)  # fmt: skip
def test_some_numbers_are_skipped(number: str, countries: list[str], reason: str | None, home: Home) -> None:
    """Impossible numbers, premium ones and those of other than the allowed countries are skipped with the reason."""
    use_sms_transport(countries=countries)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=number)
    queue_sms_campaign(home)
    assert [row.recipient for row in claim_all()] == ([] if reason else [number])
    assert message_states() == [(number, "skipped" if reason else "sending", reason)]
    assert (sms_rules.get_number_refusal(number) or (None,))[0] == reason


def test_skip_reasons_are_known_before_the_send(home: Home) -> None:
    """For a draft each contact has the skip reason that its message has after the send."""
    use_sms_transport(countries=["US", "DE", "FR"])
    transactions.write(run, "UPDATE account SET sms_from = 'Acme'")
    reasons = {
        BERLIN: None,
        BOSTON: "sender_not_allowed",
        TOKYO: "country_not_allowed",
        "+33899123456": "invalid_address",
    }
    contact_ids = {number: home.upsert(phone=number).contact.id for number in reasons}
    request = {
        "name": "Spring", "channel": "sms", "template_attributes": {"body": "Hi"},
        "trigger_attributes": {"contact_list_id": home.list_of(*contact_ids.values()).id},
    }  # fmt: skip
    draft = transactions.write(store.create, home.account_id, validation.read(CampaignCreate, request))
    for number, reason in reasons.items():
        explanation = audience_explanation.explain_contact(home.account_id, draft.id, contact_ids[number])
        assert (explanation.in_audience, explanation.skip_reason) == (True, reason), number
    queue_sms_campaign(home)
    claim_all()
    assert {number: reason for number, _, reason in message_states()} == reasons


def test_alphanumeric_senders_are_not_sent_to_every_country(home: Home) -> None:
    """Recipients in a country without sender names are skipped, except in the capture inbox."""
    use_sms_transport()
    transactions.write(run, "UPDATE account SET sms_from = 'Acme'")
    home.upsert(phone=BERLIN)
    home.upsert(phone=BOSTON)
    queue_sms_campaign(home)
    assert [row.recipient for row in claim_all()] == [BERLIN]
    assert message_states()[1] == (BOSTON, "skipped", "sender_not_allowed")
    queue_sms_campaign(home, "capture")
    assert [row.recipient for row in claim_all()] == [BERLIN, BOSTON]


def test_marketing_may_require_consent_evidence(home: Home) -> None:
    """The words agreed to or a keyword are evidence, a bare opt-in is not; transactional SMS need none."""
    use_sms_transport(require_evidence=True)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    contacts_by_digit = {digit: home.upsert(phone=f"+491511234567{digit}").contact for digit in range(4)}
    for number, evidence in (
        (1, Evidence("form", "recipient", text="Texts about offers, reply STOP to leave")),
        (2, Evidence("keyword", "recipient")),
        (3, Evidence("api", "key:1", text="  ")),
    ):
        channel = home.channel(f"+491511234567{number}")
        transactions.write(consent.opt_in, channel, "recipient", evidence)
    queue_sms_campaign(home)
    assert [row.contact_id for row in claim_all()] == [contacts_by_digit[1].id, contacts_by_digit[2].id]
    assert [row[1:] for row in message_states()] == [
        ("skipped", "no_consent"), ("sending", None), ("sending", None), ("skipped", "no_consent"),
    ]  # fmt: skip
    transactions.write(run, "UPDATE message SET status = 'queued', skip_reason = NULL, transactional = 1")
    assert queue.get_refusal(LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message LIMIT 1")[0])) is None


@pytest.mark.parametrize("start", ["2030-01-05T06:00:00Z", "2030-03-31T00:30:00Z", "2030-11-03T05:30:00Z"])
def test_quiet_hours_in_time_zones(start: str, home: Home) -> None:
    """Each SMS leaves by day in all time zones its recipient may be in, at once or soon after quiet hours.

    The contact's own time zone counts first, then those of the number, the country and the account.
    """
    advance_to(home, start)
    use_sms_transport()
    set_quiet_hours(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', time_zone = 'America/Sao_Paulo'")
    zones_by_number: dict[str, tuple[str, ...]] = {}
    for number, zones, body in (
        (BERLIN, ("Europe/Berlin",), {}), (BOSTON, ("America/New_York",), {}), (TOKYO, ("Asia/Tokyo",), {}),
        (HONOLULU, ("Pacific/Honolulu",), {}),
        ("+61491570006", ("Australia/Perth", "Australia/Sydney", "Australia/Adelaide", "Australia/Lord_Howe"), {}),
        ("+18005550123", ("America/New_York", "America/Chicago", "Pacific/Honolulu", "America/Adak"), {}),
        ("+16175550124", ("Asia/Kolkata",), {"data": {"time_zone": " Asia/Kolkata "}}),
        ("+16175550125", ("America/New_York",), {"data": {"time_zone": "Mars/Olympus"}}),
        ("+80012345678", ("Europe/Lisbon", "Atlantic/Azores"), {"country_code": "PT"}),
        ("+80012345679", ("America/Sao_Paulo",), {}),
    ):  # fmt: skip
        home.upsert(phone=number, **body)
        zones_by_number[number] = zones
    queue_sms_campaign(home)
    started_at, sent_at = clock.now_ms(), {}
    for _ in range(26 * 12):
        for row in claim_all():
            sent_at[row.recipient] = clock.now_ms()
        home.advance(300)
    assert sent_at.keys() == zones_by_number.keys()
    for number, zones in zones_by_number.items():
        sent, first = sent_at[number], started_at
        assert all(is_day(sent, zone) for zone in zones), (number, clock.iso(sent))
        while not all(is_day(first, zone) for zone in zones):
            first += 60_000
        assert sent - first <= (480_000 if first > started_at else 60_000), (number, clock.iso(sent), clock.iso(first))


def is_day(moment: int, zone: str) -> bool:
    """Return whether it is day in a time zone."""
    return 8 <= datetime.fromtimestamp(moment / 1000, ZoneInfo(zone)).hour < 21


def test_held_sms_are_spread_over_a_minute(home: Home) -> None:
    """300 SMS of one time zone become due within a minute after quiet hours, at most 8 in a second."""
    advance_to(home, "2030-01-05T03:00:00Z")
    use_sms_transport()
    set_quiet_hours(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    for number in range(300):
        home.upsert(phone=f"+49151123{number:05}")
    queue_sms_campaign(home)
    assert claim_all() == []
    assert set(rows("SELECT status, claimed_by, attempts FROM message")) == {("held", None, 0)}
    morning = clock.parse("2030-01-05T07:00:00Z")
    due = [row[0] - morning for row in rows("SELECT due_at FROM message")]
    assert min(due) >= 0 and max(due) < 60_000
    assert max(sum(second * 1000 <= offset < (second + 1) * 1000 for offset in due) for second in range(60)) <= 8
    advance_to(home, "2030-01-05T07:00:30Z")
    assert 120 <= len(claim_all()) <= 180
    advance_to(home, "2030-01-05T07:01:01Z")
    claim_all()
    assert scalar("SELECT count(*) FROM message WHERE status = 'sending'") == 300


def test_changed_quiet_hours_apply_to_held_sms(home: Home) -> None:
    """Held SMS are rechecked if the quiet hours change.

    Transactional ones keep their time, and unchanged hours change nothing.
    """
    advance_to(home, "2030-01-05T03:00:00Z")
    use_sms_transport()
    set_quiet_hours(home)
    wake_ups: list[str] = []
    signals.register_handler("quiet_hours", lambda: wake_ups.append("quiet_hours"))
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    for number in range(3):
        home.upsert(phone=f"+4915112{number:06}")
    queue_sms_campaign(home)
    assert claim_all() == []
    transactions.write(run, "UPDATE message SET campaign_id = NULL WHERE id = 3")
    due_before = rows("SELECT id, due_at FROM message ORDER BY id")
    sms_rules.recheck_held_messages()
    assert scalar("SELECT count(*) FROM message WHERE due_at > ?", (clock.now_ms(),)) == 1
    assert claim_all() == [] and rows("SELECT id, due_at FROM message ORDER BY id") == due_before
    home.advance(5)
    request = validation.read(AccountWrite, {"sms_quiet_hours": {"from": "21:00", "to": "04:00"}})
    transactions.write(accounts.update, home.account_id, request)
    assert wake_ups == ["quiet_hours"]
    sms_rules.recheck_held_messages()
    assert [row.id for row in claim_all()] == [1, 2]
    assert rows("SELECT status, due_at FROM message WHERE id = 3") == [("held", due_before[2][1])]


def test_changed_quiet_hours_leave_a_later_variant_at_its_time(home: Home) -> None:
    """A variant that is sent an hour later, after a hold, is not sent earlier because quiet hours change."""
    advance_to(home, "2030-01-05T12:00:00Z")
    use_sms_transport()
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    contacts = [home.upsert(phone=f"+4915112{number:06}").contact.id for number in range(20)]
    body = {
        "name": "Spring", "channel": "sms", "template_attributes": {"body": "Hi"},
        "trigger_attributes": {"contact_list_id": home.list_of(*contacts).id},
        "experiment": {"variants": [{}, {"body": "Later", "send_after_minutes": 60}]},
    }  # fmt: skip
    draft = transactions.write(store.create, home.account_id, validation.read(CampaignCreate, body))
    transactions.write(lambda: send.launch(store.get(home.account_id, draft.id), hold_seconds=60))
    assert set(rows("SELECT variant, status FROM message")) == {(1, "held"), (2, "queued")}
    home.advance(61)
    transactions.write(run, "UPDATE campaign SET phase = 'sending'")
    sms_rules.recheck_held_messages()
    sent = [row.id for row in claim_all()]
    assert sent == [row[0] for row in rows("SELECT id FROM message WHERE variant = 1 ORDER BY id")]
    home.advance(3600)
    assert len(sent) + len(claim_all()) == 20


def test_quiet_hours_apply_to_marketing_only(home: Home) -> None:
    """Transactional SMS and captured ones are sent at once, and so are all if no quiet hours are set."""
    advance_to(home, "2030-01-05T03:00:00Z")
    use_sms_transport()
    set_quiet_hours(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=BERLIN)
    queue_sms_campaign(home, "capture")
    assert len(claim_all()) == 1
    queue_sms_campaign(home)
    transactions.write(run, "UPDATE message SET transactional = 1, campaign_id = NULL WHERE provider = 'twilio'")
    assert len(claim_all()) == 1
    queue_sms_campaign(home)
    set_quiet_hours(home, None)
    assert len(claim_all()) == 1


def test_sms_that_expire_in_quiet_hours_are_skipped(home: Home) -> None:
    """If quiet hours last beyond `sms.give_up` the SMS is skipped; one sent before is not."""
    advance_to(home, "2030-01-05T20:30:00Z")
    use_sms_transport(give_up="6h")
    set_quiet_hours(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=BERLIN)
    home.upsert(phone=BOSTON)
    queue_sms_campaign(home)
    assert [row.recipient for row in claim_all()] == [BOSTON]
    assert message_states()[0] == (BERLIN, "skipped", "quiet_hours_expired")
    assert rows("SELECT event FROM event WHERE event = 'sms_skipped'") == [("sms_skipped",)]


def test_uncertain_sms_wait_for_the_end_of_quiet_hours(home: Home) -> None:
    """An SMS that is sent again is held during quiet hours too, with either setting of `in_doubt`."""
    advance_to(home, "2030-01-05T03:00:00Z")
    use_sms_transport()
    set_quiet_hours(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=BERLIN)
    queue_sms_campaign(home)
    transactions.write(run, "UPDATE message SET uncertain_count = 1")
    for in_doubt in ("resend", "hold"):
        use_sms_transport(in_doubt=in_doubt)
        assert claim_all() == []
        transactions.write(run, "UPDATE message SET due_at = 0")
    advance_to(home, "2030-01-05T09:05:00Z")
    assert len(claim_all()) == 1


def test_segments_per_day_are_limited(home: Home) -> None:
    """Beyond the limit all SMS but automatic replies wait for the account's next day; captured ones do not count."""
    advance_to(home, "2030-01-05T12:00:00Z")
    use_sms_transport(parts_per_day=6)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', time_zone = 'Asia/Tokyo'")
    for number in range(5):
        home.upsert(phone=f"+49151123{number:05}")
    queue_sms_campaign(home)
    reader = QueueReader("sms")
    for _ in range(3):
        [row] = reader.fetch_candidates(1)
        assert transactions.write(queue.claim_one, row, "process", row, clock.now_ms())
        record_accepted([row], parts=2)
    assert claim_all() == [] and sorted(row[1] for row in message_states()) == ["held", "held", "sent", "sent", "sent"]
    status = delivery_status.get_status(home.account_id).sms
    assert [(obstacle.code, obstacle.until) for obstacle in status.obstacles] == [
        ("parts_per_day", clock.parse("2030-01-05T15:00:00Z"))
    ]
    transactions.write(
        run,
        "UPDATE message SET due_at = 0, source_type = 'system', transactional = 1, campaign_id = NULL "
        "WHERE id = (SELECT max(id) FROM message)",
    )
    assert len(claim_all()) == 1
    home.upsert(phone=BOSTON)
    transactions.write(run, "DELETE FROM message WHERE status = 'held'")
    queue_sms_campaign(home, "capture")
    assert len(claim_all()) == 6
    tomorrow = clock.parse("2030-01-06T00:00:00+09:00")
    queue_sms_campaign(home)
    assert claim_all() == []
    assert all(0 <= row[0] - tomorrow < 60_000 for row in rows("SELECT due_at FROM message WHERE status = 'held'"))
    advance_to(home, "2030-01-05T15:01:00Z")
    assert len(claim_all()) == 6


def test_captured_and_test_sms_do_not_count_as_segments(home: Home) -> None:
    """Only segments that a provider accepted are counted, without test sends."""
    home.upsert(phone=BERLIN)
    queue_sms_campaign(home, "capture")
    record_accepted(claim_all(), parts=3)
    assert rows("SELECT parts FROM sms_day") == []
    queue_sms_campaign(home)
    transactions.write(run, "UPDATE message SET test = 1 WHERE status = 'queued'")
    record_accepted(claim_all(), parts=3)
    assert rows("SELECT parts FROM sms_day") == []
    queue_sms_campaign(home)
    record_accepted(claim_all(), parts=3)
    assert rows("SELECT parts FROM sms_day") == [(3,)]


ANYWHERE = ("Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin", "Asia/Kolkata")


@pytest.mark.parametrize(
    ("hours", "zones", "expected"),
    [
        ({"from": "21:00", "to": "08:00"}, ("Europe/Berlin",), "2030-01-05T07:00:00Z"),
        ({"from": "21:00", "to": "08:00"}, addresses.inspect_number("+18005550123").zones, "2030-01-05T18:00:00Z"),
        ({"from": "21:00", "to": "08:00"}, addresses.inspect_number("+79261234567").zones, None),
        ({"from": "12:00", "to": "13:00"}, ("Asia/Kolkata",), None),
        # No such hour exists: the end is when quiet hours apply in the fewest zones
        ({"from": "10:00", "to": "09:00"}, ("Europe/Berlin", "Europe/Vienna", "Asia/Tokyo"), "2030-01-05T08:00:00Z"),
        ({"from": "21:00", "to": "08:00"}, (), None),
    ],
)
def test_quiet_hours_end_in_all_time_zones(hours: Any, zones: tuple[str, ...], expected: str | None) -> None:
    """The end is when no zone has quiet hours or, if there is no such time, when the fewest have."""
    now = clock.parse("2030-01-05T06:00:00Z")
    assert sms_rules.get_quiet_end_everywhere(hours, zones, now) == (
        None if expected is None else clock.parse(expected)
    )
    for step in range(0, 48 * 60, 31):
        moment = now + int(timedelta(minutes=step) / timedelta(milliseconds=1))
        quiet_end = sms_rules.get_quiet_end_everywhere(hours, zones, moment)
        assert quiet_end is None or moment < quiet_end <= moment + 48 * 3_600_000
        assert quiet_end is None or sms_rules.get_quiet_end_everywhere(hours, zones, quiet_end) is None
