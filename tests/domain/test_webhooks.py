"""Webhooks without a network: who gets which event, when it is tried again, when it ends, what is removed."""

import json
from collections import Counter
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.core import clock, crypto, validation
from appliance.events import listing, log
from appliance.events.log import NewEvent
from appliance.ops.doctor import accounts as automations
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Event, Message, User, Webhook, WebhookDelivery
from appliance.webhooks import queue, subscriptions, worker
from appliance.webhooks.queue import DueDelivery, Outcome
from appliance.webhooks.subscriptions import EncryptedSecrets, WebhookPatch, WebhookWrite
from tests.domain.home import BY_API, Home

BY = Actor("key:1")
# Decisions, section 13, in seconds
LADDER = [30, 60, 120, 300, 900, 1800, 3600, 7200, 21_600, 86_400]


def hook(home: Home, *events: str, account_id: int | None = None) -> Webhook:
    """Make a webhook."""
    asked = validation.read(WebhookWrite, {"url": "https://shop.example/hook?token=1", "events": list(events)})
    return transactions.write(subscriptions.create, account_id or home.account_id, asked, BY)[0]


def happen(home: Home, *names: str, account_id: int | None = None) -> None:
    """Let events happen."""
    all_happened = [NewEvent(account_id or home.account_id, name) for name in names]
    transactions.write(log.record_many, all_happened)


def fan_out() -> int:
    """Look at all events, and return in how many bites that was."""
    bites = 0
    while transactions.write(queue.create_deliveries):
        bites += 1
    return bites


def told(webhook: Webhook) -> list[str]:
    """Return the names of events on their way to a webhook, in their order."""
    found = rows(
        "SELECT e.event FROM webhook_delivery d JOIN event e ON e.id = d.event_id WHERE d.webhook_id = ? ORDER BY d.id",
        (webhook.id,),
    )
    return [name for (name,) in found]


def job(webhook: Webhook) -> DueDelivery:
    """Return the only delivery of a webhook as one that is due."""
    found = WebhookDelivery.get(WebhookDelivery.webhook == webhook)
    return DueDelivery(found.id, webhook.id, found.event_id, found.attempts)


def came(outcome: Outcome) -> None:
    """Let something come of an attempt."""
    transactions.write(queue.record_outcomes, [outcome])


def test_who_gets_which(home: Home) -> None:
    """Each gets what it asked for of its own account, once, from its beginning on, quiet and test events too."""
    happen(home, "order_paid")
    everything, paid = hook(home), hook(home, "order_paid", "opt_in")
    other = transactions.write(lambda: accounts.create("Else").id)
    elsewhere = hook(home, account_id=other)
    happen(home, "order_paid", "opt_out", "opt_in")
    happen(home, "order_paid", account_id=other)
    transactions.write(log.record, NewEvent(home.account_id, "opt_in", quiet=True, test=True))
    fan_out()
    fan_out()
    names = ["order_paid", "opt_out", "opt_in", "opt_in"]
    assert told(everything) == names and told(elsewhere) == ["order_paid"]
    assert told(paid) == ["order_paid", "opt_in", "opt_in"]
    assert scalar("SELECT event_id FROM cursor WHERE name = 'webhooks'") == scalar("SELECT max(id) FROM event")
    transactions.write(run, "UPDATE cursor SET event_id = 0")
    fan_out()
    assert told(everything) == names


def test_bites_are_small(home: Home) -> None:
    """Many events are looked at in several transactions; without anybody who listens, in one."""
    happen(home, *["order_paid"] * 2500)
    assert fan_out() == 1
    listening = hook(home)
    happen(home, *["order_paid"] * 2500)
    assert fan_out() == 3 and len(told(listening)) == 2500


def test_off_and_on_again(home: Home) -> None:
    """What happens while it is off is not kept for it; what waited before still waits."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()
    transactions.write(
        subscriptions.update, home.account_id, listening.id, validation.read(WebhookPatch, {"enabled": False}), BY
    )
    happen(home, "order_shipped")
    transactions.write(
        subscriptions.update, home.account_id, listening.id, validation.read(WebhookPatch, {"enabled": True}), BY
    )
    happen(home, "checkout")
    fan_out()
    assert told(listening) == ["order_paid", "checkout"]


def test_the_ladder(home: Home) -> None:
    """After each failure comes the agreed pause; after ten of them it is given up, and stays so."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()
    for pause in LADDER:
        now = clock.now_ms()
        came(Outcome(job(listening), 500, "no"))
        found = WebhookDelivery.get(WebhookDelivery.webhook == listening)
        assert found.status == "pending" and 0 <= found.next_attempt_at - now - 1000 * pause < 2000
        home.advance(pause)
    came(Outcome(job(listening), 500, "no"))
    found = WebhookDelivery.get(WebhookDelivery.webhook == listening)
    assert (found.status, found.attempts, found.next_attempt_at) == ("failed", 11, None)
    before = fetch_one("SELECT * FROM webhook_delivery")
    came(Outcome(job(listening), 200, "late"))
    assert fetch_one("SELECT * FROM webhook_delivery") == before


@pytest.mark.parametrize(("asked", "waits"), [(0, 30), (10, 30), (3600, 3600), (10**6, 86_400)])
def test_a_receiver_may_ask_for_more_time(asked: int, waits: int, home: Home) -> None:
    """The longer of its wish and ours, and never more than a day."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()
    now = clock.now_ms()
    came(Outcome(job(listening), 429, "", retry_after_ms=1000 * asked))
    found = WebhookDelivery.get(WebhookDelivery.webhook == listening)
    assert 0 <= found.next_attempt_at - now - 1000 * waits < 2000


def test_a_replay_begins_anew_whatever_was_on_its_way(home: Home) -> None:
    """The outcome of an attempt that began before a replay counts for nothing."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()
    came(Outcome(job(listening), 500, "no"))
    begun = job(listening)
    transactions.write(run, "UPDATE webhook_delivery SET attempts = 0, next_attempt_at = 0")
    came(Outcome(begun, 200, "yes"))
    assert fetch_one("SELECT status, attempts FROM webhook_delivery") == ("pending", 0)


def test_days_of_failure_are_days_of_attempts(home: Home) -> None:
    """Two failures a month apart are no month of failure, and one success begins anew."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()

    def attempt(status: int) -> Webhook:
        transactions.write(run, "UPDATE webhook_delivery SET status = 'pending', attempts = 0")
        came(Outcome(job(listening), status, ""))
        return Webhook.get_by_id(listening.id)

    assert attempt(500).enabled
    home.advance(30 * 86_400)
    assert attempt(500).enabled
    for _ in range(2):
        home.advance(86_400)
        assert attempt(500).enabled
    assert attempt(204).failing_since is None
    for day in range(3):
        assert attempt(500).enabled, day
        home.advance(86_401)
    off = attempt(500)
    assert not off.enabled and off.disabled_reason == "failing"


def test_a_clock_that_was_wrong_puts_off_no_end(home: Home) -> None:
    """A failure that was noted a year ahead, by a clock that is put right then, counts from when that was seen."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()

    def attempt() -> Webhook:
        transactions.write(run, "UPDATE webhook_delivery SET status = 'pending', attempts = 0")
        came(Outcome(job(listening), 500, ""))
        return Webhook.get_by_id(listening.id)

    home.advance(366 * 86_400)
    assert attempt().enabled
    home.advance(-366 * 86_400)
    for day in range(3):
        assert attempt().enabled, day
        home.advance(86_401)
    assert not attempt().enabled


def test_what_a_wrong_clock_put_off_is_due_when_it_is_right(home: Home) -> None:
    """An attempt that failed while the clock was a month ahead is made again now, not in a month."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()
    home.advance(30 * 86_400)
    came(Outcome(job(listening), 500, "no", retry_after_ms=86_400_000))
    assert not worker.has_work()
    home.advance(-30 * 86_400)
    assert worker.has_work() and transactions.write(queue.reschedule_delayed_deliveries)
    found = WebhookDelivery.get(WebhookDelivery.webhook == listening)
    assert abs(found.next_attempt_at - clock.now_ms()) < 5_000 and found.attempts == 1
    assert not queue.has_delayed_deliveries() and not transactions.write(queue.reschedule_delayed_deliveries)


def test_half_of_the_connections_is_for_those_that_answer(home: Home) -> None:
    """However many fail or are slow, there is room for who answers; nobody gets several before they took one."""
    home.configure(webhooks__connections=4, webhooks__connections_each=3)
    bad = [hook(home) for _ in range(6)]
    good = hook(home)
    happen(home, *["order_paid"] * 5)
    fan_out()

    def chosen(*hand: DueDelivery) -> dict[int, int]:
        return Counter(one.webhook_id for one in at_work._choose_deliveries(list(hand)))

    at_work = worker.WebhookWorker()
    assert set(chosen().values()) == {1}
    transactions.write(run, "UPDATE webhook SET failing_since = 1 WHERE id <> ?", (good.id,))
    for _ in range(len(bad) + 1):
        found = chosen()
        assert found.pop(good.id) == 1 and set(found.values()) == {1} and sum(found.values()) == 2
    # Once it has taken one it gets as many as are free; one that took its time takes no more of the other half
    at_work._durations_ms[good.id] = 20
    begun = at_work._choose_deliveries([])
    assert sum(one.webhook_id == good.id for one in begun) in (2, 3)
    at_work._durations_ms[good.id] = 3_000
    assert len(at_work._choose_deliveries([])) == 2 and at_work._choose_deliveries(at_work._choose_deliveries([])) == []


def test_the_owners_are_told(home: Home) -> None:
    """A mail to each owner who can sign in, without what may be secret of the address; an event of the log."""
    now = clock.now_ms()
    for name, role, disabled in (("a", "owner", None), ("b", "owner", now), ("c", "admin", None), ("d", "owner", None)):
        transactions.write(lambda name=name, role=role, disabled=disabled: User.create(
            account=home.account_id, email=f"{name}@example.org", name=name, role=role, password_hash="x",
            disabled_at=disabled, created_at=now, updated_at=now,
        ))  # fmt: skip
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()
    came(Outcome(job(listening), 410, "gone"))
    sent = list(Message.select().where(Message.source_type == "system"))
    assert [one.recipient for one in sent] == ["a@example.org", "d@example.org"]
    said = Event.get(Event.event == "webhook_disabled")
    assert (said.resource_uid, said.resource_name) == (f"webhook:{listening.id}", "shop.example")
    assert "token" not in json.dumps(said.data)


def test_what_is_wrong_with_us_repeats_nothing(home: Home) -> None:
    """If owners cannot be written to, what was delivered is kept as delivered all the same."""
    listening, now = hook(home), clock.now_ms()
    transactions.write(lambda: User.create(account=home.account_id, email="nonsense", name="n", role="owner",
                                   password_hash="x", created_at=now, updated_at=now))  # fmt: skip
    happen(home, "order_paid")
    fan_out()
    with pytest.raises(ValueError):
        came(Outcome(job(listening), 410, ""))
    assert fetch_one("SELECT attempts FROM webhook_delivery") == (0,)
    transactions.write(queue.record_outcomes, [Outcome(job(listening), 410, "")], False)
    assert fetch_one("SELECT status, attempts, response_status FROM webhook_delivery") == ("pending", 1, 410)


def test_an_event_that_is_gone_is_no_failure(home: Home) -> None:
    """A delivery whose event was erased ends, and says nothing about who listens."""
    listening = hook(home)
    happen(home, "order_paid")
    fan_out()
    came(Outcome(job(listening), error="gone", is_cancelled=True))
    assert fetch_one("SELECT status, error FROM webhook_delivery") == ("cancelled", "gone")
    assert Webhook.get_by_id(listening.id).failing_since is None


def test_the_log_is_kept_for_a_while(home: Home) -> None:
    """What is older than it is kept goes in bites, but not what still waits for a webhook that is on."""
    listening, off = hook(home), hook(home)
    happen(home, *["order_paid"] * 3)
    fan_out()
    transactions.write(run, "UPDATE webhook SET enabled = 0 WHERE id = ?", (off.id,))
    came(Outcome(job(listening), 200, ""))
    home.advance(31 * 86_400)
    happen(home, "order_paid")
    fan_out()
    assert transactions.write(queue.prune_deliveries) is False
    left = rows("SELECT webhook_id, status, count(*) FROM webhook_delivery GROUP BY 1, 2")
    assert left == [(listening.id, "pending", 3)]


def test_a_deleted_webhook_goes_in_bites(home: Home) -> None:
    """It is gone for everybody at once, and its log soon; no other's is touched."""
    listening, other = hook(home), hook(home)
    happen(home, *["order_paid"] * 1500)
    fan_out()
    transactions.write(subscriptions.delete, home.account_id, listening.id, BY)
    assert worker.has_work()
    bites = 0
    while transactions.write(queue.purge_deleted_webhooks):
        bites += 1
    assert bites == 2 and Webhook.get_or_none(Webhook.id == listening.id) is None
    assert scalar("SELECT count(*) FROM webhook_delivery") == len(told(other)) == 1500


def test_secrets_sign_as_the_standard_says() -> None:
    """The example of the standard's own documents and libraries."""
    known, said = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    found = crypto.sign_webhook(known, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", said)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_opens_with_its_key_and_for_its_account_only(home: Home) -> None:
    """With another key, or in the row of another account, there is nothing to sign with."""
    listening = hook(home)
    assert len(subscriptions.decrypt_secrets(EncryptedSecrets(listening.account_id, listening.secret))) == 1
    assert subscriptions.decrypt_secrets(EncryptedSecrets(listening.account_id + 1, listening.secret)) == []


def test_an_event_is_written_out_one_way(home: Home) -> None:
    """Read for a webhook it is what the API answers, with every kind of value in it."""
    transactions.write(
        log.record, NewEvent(home.account_id, "x", data={"a": [1, None, "ü"]}, test=True, resource_uid="y:1")
    )
    (event,) = Event.select()
    assert listing.fetch_event(event.id) == listing.shape_event(event) and listing.fetch_event(event.id + 1) is None


def test_the_doctor_sees_who_hears_nothing(home: Home) -> None:
    """It names those that fail, were switched off, or cannot be signed for; hosts alone, and of this account only."""

    def said() -> list[str]:
        return [f"{line.level}: {line.words}" for line in automations.check_webhooks(home.directory, home.account_id)]

    assert said() == []
    listening = hook(home)
    assert said() == ["ok: 1 webhook"]
    happen(home, "order_paid")
    fan_out()
    came(Outcome(job(listening), 500, ""))
    since = clock.iso(Webhook.get_by_id(listening.id).failing_since)
    assert said() == [f"warn: webhook 1 to shop.example has accepted nothing since {since}; 1 deliveries are pending"]
    home.advance(60)
    came(Outcome(job(listening), 410, ""))
    (line,) = said()
    assert line.startswith("warn: webhook 1 to shop.example was disabled (gone) at ")
    transactions.write(run, "UPDATE webhook SET secret = x'00'")
    assert said() == ["fail: webhook 1 to shop.example: its secret cannot be read"]
    assert list(automations.check_webhooks(home.directory, home.account_id + 1)) == []


def test_erasing_takes_answers_along(home: Home) -> None:
    """What a receiver said of an erased person is kept no longer than the person."""
    listening = hook(home)
    contact: Any = home.contact("ann@example.org")
    fan_out()
    transactions.write(run, "UPDATE webhook_delivery SET response_text = 'hello ann@example.org'")
    assert told(listening)
    transactions.write(removal.erase, home.account_id, contact.id, BY_API)
    assert rows("SELECT count(*) FROM webhook_delivery WHERE response_text NOT NULL") == [(0,)]
