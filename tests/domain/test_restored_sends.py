"""Messages that were sent after a backup are not sent again once it is restored (docs/promises.md#p11)."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from appliance.audience.contacts import removal
from appliance.core import clock
from appliance.core.errors import Uncertain
from appliance.ops.backups import restore
from appliance.sending.messages import queue, restored_sends
from appliance.sending.messages.ledger import Outcome
from appliance.storage import journal, transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.journal import Sent
from appliance.storage.models import Campaign, Flow
from tests.domain.home import BY_API, Home
from tests.domain.restored_home import RestoredHome, statuses
from tests.domain.test_flow_messages import create_email_flow, create_flow_with_messages
from tests.domain.test_flow_run import advance_until_idle, start_runs


@pytest.fixture
def world(home: Home) -> Iterator[RestoredHome]:
    """Yield an installation whose messages a list accepts."""
    installation = RestoredHome(home)
    yield installation
    installation.close()


def create_campaign(world: RestoredHome, count: int, is_sent: bool = True) -> Campaign:
    """Create a campaign to `count` contacts, and send it."""
    contacts = [world.home.contact(f"p{number}@acme.test").id for number in range(count)]
    campaign = world.home.campaign(world.home.list_of(*contacts, name=f"List {count}").id)
    return world.home.send(campaign) if is_sent else campaign


def read_lines(world: RestoredHome) -> list[Sent]:
    """Return the lines about sent messages."""
    lines = journal.read_since(world.home.directory / journal.JOURNAL_FILE, None, 0)
    return [line for line in lines if isinstance(line, Sent)]


def check_books(campaign_id: int, stats: dict[str, int]) -> None:
    """Check the counters of a campaign, its contacts and events against its rows."""
    counts = dict(rows("SELECT status, count(*) FROM message WHERE campaign_id = ? GROUP BY 1", (campaign_id,)))
    assert counts == stats
    sent = stats.get("sent", 0)
    assert scalar("SELECT sent_count FROM campaign WHERE id = ?", (campaign_id,)) == sent
    assert scalar("SELECT count(*) FROM event WHERE event = 'email_sent'") == sent
    assert scalar("SELECT sum(email_sent_count) FROM contact") == sent
    assert scalar("SELECT sum(sent_count) FROM channel") == sent


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_half_sent_campaign_goes_on_behind_what_was_sent(world: RestoredHome, is_lost: bool) -> None:
    """Rows that were sent after the backup are sent, with all counts, and only the others leave."""
    campaign = create_campaign(world, 10)
    world.send(2)
    copy = world.back_up()
    world.send(5)
    replayed = world.restore(copy, is_lost=is_lost).replayed
    assert (replayed.sent, replayed.uncertain, replayed.expected, replayed.unknown) == (5, 0, 0, 0)
    check_books(campaign.id, {"sent": 7, "queued": 3})
    [held] = restore.find_held_sending(world.home.account_id).campaigns
    assert (held.open_count, held.sent_count, held.sent_since_count) == (3, 2, 5)
    world.resume()
    world.send_all()
    check_books(campaign.id, {"sent": 10})
    assert set(world.count_accepted().values()) == {1} and len(world.accepted) == 10


def test_a_second_restore_of_the_same_backup_knows_both_times(world: RestoredHome) -> None:
    """The journal has what was sent after each of two restores of one backup."""
    campaign = create_campaign(world, 9)
    copy = world.back_up()
    for _ in range(2):
        world.send(3)
        world.restore(copy)
        world.resume()
    check_books(campaign.id, {"sent": 6, "queued": 3})
    world.send_all()
    assert len(world.accepted) == len(set(world.accepted)) == 9


def test_a_kill_in_a_send_leaves_nothing_to_repeat(world: RestoredHome) -> None:
    """Unsettled acceptances of the replaced database are sent, and its claims are in doubt; a lost one has neither."""
    campaign = create_campaign(world, 10)
    copy = world.back_up()
    world.send(3)
    world.send(2, is_settled=False)
    [left, _] = world.claim(2)
    world.accept(left)
    replayed = world.restore(copy).replayed
    assert (replayed.sent, replayed.uncertain) == (5, 2)
    check_books(campaign.id, {"sent": 5, "uncertain": 2, "queued": 3})
    assert rows("SELECT DISTINCT error_text FROM message WHERE status = 'uncertain'") == [
        (restored_sends.MAY_HAVE_BEEN_SENT,)
    ]
    world.resume()
    world.send_all()
    assert len(world.accepted) == len(set(world.accepted)) == 9


def test_what_only_the_replaced_database_knew_is_kept(world: RestoredHome) -> None:
    """A second restore of the same backup knows what the database of before the first one had not settled."""
    create_campaign(world, 5)
    copy = world.back_up()
    world.send(2, is_settled=False)
    [left] = world.claim(1)
    world.accept(left)
    for _ in range(2):
        world.restore(copy)
        assert sorted(statuses().values()) == ["queued", "queued", "sent", "sent", "uncertain"]


def test_an_erased_recipient_is_counted(world: RestoredHome) -> None:
    """A message to a recipient who was erased since is sent; one that the erasure ended before its outcome stays so."""
    campaign = create_campaign(world, 3)
    copy = world.back_up()
    world.send(1)
    [second] = world.claim(1)
    for contact_id in (1, second.contact_id or 0):
        transactions.write(removal.erase, world.home.account_id, contact_id, BY_API)
    world.accept(second)
    world.record([second])
    transactions.write(queue.settle_log)
    assert world.restore(copy).replayed[4:6] == (2, 1)
    counts = rows("SELECT status, count(*) FROM message WHERE campaign_id = ? GROUP BY 1 ORDER BY 1", (campaign.id,))
    assert counts == [("queued", 1), ("sent", 1), ("skipped", 1)]


def test_an_uncertain_attempt_stays_uncertain(world: RestoredHome) -> None:
    """A message that a server may have accepted is in doubt after the restore, and sent if a repeat was accepted."""
    create_campaign(world, 2)
    copy = world.back_up()
    first, second = world.claim(2)
    world.record([first, second], Uncertain("the connection broke"))
    transactions.write(run, "UPDATE message SET status = 'queued', due_at = 0 WHERE id = ?", (second.id,))
    world.send(1)
    world.restore(copy, is_lost=True)
    assert statuses() == {first.recipient: "uncertain", second.recipient: "sent"}


def test_a_campaign_that_was_only_scheduled_in_the_backup(world: RestoredHome) -> None:
    """Its rows are created after the restore; who got it since is sent, and those who did not get it."""
    campaign = create_campaign(world, 6, is_sent=False)
    at = clock.iso(clock.now_ms() + 3_600_000)
    transactions.write(run, "UPDATE campaign SET phase = 'scheduled' WHERE id = ?", (campaign.id,))
    copy = world.back_up()
    transactions.write(run, "UPDATE campaign SET phase = 'draft' WHERE id = ?", (campaign.id,))
    world.home.send(campaign)
    world.send(4)
    result = world.restore(copy)
    assert at and (result.replayed.sent, result.replayed.expected) == (0, 4)
    assert "Sent after this backup, and not sent again: 4 messages" in restore.describe_replay(result)[1]
    [held] = restore.find_held_sending(world.home.account_id).campaigns
    assert (held.sent_count, held.sent_since_count) == (0, 4)
    world.resume()
    transactions.write(run, "UPDATE campaign SET phase = 'draft' WHERE id = ?", (campaign.id,))
    world.home.send(campaign)
    world.send_all()
    check_books(campaign.id, {"sent": 6})
    assert len(world.accepted) == len(set(world.accepted)) == 6
    transactions.write(run, "UPDATE campaign SET phase = 'completed'")
    assert not restored_sends.has_rows()


def test_an_address_that_changed_is_in_doubt(world: RestoredHome) -> None:
    """A contact whose address was another one when the message was sent gets nothing without a decision."""
    campaign = create_campaign(world, 2)
    copy = world.back_up()
    transactions.write(
        run,
        "UPDATE message SET recipient = 'new@acme.test', recipient_key = 'new@acme.test' WHERE recipient LIKE 'p0%'",
    )
    transactions.write(run, "UPDATE channel SET value = 'new@acme.test', key = 'new@acme.test' WHERE value LIKE 'p0%'")
    world.send(2)
    world.restore(copy)
    assert statuses(f"campaign_id = {campaign.id}") == {"p0@acme.test": "uncertain", "p1@acme.test": "sent"}


def rewrite_journal(world: RestoredHome, **changes: object) -> None:
    """Change keys of the lines about sent messages."""
    path = world.home.directory / journal.JOURNAL_FILE
    content = path.read_bytes()
    for line in read_lines(world):
        raw = msgspec.json.encode(line)
        new = msgspec.json.encode(msgspec.structs.replace(line, **changes))
        content = content.replace(raw, new)
    path.write_bytes(content)


@pytest.mark.parametrize(
    "statement",
    [
        # The rows were deleted and written again, as after an undo: other ids, the same contacts.
        "UPDATE message SET id = id + 100",
        # The ids are of other contacts of the same campaign, as on a machine that went on from the same backup.
        "UPDATE message SET id = 3 - id + 1000",
    ],
)
def test_ids_that_name_other_rows_of_the_campaign(world: RestoredHome, statement: str) -> None:
    """A row with the id of another recipient is not taken for that of the journal."""
    campaign = create_campaign(world, 3)
    last = scalar("SELECT max(id) FROM message")
    transactions.write(run, "UPDATE message SET id = id - ?", (last - 3,))
    [first] = world.send(1)
    world.replace_database("UPDATE message SET status = 'queued', sent_at = NULL, due_at = 0")
    world.replace_database("UPDATE campaign SET sent_count = 0")
    world.replace_database("UPDATE contact SET email_sent_count = 0")
    world.replace_database("UPDATE channel SET sent_count = 0")
    world.replace_database("DELETE FROM event WHERE event = 'email_sent'")
    world.replace_database(statement)
    if "1000" in statement:
        world.replace_database("UPDATE message SET id = id - 999")
    copy = world.back_up()
    # The journal is as if it had begun after the backup.
    lines = read_lines(world)
    with (world.home.directory / journal.JOURNAL_FILE).open("ab") as file:
        file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    world.restore(copy)
    assert statuses()[first.recipient] == "sent"
    check_books(campaign.id, {"sent": 1, "queued": 2})


def append_lines(world: RestoredHome, *lines: Sent) -> None:
    """Append lines about sent messages to the journal."""
    with (world.home.directory / journal.JOURNAL_FILE).open("ab") as file:
        file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


@pytest.mark.parametrize("change", ["campaign", "created", "account", "single", "flow"])
def test_lines_of_other_sources_change_nothing(world: RestoredHome, change: str) -> None:
    """A line whose campaign, account or flow is another one with the same numbers marks no row."""
    campaign = create_campaign(world, 3)
    copy = world.back_up()
    world.send(2)
    [line] = read_lines(world)
    path = world.home.directory / journal.JOURNAL_FILE
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    changes = {
        "campaign": {"campaign": campaign.id + 1},
        # The campaign of another machine, with the same id and recipients.
        "created": {"created": (line.created or 0) + 1},
        "account": {"account": world.home.account_id + 1},
        "single": {"campaign": None, "created": None},
        "flow": {"campaign": None, "flow": campaign.flow_id + 1, "runs": [1, 2], "steps": [1, 1]},
    }[change]
    append_lines(world, msgspec.structs.replace(line, **changes))
    replayed = world.restore(copy).replayed
    assert (replayed.sent, replayed.uncertain, replayed.expected) == (0, 0, 0)
    assert set(statuses().values()) == {"queued"} and not restored_sends.has_rows()


def test_another_contact_with_the_address_is_known_at_the_claim(world: RestoredHome) -> None:
    """The contact was created anew with another id: the address decides, when the message is claimed."""
    campaign = create_campaign(world, 3)
    copy = world.back_up()
    world.send(2)
    [line] = read_lines(world)
    path = world.home.directory / journal.JOURNAL_FILE
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    append_lines(world, msgspec.structs.replace(line, ids=[10_000, 1], contacts=[20_000, 1]))
    assert world.restore(copy).replayed.expected == 2
    # No contact gets an id that was given after the backup.
    assert world.home.contact("later@acme.test").id > 20_001
    world.resume()
    world.send_all()
    assert len(world.accepted) == len(set(world.accepted)) == 3
    check_books(campaign.id, {"sent": 3})


def test_flows_skip_the_steps_that_were_sent(world: RestoredHome) -> None:
    """Runs that waited before a step in the backup pass it without sending it again; the others send it."""
    steps = [{"id": 1, "type": "email"}, {"id": 2, "type": "wait", "duration": 60}, {"id": 3, "type": "email"}]
    flow = create_flow_with_messages(world.home, steps)
    people = [world.home.contact(f"p{number}@acme.test").id for number in range(3)]
    start_runs(world.home, flow, *people)
    copy = world.back_up()  # before the first step
    world.send_all()
    world.home.advance(61)
    advance_until_idle()
    assert len(world.send(2)) == 2
    second_copy = world.back_up()
    result = world.restore(copy)
    assert (result.replayed.sent, result.replayed.expected) == (0, 5)
    [held] = restore.find_held_sending(world.home.account_id).flows
    assert held.sent_since_count == 5
    world.resume()
    world.send_all()
    world.home.advance(61)
    world.send_all()
    assert len(world.accepted) == len(set(world.accepted)) == 6
    assert scalar("SELECT sent_count FROM flow WHERE id = ?", (flow.id,)) == 6
    # A backup of later: the message that was queued in it was sent since.
    assert world.restore(second_copy).replayed.sent == 1
    world.resume()
    world.send_all()
    assert len(world.accepted) == 6


def test_a_run_that_began_after_the_backup(world: RestoredHome) -> None:
    """A contact who enters the flow again at once is in doubt; a week later it is a new occasion."""
    flow = create_email_flow(world.home)
    ann, bob = (world.home.contact(f"{name}@acme.test").id for name in ("ann", "bob"))
    copy = world.back_up()
    start_runs(world.home, flow, ann, bob)
    world.send_all()
    assert world.restore(copy, is_lost=True).replayed.expected == 2
    world.resume()
    start_runs(world.home, Flow.get_by_id(flow.id), ann)
    world.send_all()
    assert statuses() == {"ann@acme.test": "uncertain"}
    world.home.advance(8 * 86_400)
    start_runs(world.home, Flow.get_by_id(flow.id), bob)
    world.send_all()
    assert statuses()["bob@acme.test"] == "sent" and len(world.accepted) == 3


def test_the_dates_of_a_series_are_not_repeated(world: RestoredHome) -> None:
    """The copy of a repeated campaign that was sent after the backup is recognized by its date."""
    campaign = create_campaign(world, 3, is_sent=False)
    now = clock.now_ms()
    transactions.write(run, "UPDATE campaign SET phase = 'scheduled' WHERE id = ?", (campaign.id,))
    transactions.write(
        run, "INSERT INTO series (campaign_id, only_if_changed, created_at, updated_at) VALUES (?, 0, ?, ?)",
        (campaign.id, now, now),
    )  # fmt: skip

    def send_date(due_at: int) -> None:
        contacts = campaign.trigger.contact_list_id
        dated = world.home.send(world.home.campaign(contacts, name="Copy"))
        transactions.write(
            run,
            "INSERT INTO occurrence (series_id, due_at, outcome, campaign_id, created_at) "
            "VALUES ((SELECT max(id) FROM series), ?, 'sent', ?, ?)",
            (due_at, dated.id, now),
        )

    copy = world.back_up()
    send_date(1_000)
    world.send(2)
    assert world.restore(copy).replayed.expected == 2
    world.resume()
    send_date(1_000)
    world.send_all()
    assert len({recipient for _, recipient in world.accepted}) == len(world.accepted) == 3
    send_date(2_000)
    world.send_all()
    assert len(world.accepted) == 6


def test_single_messages_that_waited_in_the_backup(world: RestoredHome) -> None:
    """A single message is known by its id; one that the backup lacks is only counted."""
    world.home.contact("ann@acme.test")
    create_campaign(world, 2)
    transactions.write(run, "UPDATE message SET campaign_id = NULL, flow_id = NULL, transactional = 1")
    copy = world.back_up()
    world.send(1)
    transactions.write(run, "UPDATE message SET id = id + 50 WHERE status = 'queued'")
    world.send(1)
    replayed = world.restore(copy).replayed
    assert (replayed.sent, replayed.unknown) == (1, 1)
    assert sorted(statuses().values()) == ["queued", "sent"]


def test_a_journal_of_another_machine_is_not_complete(world: RestoredHome, tmp_path: Path) -> None:
    """Without the journal of the backup, the report says that not all sent messages are known."""
    create_campaign(world, 3)
    world.send(1)
    copy = world.back_up()
    assert restore.describe_replay(world.restore(copy)) == [
        "There were no opt-outs since then.", "No message of this backup was sent after it."
    ]  # fmt: skip
    assert "when the replaced data was lost" in restore.describe_replay(world.restore(copy, is_lost=True))[-1]
    result = world.restore(copy, is_journal_lost=True)
    assert not result.replayed.is_complete
    assert "does not name all messages" in restore.describe_replay(result)[-1]
    assert "Opt-outs since then are unknown" in restore.describe_replay(result)[0]


def test_each_way_of_sending_is_in_the_journal(world: RestoredHome) -> None:
    """An acceptance that is not logged first, as in direct delivery and by an API, is in the journal too."""
    create_campaign(world, 2)
    copy = world.back_up()
    first, second = world.claim(2)
    accepted = [
        Outcome(first, None, None, "Hello", "us@acme.test", "1@acme.test", delivered_via={"mx": "mx.acme.test"}),
        Outcome(second, None, None, "Hello", "us@acme.test", "2@acme.test", provider_id="p2"),
    ]
    transactions.write(queue.record_and_claim, accepted, [], "process")
    assert world.restore(copy, is_lost=True).replayed.sent == 2
