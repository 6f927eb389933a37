"""What a report shows beside its numbers: usual results, conversions, last action, segments, list growth."""

import pytest
from msgspec import UNSET

from appliance.accounts import accounts, users
from appliance.accounts.audit import Actor
from appliance.audience import lists
from appliance.audience.contacts import statuses
from appliance.campaigns import audience, results, send, states, store
from appliance.campaigns.recipients import RecipientQuery
from appliance.core import clock, validation
from appliance.core.cache import CostAwareCache
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.tracking import orders
from tests.domain.home import Home
from tests.domain.test_outcomes import claim_next, finish


def send_campaign(home: Home, recipient_count: int, opened: int, clicked: int) -> int:
    """Send a campaign of which `opened` messages are opened and `clicked` clicked; return its id."""
    number = scalar("SELECT count(*) FROM campaign")
    ids = [home.contact(f"c{number}-{index}@example.org").id for index in range(recipient_count)]
    campaign = home.send(home.campaign(home.list_of(*ids, name=f"List {number}").id))
    while (row := claim_next()) is not None:
        finish(row, "accepted")
    transactions.write(states.complete_finished)
    for column, count in (("opened_at", opened), ("clicked_at", clicked)):
        some_messages = "(SELECT id FROM message WHERE campaign_id = ? LIMIT ?)"
        transactions.write(
            run, f"UPDATE message SET {column} = sent_at + 1000 WHERE id IN {some_messages}", (campaign.id, count)
        )
    home.advance(60)
    return int(campaign.id)


def test_usual_results_average_the_earlier_campaigns(home: Home) -> None:
    """The rates of earlier campaigns are averaged with equal weight; with fewer than two there is no average."""
    first = send_campaign(home, 2, 2, 1)
    second = send_campaign(home, 4, 2, 0)
    third = send_campaign(home, 4, 4, 4)
    usual_results = [
        results.find_usual_results(store.get(home.account_id, number)) for number in (first, second, third)
    ]

    assert usual_results[:2] == [None, None]
    assert usual_results[2] is not None
    assert (
        usual_results[2].campaigns,
        usual_results[2].opened,
        usual_results[2].clicked,
        usual_results[2].bounced,
    ) == (2, 0.75, 0.25, 0)


def test_conversions_follow_a_click_within_the_window(home: Home) -> None:
    """Custom events within the window after a click count, once for each contact; earlier and later ones do not."""
    number = send_campaign(home, 3, 3, 2)
    ids = [row[0] for row in rows("SELECT contact_id FROM message WHERE clicked_at NOT NULL")]
    sql = (
        "INSERT INTO event (account_id, contact_id, event, amount, data, test, generated, quiet, chain_depth, "
        "created_at, updated_at) VALUES (?, ?, ?, 20, '{}', 0, 0, 0, 0, ?, 0)"
    )
    now = clock.now_ms()
    late = now + 8 * 86_400_000
    placed = [(buyer_id, "order_placed", now) for buyer_id in (*ids, ids[0])]
    for contact_id, event, at in [*placed, (ids[0], "seen", 1), (ids[1], "late", late)]:
        transactions.write(run, sql, (home.account_id, contact_id, event, at))

    campaign = store.get(home.account_id, number)
    assert results.list_conversions(campaign, 7) == [results.Conversion("order_placed", 2, 60.0)]
    assert results.list_conversions(campaign, 9)[1:] == [results.Conversion("late", 1, 20.0)]
    # Home counts the same orders of the account by the events of clicks, but not after a click of a machine.
    clicks = (
        "INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, "
        "updated_at) SELECT account_id, contact_id, 'email_clicked', ?, 0, 1, 0, 0, clicked_at, 0 FROM message "
        "WHERE clicked_at NOT NULL"
    )
    for verdict, total in (("machine", (0, 0.0)), ("human", (3, 60.0))):
        transactions.write(run, clicks, (f'{{"verdict":"{verdict}"}}',))
        assert orders.count_after_emails(home.account_id, 30, 7) == total


def test_last_action_names_the_user_or_the_service(home: Home) -> None:
    """A pause by a user has that user's name, by an API key no name, and by the service `is_service`."""
    ids = [home.contact(f"p{index}@example.org").id for index in range(2)]
    campaign = home.send(home.campaign(home.list_of(*ids).id))
    ana = transactions.write(
        users.create, home.account_id, users.prepare_user("ana@example.org", "correct horse battery", "Ana"), "owner"
    )
    actions = []
    for actor in (f"user:{ana.id}", "key:1"):
        paused = transactions.write(states.pause, home.account_id, campaign.id, Actor(actor))
        actions.append(states.find_last_action(paused))
        transactions.write(send.resume, home.account_id, campaign.id, Actor(f"user:{ana.id}"))
    actions.append(
        states.find_last_action(
            transactions.write(states.pause_by_service, store.get(home.account_id, campaign.id), "transport")
        )
    )

    assert [(index.name, index.is_service) for index in actions if index] == [
        ("Ana", False),
        (None, False),
        (None, True),
    ]


@pytest.mark.parametrize(
    ("query", "names"),
    [({}, None), ({"opened": "people"}, ["campaign_opened"]), ({"opened": "machines"}, None),
     ({"clicked": "never"}, ["campaign_sent", "campaign_clicked"]), ({"link": 2}, ["event"]),
     ({"accepted": True}, ["campaign_sent"]), ({"status": "bounced", "opened": "people"}, None)],
)  # fmt: skip
def test_recipient_queries_become_segment_filters(query: dict[str, object], names: list[str] | None) -> None:
    """A query of recipients becomes filters only where a segment can express it, else None."""
    recipient_query = validation.read(RecipientQuery, query)
    filters = audience.build_recipient_filters(3, recipient_query)

    assert (None if filters is None else [condition["name"] for condition in filters]) == names
    assert recipient_query.contact_id is UNSET


def test_list_growth_by_day(home: Home) -> None:
    """New members count in the column of their day; those who joined before the period count only in the size."""
    ids = [home.contact(f"p{index}@example.org").id for index in range(3)]
    contact_list = home.list_of(*ids)
    transactions.write(run, "UPDATE membership SET created_at = 0 WHERE contact_id = ?", (ids[0],))
    [growth] = lists._measure_growth(home.account_id, 4, 30)

    assert (growth.id, growth.size, growth.joined[-1], sum(growth.joined)) == (contact_list.id, 3, 2, 2)


def test_sent_and_skipped_messages_are_counted_apart(home: Home) -> None:
    """The settings show how many messages were sent; those that were skipped are not among them."""
    send_campaign(home, 5, 2, 1)
    assert accounts.count_messages(home.account_id) == (5, 0)
    transactions.write(run, "UPDATE message SET status = 'skipped', sent_at = NULL WHERE opened_at IS NOT NULL")
    assert accounts.count_messages(home.account_id) == (3, 2)


def test_growth_counts_contacts(home: Home) -> None:
    """A contact that joins two lists, by email and by phone, counts once; one that leaves counts in its period."""
    day, now = 86_400_000, clock.now_ms() // 900_000 * 900_000
    ids = [home.contact(f"g{index}@example.org", phone=f"+1415555010{index}").id for index in range(4)]
    home.contact("never@example.org", opt_in=False)
    phone_only = home.upsert(phone="+14155550199").contact.id
    for name in ("News", "Offers"):
        home.list_of(*ids, name=name)
    transactions.write(run, "UPDATE channel SET opt_in_at = ? WHERE contact_id = ?", (now - 20 * day, ids[0]))
    transactions.write(run, "UPDATE channel SET opt_in_at = ? WHERE contact_id = ?", (now - 2 * day, phone_only))
    home.opt_out("g0@example.org")
    home.opt_out("g1@example.org")
    home.opt_out("never@example.org")
    bounds = [now - 3 * day, now - day, now + day]

    assert statuses.count_changes(home.account_id, bounds) == ([1, 3], [0, 2])


def test_cost_aware_cache_computes_once_until_invalidated() -> None:
    """A value is computed once, and again after its key was invalidated."""
    calls: list[int] = []
    cache: CostAwareCache[int] = CostAwareCache(min_age_seconds=60)
    first = [cache.get("key", lambda: calls.append(1) or len(calls)) for _ in range(3)]
    cache.invalidate("key")

    assert (first, cache.get("key", lambda: 9), len(calls)) == ([1, 1, 1], 9, 1)
