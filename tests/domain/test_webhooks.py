"""Webhooks without a network: which events are delivered, retries, disabling and pruning."""

import json
from collections import Counter
from typing import Any

import pytest

from appliance.accounts import accounts, users
from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.core import clock, crypto, validation
from appliance.events import listing, log
from appliance.events.log import NewEvent
from appliance.ops import doctor
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Event, Message, MessageContent, TeamMember, User, Webhook, WebhookDelivery
from appliance.webhooks import queue, subscriptions, worker
from appliance.webhooks.queue import DueDelivery, Outcome
from appliance.webhooks.subscriptions import EncryptedSecrets, WebhookPatch, WebhookWrite
from tests.domain.home import BY_API, Home

BY = Actor("key:1")
# The retry delays of docs/decisions.md#13, in seconds
LADDER = [30, 60, 120, 300, 900, 1800, 3600, 7200, 21_600, 86_400]


def create_webhook(home: Home, *events: str, account_id: int | None = None) -> Webhook:
    """Create a webhook for these events, or for all if there are none."""
    request = validation.read(WebhookWrite, {"url": "https://shop.example/hook?token=1", "events": list(events)})
    return transactions.write(subscriptions.create, account_id or home.account_id, request, BY)[0]


def record_events(home: Home, *names: str, account_id: int | None = None) -> None:
    """Record events with these names."""
    events = [NewEvent(account_id or home.account_id, name) for name in names]
    transactions.write(log.record_many, events)


def create_all_deliveries() -> int:
    """Create the deliveries of all events, and return the number of batches."""
    batches = 0
    while transactions.write(queue.create_deliveries):
        batches += 1
    return batches


def list_delivered_events(webhook: Webhook) -> list[str]:
    """Return the names of the events that are to be delivered to a webhook, in order."""
    result = rows(
        "SELECT e.event FROM webhook_delivery d JOIN event e ON e.id = d.event_id WHERE d.webhook_id = ? ORDER BY d.id",
        (webhook.id,),
    )
    return [name for (name,) in result]


def get_due_delivery(webhook: Webhook) -> DueDelivery:
    """Return the only delivery of a webhook as one that is due."""
    delivery = WebhookDelivery.get(WebhookDelivery.webhook == webhook)
    return DueDelivery(delivery.id, webhook.id, delivery.event_id, delivery.attempts)


def record_outcome(outcome: Outcome) -> None:
    """Record the outcome of an attempt."""
    transactions.write(queue.record_outcomes, [outcome])


def test_a_webhook_gets_only_its_events(home: Home) -> None:
    """Each webhook gets the events it subscribed to once, of its own account, from its creation on."""
    record_events(home, "order_paid")
    everything, paid = create_webhook(home), create_webhook(home, "order_paid", "opt_in")
    other_account = transactions.write(lambda: accounts.create("Else").id)
    elsewhere = create_webhook(home, account_id=other_account)
    record_events(home, "order_paid", "opt_out", "opt_in")
    record_events(home, "order_paid", account_id=other_account)
    transactions.write(log.record, NewEvent(home.account_id, "opt_in", quiet=True, test=True))
    create_all_deliveries()
    create_all_deliveries()
    names = ["order_paid", "opt_out", "opt_in", "opt_in"]
    assert list_delivered_events(everything) == names and list_delivered_events(elsewhere) == ["order_paid"]
    assert list_delivered_events(paid) == ["order_paid", "opt_in", "opt_in"]
    assert scalar("SELECT event_id FROM cursor WHERE name = 'webhooks'") == scalar("SELECT max(id) FROM event")
    transactions.write(run, "UPDATE cursor SET event_id = 0")
    create_all_deliveries()
    assert list_delivered_events(everything) == names


def test_deliveries_are_created_in_batches(home: Home) -> None:
    """2,500 events take three transactions, or one if there is no webhook."""
    record_events(home, *["order_paid"] * 2500)
    assert create_all_deliveries() == 1
    webhook = create_webhook(home)
    record_events(home, *["order_paid"] * 2500)
    assert create_all_deliveries() == 3 and len(list_delivered_events(webhook)) == 2500


def test_a_disabled_webhook_misses_events(home: Home) -> None:
    """Events while it is disabled are not delivered; earlier ones still are."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()
    transactions.write(
        subscriptions.update, home.account_id, webhook.id, validation.read(WebhookPatch, {"enabled": False}), BY
    )
    record_events(home, "order_shipped")
    transactions.write(
        subscriptions.update, home.account_id, webhook.id, validation.read(WebhookPatch, {"enabled": True}), BY
    )
    record_events(home, "checkout")
    create_all_deliveries()
    assert list_delivered_events(webhook) == ["order_paid", "checkout"]


def test_retry_delays(home: Home) -> None:
    """Each failure is followed by its delay; after ten retries the delivery fails for good."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()
    for pause in LADDER:
        now = clock.now_ms()
        record_outcome(Outcome(get_due_delivery(webhook), 500, "no"))
        delivery = WebhookDelivery.get(WebhookDelivery.webhook == webhook)
        assert delivery.status == "pending" and 0 <= delivery.next_attempt_at - now - 1000 * pause < 2000
        home.advance(pause)
    record_outcome(Outcome(get_due_delivery(webhook), 500, "no"))
    delivery = WebhookDelivery.get(WebhookDelivery.webhook == webhook)
    assert (delivery.status, delivery.attempts, delivery.next_attempt_at) == ("failed", 11, None)
    row_before = fetch_one("SELECT * FROM webhook_delivery")
    record_outcome(Outcome(get_due_delivery(webhook), 200, "late"))
    assert fetch_one("SELECT * FROM webhook_delivery") == row_before


@pytest.mark.parametrize(("retry_after", "delay"), [(0, 30), (10, 30), (3600, 3600), (10**6, 86_400)])
def test_retry_after_can_extend_the_delay(retry_after: int, delay: int, home: Home) -> None:
    """The longer of `Retry-After` and our delay counts, at most a day."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()
    now = clock.now_ms()
    record_outcome(Outcome(get_due_delivery(webhook), 429, "", retry_after_ms=1000 * retry_after))
    delivery = WebhookDelivery.get(WebhookDelivery.webhook == webhook)
    assert 0 <= delivery.next_attempt_at - now - 1000 * delay < 2000


def test_a_replay_ignores_earlier_attempts(home: Home) -> None:
    """The outcome of an attempt that started before the replay is ignored."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()
    record_outcome(Outcome(get_due_delivery(webhook), 500, "no"))
    earlier_attempt = get_due_delivery(webhook)
    transactions.write(run, "UPDATE webhook_delivery SET attempts = 0, next_attempt_at = 0")
    record_outcome(Outcome(earlier_attempt, 200, "yes"))
    assert fetch_one("SELECT status, attempts FROM webhook_delivery") == ("pending", 0)


def test_only_days_with_attempts_count_as_failing(home: Home) -> None:
    """Two failures a month apart do not disable a webhook, three days of failures do; a success resets."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()

    def attempt(status: int) -> Webhook:
        transactions.write(run, "UPDATE webhook_delivery SET status = 'pending', attempts = 0")
        record_outcome(Outcome(get_due_delivery(webhook), status, ""))
        return Webhook.get_by_id(webhook.id)

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
    disabled = attempt(500)
    assert not disabled.enabled and disabled.disabled_reason == "failing"


def test_a_corrected_clock_still_disables_a_failing_webhook(home: Home) -> None:
    """A failure recorded a year ahead by a wrong clock counts from when the clock was corrected."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()

    def attempt() -> Webhook:
        transactions.write(run, "UPDATE webhook_delivery SET status = 'pending', attempts = 0")
        record_outcome(Outcome(get_due_delivery(webhook), 500, ""))
        return Webhook.get_by_id(webhook.id)

    home.advance(366 * 86_400)
    assert attempt().enabled
    home.advance(-366 * 86_400)
    for day in range(3):
        assert attempt().enabled, day
        home.advance(86_401)
    assert not attempt().enabled


def test_deliveries_delayed_by_a_wrong_clock_are_rescheduled(home: Home) -> None:
    """An attempt that failed while the clock was a month ahead is due now."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()
    home.advance(30 * 86_400)
    record_outcome(Outcome(get_due_delivery(webhook), 500, "no", retry_after_ms=86_400_000))
    assert not worker.has_work()
    home.advance(-30 * 86_400)
    assert worker.has_work() and transactions.write(queue.reschedule_delayed_deliveries)
    delivery = WebhookDelivery.get(WebhookDelivery.webhook == webhook)
    assert abs(delivery.next_attempt_at - clock.now_ms()) < 5_000 and delivery.attempts == 1
    assert not queue.has_delayed_deliveries() and not transactions.write(queue.reschedule_delayed_deliveries)


def test_half_of_the_connections_are_for_healthy_webhooks(home: Home) -> None:
    """Failing and slow webhooks leave room for others; none gets several before its first success."""
    home.configure(webhooks__connections=4, webhooks__connections_each=3)
    failing = [create_webhook(home) for _ in range(6)]
    healthy = create_webhook(home)
    record_events(home, *["order_paid"] * 5)
    create_all_deliveries()

    def count_chosen(*in_progress: DueDelivery) -> dict[int, int]:
        return Counter(delivery.webhook_id for delivery in webhook_worker._choose_deliveries(list(in_progress)))

    webhook_worker = worker.WebhookWorker()
    assert set(count_chosen().values()) == {1}
    transactions.write(run, "UPDATE webhook SET failing_since = 1 WHERE id <> ?", (healthy.id,))
    for _ in range(len(failing) + 1):
        counts = count_chosen()
        assert counts.pop(healthy.id) == 1 and set(counts.values()) == {1} and sum(counts.values()) == 2
    # After a quick success it gets all free connections; a slow one gets none of the other half
    webhook_worker._durations_ms[healthy.id] = 20
    deliveries = webhook_worker._choose_deliveries([])
    assert sum(delivery.webhook_id == healthy.id for delivery in deliveries) in (2, 3)
    webhook_worker._durations_ms[healthy.id] = 3_000
    assert (
        len(webhook_worker._choose_deliveries([])) == 2
        and webhook_worker._choose_deliveries(webhook_worker._choose_deliveries([])) == []
    )


def test_owners_are_notified_of_a_disabled_webhook(home: Home) -> None:
    """Each owner who can sign in gets an email in the own language; the event has only the URL's host."""
    now = clock.now_ms()
    for name, role, disabled in (("a", "owner", None), ("b", "owner", now), ("c", "admin", None), ("d", "owner", None)):
        new = users.NewUser(f"{name}@example.org", name, "x")
        user = transactions.write(users.create, home.account_id, new, role)
        TeamMember.update(disabled_at=disabled).where(TeamMember.user == user.id).execute()
    reader = User.get(User.email == "d@example.org")
    transactions.write(users.set_preference, reader.id, users.LANGUAGE_PREFERENCE, "de")
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()
    record_outcome(Outcome(get_due_delivery(webhook), 410, "gone"))
    emails = list(Message.select().where(Message.source_type == "system"))
    assert [email.recipient for email in emails] == ["a@example.org", "d@example.org"]
    assert [MessageContent.get(MessageContent.message == email).subject for email in emails] == [
        "A webhook was turned off", "Ein Webhook wurde ausgeschaltet",
    ]  # fmt: skip
    event = Event.get(Event.event == "webhook_disabled")
    assert (event.resource_uid, event.resource_name) == (f"webhook:{webhook.id}", "shop.example")
    assert "token" not in json.dumps(event.data)


def test_an_outcome_can_be_recorded_without_notification(home: Home) -> None:
    """If the notification fails, the outcome can still be recorded without it."""
    webhook = create_webhook(home)
    owner = transactions.write(users.create, home.account_id, users.NewUser("n@example.org", "n", "x"), "owner")
    User.update(email="nonsense").where(User.id == owner.id).execute()
    record_events(home, "order_paid")
    create_all_deliveries()
    with pytest.raises(ValueError):
        record_outcome(Outcome(get_due_delivery(webhook), 410, ""))
    assert fetch_one("SELECT attempts FROM webhook_delivery") == (0,)
    transactions.write(queue.record_outcomes, [Outcome(get_due_delivery(webhook), 410, "")], False)
    assert fetch_one("SELECT status, attempts, response_status FROM webhook_delivery") == ("pending", 1, 410)


def test_a_delivery_of_a_deleted_event_is_cancelled(home: Home) -> None:
    """A cancelled delivery does not count as a failure of the webhook."""
    webhook = create_webhook(home)
    record_events(home, "order_paid")
    create_all_deliveries()
    record_outcome(Outcome(get_due_delivery(webhook), error="gone", is_cancelled=True))
    assert fetch_one("SELECT status, error FROM webhook_delivery") == ("cancelled", "gone")
    assert Webhook.get_by_id(webhook.id).failing_since is None


def test_old_deliveries_are_pruned(home: Home) -> None:
    """Old deliveries are deleted, except those pending for an enabled webhook."""
    webhook, disabled = create_webhook(home), create_webhook(home)
    record_events(home, *["order_paid"] * 3)
    create_all_deliveries()
    transactions.write(run, "UPDATE webhook SET enabled = 0 WHERE id = ?", (disabled.id,))
    record_outcome(Outcome(get_due_delivery(webhook), 200, ""))
    home.advance(31 * 86_400)
    record_events(home, "order_paid")
    create_all_deliveries()
    assert transactions.write(queue.prune_deliveries) is False
    remaining = rows("SELECT webhook_id, status, count(*) FROM webhook_delivery GROUP BY 1, 2")
    assert remaining == [(webhook.id, "pending", 3)]


def test_a_deleted_webhook_is_purged_in_batches(home: Home) -> None:
    """The deliveries of a deleted webhook go in two batches; those of other webhooks are kept."""
    webhook, other = create_webhook(home), create_webhook(home)
    record_events(home, *["order_paid"] * 1500)
    create_all_deliveries()
    transactions.write(subscriptions.delete, home.account_id, webhook.id, BY)
    assert worker.has_work()
    batches = 0
    while transactions.write(queue.purge_deleted_webhooks):
        batches += 1
    assert batches == 2 and Webhook.get_or_none(Webhook.id == webhook.id) is None
    assert scalar("SELECT count(*) FROM webhook_delivery") == len(list_delivered_events(other)) == 1500


def test_sign_webhook() -> None:
    """The signature matches the example of the Standard Webhooks specification."""
    secret, payload = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    signature = crypto.sign_webhook(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", payload)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_secrets_are_bound_to_their_account(home: Home) -> None:
    """A secret cannot be decrypted for another account."""
    webhook = create_webhook(home)
    assert len(subscriptions.decrypt_secrets(EncryptedSecrets(webhook.account_id, webhook.secret))) == 1
    assert subscriptions.decrypt_secrets(EncryptedSecrets(webhook.account_id + 1, webhook.secret)) == []


def test_webhook_events_equal_api_events(home: Home) -> None:
    """The event that a webhook gets is the same as that of the API."""
    transactions.write(
        log.record, NewEvent(home.account_id, "x", data={"a": [1, None, "ü"]}, test=True, resource_uid="y:1")
    )
    (event,) = Event.select()
    assert listing.fetch_event(event.id) == listing.shape_event(event) and listing.fetch_event(event.id + 1) is None


def test_the_doctor_checks_webhooks(home: Home) -> None:
    """The doctor reports failing and disabled webhooks and unreadable secrets, by host, of this account only."""

    def list_checks() -> list[str]:
        return [f"{check.level}: {check.words}" for check in doctor.check_webhooks(home.directory, home.account_id)]

    assert list_checks() == []
    webhook = create_webhook(home)
    assert list_checks() == ["ok: 1 webhook"]
    record_events(home, "order_paid")
    create_all_deliveries()
    record_outcome(Outcome(get_due_delivery(webhook), 500, ""))
    since = clock.iso(Webhook.get_by_id(webhook.id).failing_since)
    assert list_checks() == [
        f"warn: webhook 1 to shop.example has accepted nothing since {since}; 1 deliveries are pending"
    ]
    home.advance(60)
    record_outcome(Outcome(get_due_delivery(webhook), 410, ""))
    (line,) = list_checks()
    assert line.startswith("warn: webhook 1 to shop.example was disabled (gone) at ")
    transactions.write(run, "UPDATE webhook SET secret = x'00'")
    assert list_checks() == ["fail: webhook 1 to shop.example: its secret cannot be read"]
    assert list(doctor.check_webhooks(home.directory, home.account_id + 1)) == []


def test_erasure_deletes_stored_responses(home: Home) -> None:
    """Responses of receivers about an erased contact are deleted."""
    webhook = create_webhook(home)
    contact: Any = home.contact("ann@example.org")
    create_all_deliveries()
    transactions.write(run, "UPDATE webhook_delivery SET response_text = 'hello ann@example.org'")
    assert list_delivered_events(webhook)
    transactions.write(removal.erase, home.account_id, contact.id, BY_API)
    assert rows("SELECT count(*) FROM webhook_delivery WHERE response_text NOT NULL") == [(0,)]
