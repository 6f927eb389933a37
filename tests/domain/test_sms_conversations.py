"""SMS conversations: both directions, and after a contact is merged, erased or exported."""

from typing import Any

import pytest

from appliance.api import contacts
from appliance.audience.contacts import removal
from appliance.core.errors import NotFound
from appliance.inbound import delivery_reports, sms_conversations
from appliance.inbound.sms_conversations import IncomingQuery, OptOutReview
from appliance.ops import doctor
from appliance.sending.messages import transactional
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.sms.error_codes import Receipt
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Incoming, Message
from tests.domain import flows_home
from tests.domain.flows_rehearsed import create_flow, simulate, step_entry
from tests.domain.home import BY_API, Home
from tests.domain.talk import ANN, events_named, receive_sms

BOB = "+14155550102"


def queue_sms(home: Home, body: str, to: str = ANN) -> int:
    """Queue a single SMS and return its id."""
    return int(
        transactions.write(
            transactional.queue_message, home.account_id, MessageWrite(to=to, channel="sms", body=body)
        ).id
    )


def conversation(home: Home, contact_id: int, **page: Any) -> list[tuple[str, str | None]]:
    """Return a page of a conversation as (direction, text), newest first."""
    page_rows = sms_conversations.list_conversation(home.account_id, contact_id, **page)
    return [("in" if sms.incoming else "out", sms.body) for sms in page_rows.rows]


def test_a_conversation_has_both_directions(home: Home, ann: int) -> None:
    """Received and sent SMS are listed in order, in pages; an unknown contact raises NotFound."""
    receive_sms("hi")
    home.advance(1)
    queue_sms(home, "Your order {{ data.number }} is on its way")
    home.advance(1)
    receive_sms("STOP")
    messages = conversation(home, ann)
    assert [direction for direction, _ in messages] == ["out", "in", "out", "in"]
    assert [body for _, body in messages][1:] == ["STOP", "Your order  is on its way", "hi"]
    assert str(messages[0][1]).startswith("Acme: You are unsubscribed")
    assert (conversation(home, ann, page=2, limit=3), conversation(home, ann, page=9)) == ([("in", "hi")], [])
    with pytest.raises(NotFound):
        conversation(home, 999)


def test_unsent_sms_are_not_in_the_conversation(home: Home, ann: int) -> None:
    """A skipped message is not part of the conversation."""
    number = queue_sms(home, "x")
    transactions.write(lambda: Message.update(status="skipped").where(Message.id == number).execute())
    assert conversation(home, ann) == []


def test_earlier_sms_of_a_number_belong_to_its_new_contact(home: Home, ann: int) -> None:
    """SMS from and to a number before its contact existed are part of the conversation and the export."""
    receive_sms("hello", BOB)
    queue_sms(home, "who is there?", BOB)
    bob = home.upsert(phone=BOB).contact
    assert sorted(conversation(home, bob.id)) == [("in", "hello"), ("out", "who is there?")]
    assert conversation(home, ann) == []
    assert [row.body for row in contacts.collect_contact_data(home.account_id, bob.id).incoming] == ["hello"]


def test_merged_contacts_have_one_conversation(home: Home, ann: int) -> None:
    """After a merge the conversation has the SMS of both contacts."""
    bob = home.upsert(phone=BOB).contact
    receive_sms("one")
    receive_sms("two", BOB)
    transactions.write(removal.merge, home.account_id, ann, bob.id, BY_API)
    assert sorted(conversation(home, ann)) == [("in", "one"), ("in", "two")]


def test_an_erased_contact_leaves_no_sms_text(home: Home, ann: int) -> None:
    """Number and text are removed from all tables, also of SMS received before the contact existed."""
    receive_sms("I am Bob", BOB)
    bob = home.upsert(phone=BOB).contact
    receive_sms("please stop texting me", BOB)
    receive_sms("hello from Ann")
    transactions.write(
        delivery_reports.apply_receipt, "twilio", Receipt("SM1", "failed", text=f"no such number: {BOB}")
    )
    transactions.write(removal.erase, home.account_id, bob.id, BY_API)
    incoming = [(row.sender, row.body, row.keyword) for row in Incoming.select().order_by(Incoming.id)]
    assert incoming == [(None, None, None)] * 2 + [(ANN, "hello from Ann", None)]
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
    assert events_named("message") == [("message", ann, None)]


def test_erasure_covers_former_numbers(home: Home, ann: int) -> None:
    """Text from a former number is removed from its suppression, unless another contact has the number now."""
    for number in (BOB, "+14155550103"):
        bob = home.upsert(phone=number, opt_in=True).contact
        receive_sms("please stop texting me", number)
        [row] = rows("SELECT id FROM channel WHERE contact_id = ?", (bob.id,))
        changes = [{"id": row[0], "_destroy": True}, {"kind": "phone", "value": f"+49151{bob.id:08}"}]
        home.patch(bob.id, channels_attributes=changes)
        if number != BOB:
            home.upsert(phone=number)
        transactions.write(removal.erase, home.account_id, bob.id, BY_API)
    query = "SELECT address, diagnostic FROM suppression WHERE reason = 'stop_keyword' ORDER BY id"
    assert rows(query) == [(None, None), ("+14155550103", "please stop texting me")]


def test_review_of_possible_opt_outs(home: Home, ann: int) -> None:
    """Possible opt-outs wait for review, reported by the doctor; a user can mark one seen or opt its sender out."""
    receive_sms("please stop by the shop")
    receive_sms("do you hate spam too?", BOB)
    receive_sms("thanks")
    account = home.account_id
    unseen = sms_conversations.list_incoming(account, IncomingQuery(unseen=True)).rows
    assert [row.body for row in unseen] == ["do you hate spam too?", "please stop by the shop"]
    [finding] = doctor.check_unseen_refusals(home.directory, account)
    assert (finding.level, finding.words.partition(" since ")[0]) == (
        "warn",
        "account 1: 2 SMS may be opt-outs and have waited for review",
    )
    reviewed = transactions.write(sms_conversations.mark_seen, account, unseen[0].id, OptOutReview(), "key:1")
    assert (reviewed.opted_out, reviewed.seen_at is not None) == (False, True)
    opted_out = transactions.write(
        sms_conversations.mark_seen, account, unseen[1].id, OptOutReview(opt_out=True), "user:1"
    )
    assert opted_out.opted_out and home.channel(ANN).suppression == "stop_keyword"
    assert ("opt_out", "recipient", "keyword", "user:1") in home.consent_rows(ANN)
    assert sms_conversations.list_incoming(account, IncomingQuery(unseen=True)).total == 0
    assert list(doctor.check_unseen_refusals(home.directory, None)) == []
    assert sms_conversations.list_incoming(account, IncomingQuery(unseen=False)).total == 3
    assert sms_conversations.list_incoming(account, IncomingQuery(from_="+1 415 555 0102")).total == 1
    assert sms_conversations.list_incoming(account, IncomingQuery(kind="message", contact_id=ann)).total == 1
    for get in (
        lambda: sms_conversations.get_incoming(account + 1, unseen[0].id),
        lambda: sms_conversations.get_incoming(account, 999),
    ):
        with pytest.raises(NotFound):
            get()


def test_keywords_of_live_flows_become_events(home: Home, ann: int) -> None:
    """A keyword of a live flow gives a `keyword` event, other text a `message` event; a word of both gives both."""
    flows_home.live_flow(home, {"event": "keyword", "data": {"keywords": ["Jul Fest", "join"]}})
    receive_sms("JOIN us!")
    receive_sms("“Jul fest”")
    receive_sms("we join")
    flows_home.live_flow(home, {"event": "message", "data": {"keywords": ["JOIN"]}})
    receive_sms("join", provider_id="SM9")
    assert events_named("message", "keyword") == [
        ("keyword", ann, "join"), ("keyword", ann, "Jul Fest"), ("message", ann, None), ("keyword", ann, "join"),
        ("message", ann, "JOIN"),
    ]  # fmt: skip
    flows_home.live_flow(home, {"event": "message", "data": {"keywords": ["Jul Fest now"]}})
    receive_sms("jul fest now")
    assert events_named("message", "keyword")[-1:] == [("message", ann, "Jul Fest now")]
    events_of_keyword = rows(
        "SELECT resource_uid, json_extract(data, '$.body') FROM event WHERE event = 'keyword' LIMIT 1"
    )
    assert events_of_keyword == [(f"incoming:{Incoming.select().first().id}", "JOIN us!")]


def test_a_trigger_without_keywords_matches_any_single_word(home: Home, ann: int) -> None:
    """A word alone gives a `keyword` event; keywords of `message` triggers still give a `message` event too."""
    flows_home.live_flow(home, {"event": "keyword"})
    flows_home.live_flow(home, {"event": "message", "data": {"keywords": ["hola"]}})
    for body in ("Win!", "I win", "hola", "?", "STOP"):
        receive_sms(body)
    assert events_named("message", "keyword") == [
        ("keyword", ann, "WIN"), ("message", ann, None), ("keyword", ann, "HOLA"), ("message", ann, "hola"),
        ("message", ann, None),
    ]  # fmt: skip


def test_automatic_replies_do_not_trigger_flows_endlessly(home: Home, ann: int) -> None:
    """After 21 replies within a day further messages are recorded as quiet events; a day later they are not."""
    receive_sms("hello")
    number = queue_sms(home, "We got it")
    transactions.write(
        run, "UPDATE message SET status = 'sent', sent_at = 1, source_type = 'flow' WHERE id = ?", (number,)
    )
    for _ in range(22):
        receive_sms("Thanks for your message, we are away.")
    quiet_flags = [row[0] for row in rows("SELECT quiet FROM event WHERE event = 'message' ORDER BY id")]
    assert quiet_flags == [0] * 21 + [1] * 2
    transactions.write(run, "UPDATE incoming SET created_at = created_at - 86400000")
    receive_sms("hello again")
    assert rows("SELECT quiet FROM event WHERE event = 'message' ORDER BY id DESC LIMIT 1") == [(0,)]


def test_a_simulation_handles_stop(home: Home, ann: int) -> None:
    """After STOP in a simulation nothing more is sent; the real contact and its incoming SMS are unchanged."""
    flow = create_flow(home, [{"body": "One"}, {"duration": 3600}, {"body": "Two"}])
    result = simulate(home, flow, contact_id=ann, events=[{"event": "message", "after": 60, "data": {"body": "Stop!"}}])
    assert [step_entry(result, step).message.status for step in (1, 3)] == ["sent", "skipped"]  # type: ignore[union-attr]  # both steps are those of messages
    assert "replies by SMS: “Stop!”" in result.text
    assert (Incoming.select().count(), home.channel(ANN).subscribed) == (0, True)
