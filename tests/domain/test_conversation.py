"""What was said by SMS, as it is read later: both ways, with a person who is merged, deleted, erased or exported."""

from typing import Any

import pytest

from appliance.api import contacts
from appliance.audience.contacts import removal
from appliance.core.errors import NotFound
from appliance.inbound import delivery_reports, sms_conversations
from appliance.inbound.sms_conversations import IncomingQuery, Review
from appliance.ops.doctor import accounts
from appliance.sending.messages import transactional
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.sms.error_codes import Receipt
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Incoming, Message
from tests.domain import flows_home
from tests.domain.flows_rehearsed import rehearsed, told, written
from tests.domain.home import BY_API, Home
from tests.domain.talk import ANN, events, hear

BOB = "+14155550102"


def text(home: Home, body: str, to: str = ANN) -> int:
    """Send a single SMS, as far as the line."""
    return int(
        transactions.write(
            transactional.queue_message, home.account_id, MessageWrite(to=to, channel="sms", body=body)
        ).id
    )


def said(home: Home, contact_id: int, **page: Any) -> list[tuple[str, str | None]]:
    """Return a conversation, the newest first."""
    found = sms_conversations.list_conversation(home.account_id, contact_id, **page)
    return [("in" if line.incoming else "out", line.body) for line in found.rows]


def test_both_ways_in_one_row(home: Home, ann: int) -> None:
    """What they wrote and what they were sent stands in its order, an answer behind what it answers, in pages."""
    hear("hi")
    home.advance(1)
    text(home, "Your order {{ data.number }} is on its way")
    home.advance(1)
    hear("STOP")
    found = said(home, ann)
    assert [way for way, _ in found] == ["out", "in", "out", "in"]
    assert [words for _, words in found][1:] == ["STOP", "Your order  is on its way", "hi"]
    assert str(found[0][1]).startswith("Acme: You are unsubscribed")
    assert (said(home, ann, number=2, limit=3), said(home, ann, number=9)) == ([("in", "hi")], [])
    with pytest.raises(NotFound):
        said(home, 999)


def test_what_never_left_was_not_said(home: Home, ann: int) -> None:
    """A message that was skipped or taken back is no part of it."""
    number = text(home, "x")
    transactions.write(lambda: Message.update(status="skipped").where(Message.id == number).execute())
    assert said(home, ann) == []


def test_a_number_that_becomes_somebodys(home: Home, ann: int) -> None:
    """What came from and went to a number before is part of the conversation with whoever has it."""
    hear("hello", BOB)
    text(home, "who is there?", BOB)
    bob = home.upsert(phone=BOB).contact
    assert sorted(said(home, bob.id)) == [("in", "hello"), ("out", "who is there?")]
    assert said(home, ann) == []
    assert [row.body for row in contacts.collect_contact_data(home.account_id, bob.id).incoming] == ["hello"]


def test_the_merged_keep_what_both_said(home: Home, ann: int) -> None:
    """Of two conversations one is made."""
    bob = home.upsert(phone=BOB).contact
    hear("one")
    hear("two", BOB)
    transactions.write(removal.merge, home.account_id, ann, bob.id, BY_API)
    assert sorted(said(home, ann)) == [("in", "one"), ("in", "two")]


def test_the_erased_leave_no_word(home: Home, ann: int) -> None:
    """Number and words go from what they wrote, from before they were a contact too, and from evidence and events."""
    hear("I am Bob", BOB)
    bob = home.upsert(phone=BOB).contact
    hear("please stop texting me", BOB)
    hear("hello from Ann")
    transactions.write(
        delivery_reports.apply_receipt, "twilio", Receipt("SM1", "failed", text=f"no such number: {BOB}")
    )
    transactions.write(removal.erase, home.account_id, bob.id, BY_API)
    kept = [(row.sender, row.body, row.keyword) for row in Incoming.select().order_by(Incoming.id)]
    assert kept == [(None, None, None)] * 2 + [(ANN, "hello from Ann", None)]
    everything = " ".join(
        str(row)
        for (table,) in rows(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%\\_%' ESCAPE '\\'"
        )
        for row in rows(f"SELECT * FROM {table}")
        if table != "erasure"
    )
    assert "I am Bob" not in everything and "stop texting" not in everything and BOB not in everything
    assert "hello from Ann" in everything
    assert events("message") == [("message", ann, None)]


def test_a_number_they_had_before_is_forgotten_too(home: Home, ann: int) -> None:
    """What they wrote from it goes with its suppression's words, unless it is somebody else's by now."""
    for number in (BOB, "+14155550103"):
        bob = home.upsert(phone=number, opt_in=True).contact
        hear("please stop texting me", number)
        [row] = rows("SELECT id FROM channel WHERE contact_id = ?", (bob.id,))
        own = [{"id": row[0], "_destroy": True}, {"kind": "phone", "value": f"+49151{bob.id:08}"}]
        home.patch(bob.id, channels_attributes=own)
        if number != BOB:
            home.upsert(phone=number)
        transactions.write(removal.erase, home.account_id, bob.id, BY_API)
    told = "SELECT address, diagnostic FROM suppression WHERE reason = 'stop_keyword' ORDER BY id"
    assert rows(told) == [(None, None), ("+14155550103", "please stop texting me")]


def test_a_person_looks_at_refusals(home: Home, ann: int) -> None:
    """What may be a refusal waits to be seen; whoever sees one takes its sender out, with evidence of who did."""
    hear("please stop by the shop")
    hear("do you hate spam too?", BOB)
    hear("thanks")
    account = home.account_id
    waiting = sms_conversations.list_incoming(account, IncomingQuery(unseen=True)).rows
    assert [row.body for row in waiting] == ["do you hate spam too?", "please stop by the shop"]
    [line] = accounts.check_unseen_refusals(home.directory, account)
    assert (line.level, line.words.partition(" since ")[0]) == (
        "warn",
        "account 1: 2 SMS may be opt-outs and have waited for review",
    )
    seen = transactions.write(sms_conversations.mark_seen, account, waiting[0].id, Review(), "key:1")
    assert (seen.opted_out, seen.seen_at is not None) == (False, True)
    gone = transactions.write(sms_conversations.mark_seen, account, waiting[1].id, Review(opt_out=True), "user:1")
    assert gone.opted_out and home.channel(ANN).suppression == "stop_keyword"
    assert ("opt_out", "recipient", "keyword", "user:1") in home.acts(ANN)
    assert sms_conversations.list_incoming(account, IncomingQuery(unseen=True)).total == 0
    assert list(accounts.check_unseen_refusals(home.directory, None)) == []
    assert sms_conversations.list_incoming(account, IncomingQuery(unseen=False)).total == 3
    assert sms_conversations.list_incoming(account, IncomingQuery(from_="+1 415 555 0102")).total == 1
    assert sms_conversations.list_incoming(account, IncomingQuery(kind="message", contact_id=ann)).total == 1
    for verb in (
        lambda: sms_conversations.get_incoming(account + 1, waiting[0].id),
        lambda: sms_conversations.get_incoming(account, 999),
    ):
        with pytest.raises(NotFound):
            verb()


def test_flows_hear_the_words_they_wait_for(home: Home, ann: int) -> None:
    """A keyword of a live flow is told as one; everything else is a message, and both where flows of both name it."""
    flows_home.live_flow(home, {"event": "keyword", "data": {"keywords": ["Jul Fest", "join"]}})
    hear("JOIN us!")
    hear("“Jul fest”")
    hear("we join")
    flows_home.live_flow(home, {"event": "message", "data": {"keywords": ["JOIN"]}})
    hear("join", provider_id="SM9")
    assert events("message", "keyword") == [
        ("keyword", ann, "join"), ("keyword", ann, "Jul Fest"), ("message", ann, None), ("keyword", ann, "join"),
        ("message", ann, "JOIN"),
    ]  # fmt: skip
    flows_home.live_flow(home, {"event": "message", "data": {"keywords": ["Jul Fest now"]}})
    hear("jul fest now")
    assert events("message", "keyword")[-1:] == [("message", ann, "Jul Fest now")]
    about = rows("SELECT resource_uid, json_extract(data, '$.body') FROM event WHERE event = 'keyword' LIMIT 1")
    assert about == [(f"incoming:{Incoming.select().first().id}", "JOIN us!")]


def test_a_flow_may_wait_for_any_keyword(home: Home, ann: int) -> None:
    """Where a flow is started by keywords and names none, a word that stands alone is one; the words of others stay."""
    flows_home.live_flow(home, {"event": "keyword"})
    flows_home.live_flow(home, {"event": "message", "data": {"keywords": ["hola"]}})
    for said in ("Win!", "I win", "hola", "?", "STOP"):
        hear(said)
    assert events("message", "keyword") == [
        ("keyword", ann, "WIN"), ("message", ann, None), ("keyword", ann, "HOLA"), ("message", ann, "hola"),
        ("message", ann, None),
    ]  # fmt: skip


def test_two_machines_do_not_answer_each_other_for_ever(home: Home, ann: int) -> None:
    """Whoever answers a flow again and again within a day is kept and told of, and starts no flow any more."""
    hear("hello")
    number = text(home, "We got it")
    transactions.write(
        run, "UPDATE message SET status = 'sent', sent_at = 1, source_type = 'flow' WHERE id = ?", (number,)
    )
    for _ in range(22):
        hear("Thanks for your message, we are away.")
    found = [row[0] for row in rows("SELECT quiet FROM event WHERE event = 'message' ORDER BY id")]
    assert found == [0] * 21 + [1] * 2
    transactions.write(run, "UPDATE incoming SET created_at = created_at - 86400000")
    hear("hello again")
    assert rows("SELECT quiet FROM event WHERE event = 'message' ORDER BY id DESC LIMIT 1") == [(0,)]


def test_a_rehearsal_hears_stop(home: Home, ann: int) -> None:
    """What somebody would write is done as it is in reality: after STOP nothing more leaves; nothing of it is kept."""
    flow = written(home, [{"body": "One"}, {"duration": 3600}, {"body": "Two"}])
    found = rehearsed(home, flow, contact_id=ann, events=[{"event": "message", "after": 60, "data": {"body": "Stop!"}}])
    assert [told(found, step).message.status for step in (1, 3)] == ["sent", "skipped"]  # type: ignore[union-attr]  # both steps are those of messages
    assert "they write “Stop!”" in found.text
    assert (Incoming.select().count(), home.channel(ANN).subscribed) == (0, True)
