"""The outbox: each state counts and lists exactly the account's messages in it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.audience import consent, lists
from appliance.campaigns import states
from appliance.core.errors import Invalid
from appliance.sending.messages import delivery_status, message_source, retries
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import ContactList, Message
from tests.domain.home import BY_LINK, Home
from tests.domain.test_outcomes import claim_next, finish

KINDS = ("uncertain", "permanent", "temporary", "accepted")


def query_state(account_id: int, state: str) -> list[int]:
    """Return the ids of the messages in a state, sorted, by a plain query."""
    where = {
        "waiting": "status IN ('queued', 'held')", "retrying": "status IN ('queued', 'held') AND attempts > 0",
    }.get(state, f"status = '{state}'")  # fmt: skip
    return sorted(row[0] for row in rows(f"SELECT id FROM message WHERE account_id = ? AND {where}", (account_id,)))


@pytest.fixture
def ledger(home: Home) -> Home:
    """Two campaigns being sent, with messages in doubt held."""
    home.configure(email__in_doubt="hold", email__retry_after=[60, 60])
    for name in "ab":
        contact_ids = [home.contact(f"{name}{number}@example.org").id for number in range(6)]
        home.send(home.campaign(home.list_of(*contact_ids, name=name).id))
    return home


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(KINDS), max_size=2), size=st.integers(1, 4))
def test_counts_and_pages_match_the_rows(ledger: Home, kinds: list[str], size: int) -> None:
    """Counts and pages of each state match the rows, pages do not overlap, and other accounts see nothing."""
    for kind in kinds:
        ledger_row = claim_next()
        if ledger_row is not None:
            finish(ledger_row, kind)
    counts = delivery_status.count_outbox(ledger.account_id)
    for state in delivery_status.OUTBOX_STATES:
        expected = query_state(ledger.account_id, state)
        listed: list[int] = []
        for page in range(1, len(expected) // size + 2):
            listed += [
                row.id for row in delivery_status.list_outbox(ledger.account_id, state, page, size, counts[state]).rows
            ]
        assert counts[state] == len(expected), state
        assert sorted(listed) == expected and len(set(listed)) == len(listed), state
        assert delivery_status.list_outbox(ledger.account_id + 1, state, 1, 10, 0).rows == [], state


def test_open_messages_are_counted_by_an_index(home: Home) -> None:
    """Open messages of a campaign, and those of an account by channel, are counted without reading others."""
    single, flows, campaign = delivery_status._list_sources("sms", home.account_id, [1])
    for (where, values), key in (
        (single, "message_due_alone (account_id=? AND channel=? AND due_at>?)"),
        (flows, "message_due_of_flows (account_id=? AND channel=? AND due_at>?)"),
        (campaign, "message_due (campaign_id=? AND due_at>?)"),
    ):
        sql = f"EXPLAIN QUERY PLAN SELECT count(*) FROM message WHERE {where} AND {delivery_status._OPEN}"
        assert key in str(rows(sql, values)), where


def test_retry_by_ids(ledger: Home) -> None:
    """Failed and uncertain messages are retried once; sent, unknown and other accounts' messages are left out."""
    message_ids = [finish(claim_next(), kind).id for kind in ("permanent", "uncertain", "accepted")]
    message_ids.append(Message.get(Message.status == "queued").id)
    transactions.write(run, "UPDATE message SET status = 'failed' WHERE id = ?", (message_ids[-1],))
    retried = transactions.write(retries.retry_by_ids, ledger.account_id, [*message_ids, 4242], "user:1")
    other_account = transactions.write(retries.retry_by_ids, ledger.account_id + 1, message_ids, "user:1")
    repeated = transactions.write(retries.retry_by_ids, ledger.account_id, message_ids, "user:1")

    assert (retried, other_account, repeated) == (2, 0, 0)
    assert [Message.get_by_id(message_id).status for message_id in message_ids] == [
        "failed",
        "queued",
        "sent",
        "queued",
    ]


@pytest.mark.parametrize("in_data", [False, True])
def test_who_left_a_list_that_was_deleted_gets_no_retry(home: Home, in_data: bool) -> None:
    """After a list was deleted, its failed messages are retried, except to those who have left the list."""
    stays, leaves, returns = (home.contact(f"{name}@example.org") for name in ("stays", "leaves", "returns"))
    list_id = home.list_of(stays.id, leaves.id, returns.id).id
    campaign = home.campaign(list_id)
    if in_data:
        data = f"""json_set(data, '$.contact_list_ids', json('[{list_id}]'))"""
        transactions.write(
            run, f"UPDATE trigger SET contact_list_id = NULL, data = {data} WHERE contact_list_id NOTNULL"
        )
    home.send(campaign)
    transactions.write(run, "UPDATE message SET status = 'failed'")
    ids = {row.recipient: row.id for row in Message.select()}
    transactions.write(states.complete_finished)
    for address in ("leaves@example.org", "returns@example.org"):
        transactions.write(consent.leave_list, home.channel(address), list_id, BY_LINK)
    transactions.write(consent.join_list, home.channel("returns@example.org"), list_id, BY_LINK)
    transactions.write(lists.delete, home.account_id, list_id)
    home.list_of(name="Another")  # it gets the id of the deleted list
    assert transactions.write(retries.retry_by_ids, home.account_id, [*ids.values()], "user:1") == 2
    assert Message.get_by_id(ids["leaves@example.org"]).status == "failed"
    assert sorted(row.recipient for row in iter(claim_next, None)) == ["returns@example.org", "stays@example.org"]


def test_a_list_whose_messages_are_retried_is_in_use(home: Home) -> None:
    """A list cannot be deleted while its completed campaign sends a message again: somebody may still leave it."""
    list_id = home.list_of(home.contact("a@example.org").id).id
    home.send(home.campaign(list_id))
    message_id = Message.get().id
    transactions.write(run, "UPDATE message SET status = 'failed'")
    transactions.write(states.complete_finished)
    assert transactions.write(retries.retry_by_ids, home.account_id, [message_id], "user:1") == 1
    with pytest.raises(Invalid):
        transactions.write(lists.delete, home.account_id, list_id)
    assert ContactList.get_or_none(ContactList.id == list_id) is not None


def test_the_summary_of_the_queue(ledger: Home) -> None:
    """The state is `busy` with messages due, `idle` when all are sent, and `stopped` by the account's switch."""
    before_sending = delivery_status.read_summary(ledger.account_id)
    while (row := claim_next()) is not None:
        finish(row, "accepted")
    after_sending = delivery_status.read_summary(ledger.account_id)
    transactions.write(run, "UPDATE account SET sending_stopped = 1")

    assert (before_sending.state, before_sending.waiting, before_sending.due) == ("busy", 12, 12)
    assert (after_sending.state, after_sending.waiting) == ("idle", 0)
    assert delivery_status.read_summary(ledger.account_id).state == "stopped"


def test_get_source(ledger: Home) -> None:
    """The source is the complete message with headers; for an erased recipient NotReproducible is raised."""
    row = Message.select().order_by(Message.id).first()
    source = message_source.get_source(ledger.account_id, row.id)

    assert f"To: {row.recipient}".encode() in source and b"Message-ID:" in source
    Message.update(recipient=None, recipient_key=None).where(Message.id == row.id).execute()
    with pytest.raises(message_source.NotReproducible, match="erased"):
        message_source.get_source(ledger.account_id, row.id)
