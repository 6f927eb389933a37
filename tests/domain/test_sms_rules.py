"""Whether an SMS may go to a number and when: refused numbers, evidence, nights, and parts of a day."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from appliance.accounts import accounts
from appliance.accounts.accounts import AccountWrite
from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.campaigns import audience, store
from appliance.campaigns.store import CampaignCreate
from appliance.core import clock, signals, validation
from appliance.sending.messages import delivery_status, queue, sms_rules
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.sms import numbers
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.home import Home
from tests.domain.sms_crowd import accept, ends, go_to, real, taken, texted

NIGHT = '{"from":"21:00","to":"08:00"}'
BERLIN, BOSTON, HONOLULU, TOKYO = "+4915112345678", "+16175550123", "+18085550123", "+819012345678"


def sleeps(home: Home, hours: str | None = NIGHT) -> None:
    """Give the account quiet hours."""
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
def test_some_numbers_get_no_sms(number: str, countries: list[str], reason: str | None, home: Home) -> None:
    """What no network has, what costs extra and what is in no chosen country is skipped with its reason."""
    real(countries=countries)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=number)
    texted(home)
    assert [row.recipient for row in taken()] == ([] if reason else [number])
    assert ends() == [(number, "skipped" if reason else "sending", reason)]
    assert (sms_rules.get_number_refusal(number) or (None,))[0] == reason


def test_who_would_get_none_is_told_before(home: Home) -> None:
    """Of a draft it is said who would get no SMS and why, as their rows say once it is sent."""
    real(countries=["US", "DE", "FR"])
    transactions.write(run, "UPDATE account SET sms_from = 'Acme'")
    reasons = {
        BERLIN: None,
        BOSTON: "sender_not_allowed",
        TOKYO: "country_not_allowed",
        "+33899123456": "invalid_address",
    }
    people = {number: home.upsert(phone=number).contact.id for number in reasons}
    asked = {
        "name": "Spring", "channel": "sms", "template_attributes": {"body": "Hi"},
        "trigger_attributes": {"contact_list_id": home.list_of(*people.values()).id},
    }  # fmt: skip
    draft = transactions.write(store.create, home.account_id, validation.read(CampaignCreate, asked))
    for number, reason in reasons.items():
        found = audience.explain_contact(home.account_id, draft.id, people[number])
        assert (found.in_audience, found.skip_reason) == (True, reason), number
    texted(home)
    taken()
    assert {number: reason for number, _, reason in ends()} == reasons


def test_a_name_is_sent_to_no_country_that_takes_none(home: Home) -> None:
    """Whoever the account's name cannot reach is skipped; in the inbox everybody gets it."""
    real()
    transactions.write(run, "UPDATE account SET sms_from = 'Acme'")
    home.upsert(phone=BERLIN)
    home.upsert(phone=BOSTON)
    texted(home)
    assert [row.recipient for row in taken()] == [BERLIN]
    assert ends()[1] == (BOSTON, "skipped", "sender_not_allowed")
    texted(home, "capture")
    assert [row.recipient for row in taken()] == [BERLIN, BOSTON]


def test_marketing_wants_evidence_where_that_is_set(home: Home) -> None:
    """Only words, a confirmation or a keyword are evidence; a mere `opt_in` is none, and service messages need none."""
    real(require_evidence=True)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    people = {one: home.upsert(phone=f"+491511234567{one}").contact for one in range(4)}
    for number, evidence in (
        (1, Evidence("form", "recipient", text="Texts about offers, reply STOP to leave")),
        (2, Evidence("keyword", "recipient")),
        (3, Evidence("api", "key:1", text="  ")),
    ):
        channel = home.channel(f"+491511234567{number}")
        transactions.write(consent.opt_in, channel, "recipient", evidence)
    texted(home)
    assert [row.contact_id for row in taken()] == [people[1].id, people[2].id]
    assert [row[1:] for row in ends()] == [
        ("skipped", "no_consent"), ("sending", None), ("sending", None), ("skipped", "no_consent"),
    ]  # fmt: skip
    transactions.write(run, "UPDATE message SET status = 'queued', skip_reason = NULL, transactional = 1")
    assert queue.get_refusal(Claim._make(rows(f"SELECT {COLUMNS} FROM message LIMIT 1")[0])) is None


@pytest.mark.parametrize("start", ["2030-01-05T06:00:00Z", "2030-03-31T00:30:00Z", "2030-11-03T05:30:00Z"])
def test_nobody_is_woken(start: str, home: Home) -> None:
    """Everybody gets it by day by all clocks they may live by, at once where it is day, in nights of changing clocks.

    Where they say their time zone that counts, then what the number says, its country's, the account's.
    """
    go_to(home, start)
    real()
    sleeps(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', time_zone = 'America/Sao_Paulo'")
    where: dict[str, tuple[str, ...]] = {}
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
        where[number] = zones
    texted(home)
    begun, gone = clock.now_ms(), {}
    for _ in range(26 * 12):
        for row in taken():
            gone[row.recipient] = clock.now_ms()
        home.advance(300)
    assert gone.keys() == where.keys()
    for number, zones in where.items():
        at, first = gone[number], begun
        assert all(is_day(at, zone) for zone in zones), (number, clock.iso(at))
        while not all(is_day(first, zone) for zone in zones):
            first += 60_000
        assert at - first <= (480_000 if first > begun else 60_000), (number, clock.iso(at), clock.iso(first))


def is_day(at: int, zone: str) -> bool:
    """Return whether it is day by the clocks of a zone."""
    return 8 <= datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).hour < 21


def test_what_waited_for_the_morning_leaves_one_after_the_other(home: Home) -> None:
    """300 people of one zone go within a minute of the end of the night, no second more than a few of them."""
    go_to(home, "2030-01-05T03:00:00Z")
    real()
    sleeps(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    for number in range(300):
        home.upsert(phone=f"+49151123{number:05}")
    texted(home)
    assert taken() == []
    assert set(rows("SELECT status, claimed_by, attempts FROM message")) == {("held", None, 0)}
    morning = clock.parse("2030-01-05T07:00:00Z")
    due = [row[0] - morning for row in rows("SELECT due_at FROM message")]
    assert min(due) >= 0 and max(due) < 60_000
    assert max(sum(second * 1000 <= one < (second + 1) * 1000 for one in due) for second in range(60)) <= 8
    go_to(home, "2030-01-05T07:00:30Z")
    assert 120 <= len(taken()) <= 180
    go_to(home, "2030-01-05T07:01:01Z")
    taken()
    assert scalar("SELECT count(*) FROM message WHERE status = 'sending'") == 300


def test_other_quiet_hours_hold_for_what_waits_too(home: Home) -> None:
    """When an account gives its hours up, or shortens them, who waits is judged anew; single messages keep their time.

    Hours that are written again as they were change nobody's time.
    """
    go_to(home, "2030-01-05T03:00:00Z")
    real()
    sleeps(home)
    rung: list[str] = []
    signals.register_handler("quiet_hours", lambda: rung.append("quiet_hours"))
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    for number in range(3):
        home.upsert(phone=f"+4915112{number:06}")
    texted(home)
    assert taken() == []
    transactions.write(run, "UPDATE message SET campaign_id = NULL WHERE id = 3")
    before = rows("SELECT id, due_at FROM message ORDER BY id")
    queue.recheck_held_sms()
    assert scalar("SELECT count(*) FROM message WHERE due_at > ?", (clock.now_ms(),)) == 1
    assert taken() == [] and rows("SELECT id, due_at FROM message ORDER BY id") == before
    home.advance(5)
    asked = validation.read(AccountWrite, {"sms_quiet_hours": {"from": "21:00", "to": "04:00"}})
    transactions.write(accounts.update, home.account_id, asked)
    assert rung == ["quiet_hours"]
    queue.recheck_held_sms()
    assert [row.id for row in taken()] == [1, 2]
    assert rows("SELECT status, due_at FROM message WHERE id = 3") == [("held", before[2][1])]


def test_night_is_for_marketing_that_leaves(home: Home) -> None:
    """Service messages and what stays in the inbox go at once; so does all where the account has no quiet hours."""
    go_to(home, "2030-01-05T03:00:00Z")
    real()
    sleeps(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=BERLIN)
    texted(home, "capture")
    assert len(taken()) == 1
    texted(home)
    transactions.write(run, "UPDATE message SET transactional = 1, campaign_id = NULL WHERE provider = 'twilio'")
    assert len(taken()) == 1
    texted(home)
    sleeps(home, None)
    assert len(taken()) == 1


def test_what_would_come_too_late_is_skipped(home: Home) -> None:
    """A night that lasts longer than SMS are tried ends those that wait for it; an attempt before it counts."""
    go_to(home, "2030-01-05T20:30:00Z")
    real(give_up="6h")
    sleeps(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=BERLIN)
    home.upsert(phone=BOSTON)
    texted(home)
    assert [row.recipient for row in taken()] == [BOSTON]
    assert ends()[0] == (BERLIN, "skipped", "quiet_hours_expired")
    assert rows("SELECT event FROM event WHERE event = 'sms_skipped'") == [("sms_skipped",)]


def test_what_was_in_doubt_wakes_nobody(home: Home) -> None:
    """What may have been taken and is sent again, by itself or by a person, waits for the day like all others."""
    go_to(home, "2030-01-05T03:00:00Z")
    real()
    sleeps(home)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    home.upsert(phone=BERLIN)
    texted(home)
    transactions.write(run, "UPDATE message SET uncertain_count = 1")
    for in_doubt in ("resend", "hold"):
        real(in_doubt=in_doubt)
        assert taken() == []
        transactions.write(run, "UPDATE message SET due_at = 0")
    go_to(home, "2030-01-05T09:05:00Z")
    assert len(taken()) == 1


def test_a_day_has_so_many_parts(home: Home) -> None:
    """When the parts of a day are used up everything waits for the next day of the account, service messages too."""
    go_to(home, "2030-01-05T12:00:00Z")
    real(parts_per_day=6)
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', time_zone = 'Asia/Tokyo'")
    for number in range(5):
        home.upsert(phone=f"+49151123{number:05}")
    texted(home)
    line = QueueReader("sms")
    for _ in range(3):
        [row] = line.fetch_candidates(1)
        assert transactions.write(queue.claim_one, row, "process", row, clock.now_ms())
        accept([row], parts=2)
    assert taken() == [] and sorted(row[1] for row in ends()) == ["held", "held", "sent", "sent", "sent"]
    way = delivery_status.get_status(home.account_id).sms
    assert [(one.code, one.until) for one in way.obstacles] == [("parts_per_day", clock.parse("2030-01-05T15:00:00Z"))]
    transactions.write(
        run,
        "UPDATE message SET due_at = 0, source_type = 'system', transactional = 1, campaign_id = NULL "
        "WHERE id = (SELECT max(id) FROM message)",
    )
    assert len(taken()) == 1
    home.upsert(phone=BOSTON)
    transactions.write(run, "DELETE FROM message WHERE status = 'held'")
    texted(home, "capture")
    assert len(taken()) == 6
    tomorrow = clock.parse("2030-01-06T00:00:00+09:00")
    texted(home)
    assert taken() == []
    assert all(0 <= row[0] - tomorrow < 60_000 for row in rows("SELECT due_at FROM message WHERE status = 'held'"))
    go_to(home, "2030-01-05T15:01:00Z")
    assert len(taken()) == 6


def test_parts_in_the_inbox_are_paid_by_nobody(home: Home) -> None:
    """Only what a provider took is counted, tests among it not."""
    home.upsert(phone=BERLIN)
    texted(home, "capture")
    accept(taken(), parts=3)
    assert rows("SELECT parts FROM sms_day") == []
    texted(home)
    transactions.write(run, "UPDATE message SET test = 1 WHERE status = 'queued'")
    accept(taken(), parts=3)
    assert rows("SELECT parts FROM sms_day") == []
    texted(home)
    accept(taken(), parts=3)
    assert rows("SELECT parts FROM sms_day") == [(3,)]


ANYWHERE = ("Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin", "Asia/Kolkata")


@pytest.mark.parametrize(
    ("hours", "zones", "end"),
    [
        ({"from": "21:00", "to": "08:00"}, ("Europe/Berlin",), "2030-01-05T07:00:00Z"),
        ({"from": "21:00", "to": "08:00"}, numbers.inspect_number("+18005550123").zones, "2030-01-05T18:00:00Z"),
        ({"from": "21:00", "to": "08:00"}, numbers.inspect_number("+79261234567").zones, None),
        ({"from": "12:00", "to": "13:00"}, ("Asia/Kolkata",), None),
        # There is no such hour: then, when the fewest sleep
        ({"from": "10:00", "to": "09:00"}, ("Europe/Berlin", "Europe/Vienna", "Asia/Tokyo"), "2030-01-05T08:00:00Z"),
        ({"from": "21:00", "to": "08:00"}, (), None),
    ],
)
def test_a_night_ends_when_it_ends_everywhere(hours: Any, zones: tuple[str, ...], end: str | None) -> None:
    """Of several time zones it is the moment at which none sleeps; where there is none, at which the fewest do."""
    now = clock.parse("2030-01-05T06:00:00Z")
    assert sms_rules.get_quiet_end_everywhere(hours, zones, now) == (None if end is None else clock.parse(end))
    for step in range(0, 48 * 60, 31):
        at = now + int(timedelta(minutes=step) / timedelta(milliseconds=1))
        found = sms_rules.get_quiet_end_everywhere(hours, zones, at)
        assert found is None or at < found <= at + 48 * 3_600_000
        assert found is None or sms_rules.get_quiet_end_everywhere(hours, zones, found) is None
