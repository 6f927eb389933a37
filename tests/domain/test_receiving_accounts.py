"""Whose an SMS is that somebody wrote, where several accounts send through one provider, and what others learn."""

import pytest

from appliance.accounts import accounts
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactWrite
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Account, Channel, Message
from tests.domain.home import BY_API, Home
from tests.domain.talk import ANN, OURS, answers, hear, kept


def other_account(phone: str | None = None, opt_in: bool = True) -> int:
    """Make a second account, with the number in it."""
    number = int(transactions.write(lambda: accounts.create("Elsewhere").id))
    if phone is not None:
        transactions.write(write.upsert, number, ContactWrite(phone=phone, opt_in=opt_in), BY_API)
    return number


def in_account(number: int) -> Channel:
    """Return the channel of Ann's number in another account."""
    return Channel.get(Channel.account == number, Channel.key == ANN)


def test_stop_counts_in_every_account_that_knows_the_number(home: Home, ann: int) -> None:
    """Who leaves leaves all senders here; START gives back what STOP took, and brings in nobody who was never in."""
    second, third = other_account(ANN), other_account(ANN, opt_in=False)
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    transactions.write(lambda: Account.update(sms_from="+14155550198").where(Account.id != home.account_id).execute())
    hear("STOP")
    assert {in_account(one).suppression for one in (home.account_id, second, third)} == {"stop_keyword"}
    assert len(answers()) == 1
    hear("START")
    assert [in_account(one).subscribed for one in (home.account_id, second, third)] == [True, True, False]
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    hear("STOP", account_id=second)
    left = {one: in_account(one).suppression for one in (home.account_id, second, third)}
    assert left == {home.account_id: None, second: "stop_keyword", third: None}, "a rehearsal is its account's own"


@pytest.mark.parametrize("sender", [ANN[1:], f" {ANN[1:]}", f"00{ANN[1:]}", f"tel:{ANN}", f"whatsapp:{ANN}"])
def test_a_number_without_its_plus(home: Home, ann: int, sender: str) -> None:
    """Whoever we know is heard however their number is told, and answered at it; who is not stays as they came."""
    other_account()
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    hear("STOP", sender, to=OURS[1:])
    channel = home.channel(ANN)
    assert channel is not None and channel.suppression == "stop_keyword"
    assert [(row.sender, row.recipient) for row in Message.select()] == [(OURS, ANN)]
    hear("STOP", "14155550999")
    assert [(row.account_id, row.sender, row.kind) for row in kept()] == [
        (home.account_id, ANN, "stop"), (home.account_id, "14155550999", "message")]  # fmt: skip


def test_another_account_learns_no_words(home: Home, ann: int) -> None:
    """That somebody left is known where their number is; what they wrote, and to whom, to whom they wrote it."""
    second = other_account(ANN)
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    hear("please stop texting me, thanks")
    [own, other] = kept()
    assert (own.recipient, own.body) == (OURS, "please stop texting me, thanks")
    assert (other.account_id, other.recipient, other.kind, other.body, other.keyword) == (
        second, "", "refusal", "STOP", "STOP")  # fmt: skip
    told = f"SELECT text FROM consent WHERE account_id = {second} UNION ALL SELECT diagnostic FROM suppression"
    assert "please" not in str(rows(f"{told} WHERE account_id = {second}"))


def test_whose_message_it_is(home: Home, ann: int) -> None:
    """That of the account with the number; of those that share one, of who last wrote to them; else of the first."""
    second = other_account()
    hear("one")
    transactions.write(lambda: Message.create(
        account=second, channel="sms", recipient=ANN, recipient_key=ANN, status="sent", source_type="transactional",
        provider="twilio", sent_at=1, created_at=1, updated_at=1))  # fmt: skip
    hear("two")
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    transactions.write(lambda: Account.update(sms_from="+14155550198").where(Account.id == second).execute())
    hear("three")
    hear("four", to="+1 (415) 555-0198")
    assert [row.account_id for row in kept()] == [home.account_id, second, home.account_id, second]
    # Both have one number, and nobody has written yet: theirs who knows the person
    third = other_account("+14155550777")
    transactions.write(lambda: Account.update(sms_from=OURS).execute())
    hear("five", "+14155550777")
    hear("six", "+14155550888")
    assert [row.account_id for row in kept()][4:] == [third, home.account_id]
