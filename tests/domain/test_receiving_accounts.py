"""Incoming SMS where several accounts use one provider: the account a message belongs to, and what others learn."""

import pytest

from appliance.accounts import accounts
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactWrite
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Account, Channel, Message
from tests.domain.home import BY_API, Home
from tests.domain.talk import ANN, OURS, automatic_replies, receive_sms, stored_sms


def create_other_account(phone: str | None = None, opt_in: bool = True) -> int:
    """Create a second account, with Ann's number if `phone` is given, and return its id."""
    account_id = int(transactions.write(lambda: accounts.create("Elsewhere").id))
    if phone is not None:
        transactions.write(write.upsert, account_id, ContactWrite(phone=phone, opt_in=opt_in), BY_API)
    return account_id


def get_ann_channel(account_id: int) -> Channel:
    """Return the channel of Ann's number in an account."""
    return Channel.get(Channel.account == account_id, Channel.key == ANN)


def test_stop_and_start_apply_to_every_account(home: Home, ann: int) -> None:
    """STOP suppresses the number in all accounts, and START undoes that without opting in other contacts.

    A simulated STOP stays in its account.
    """
    second, third = create_other_account(ANN), create_other_account(ANN, opt_in=False)
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    transactions.write(lambda: Account.update(sms_from="+14155550198").where(Account.id != home.account_id).execute())
    receive_sms("STOP")
    assert {get_ann_channel(account).suppression for account in (home.account_id, second, third)} == {"stop_keyword"}
    assert len(automatic_replies()) == 1
    receive_sms("START")
    assert [get_ann_channel(account).subscribed for account in (home.account_id, second, third)] == [True, True, False]
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    receive_sms("STOP", account_id=second)
    suppressions = {account: get_ann_channel(account).suppression for account in (home.account_id, second, third)}
    assert suppressions == {home.account_id: None, second: "stop_keyword", third: None}, (
        "a simulated STOP must stay in its account"
    )


@pytest.mark.parametrize("sender", [ANN[1:], f" {ANN[1:]}", f"00{ANN[1:]}", f"tel:{ANN}", f"whatsapp:{ANN}"])
def test_numbers_without_a_plus_are_recognized(home: Home, ann: int, sender: str) -> None:
    """A known number is recognized in other spellings; an unknown one is stored as it came."""
    create_other_account()
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    receive_sms("STOP", sender, to=OURS[1:])
    channel = home.channel(ANN)
    assert channel is not None and channel.suppression == "stop_keyword"
    assert [(row.sender, row.recipient) for row in Message.select()] == [(OURS, ANN)]
    receive_sms("STOP", "14155550999")
    assert [(row.account_id, row.sender, row.kind) for row in stored_sms()] == [
        (home.account_id, ANN, "stop"), (home.account_id, "14155550999", "message")]  # fmt: skip


def test_other_accounts_do_not_get_the_text(home: Home, ann: int) -> None:
    """Other accounts with the number record the opt-out, but neither the text nor the recipient."""
    second = create_other_account(ANN)
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    receive_sms("please stop texting me, thanks")
    [own_row, other_row] = stored_sms()
    assert (own_row.recipient, own_row.body) == (OURS, "please stop texting me, thanks")
    assert (other_row.account_id, other_row.recipient, other_row.kind, other_row.body, other_row.keyword) == (
        second, "", "refusal", "STOP", "STOP")  # fmt: skip
    query = f"SELECT text FROM consent WHERE account_id = {second} UNION ALL SELECT diagnostic FROM suppression"
    assert "please" not in str(rows(f"{query} WHERE account_id = {second}"))


def test_the_account_of_an_incoming_sms(home: Home, ann: int) -> None:
    """An SMS belongs to the account with its number.

    If several accounts have the number, the one that wrote last or knows the contact is chosen, else the first.
    """
    second_account = create_other_account()
    receive_sms("one")
    transactions.write(lambda: Message.create(
        account=second_account, channel="sms", recipient=ANN, recipient_key=ANN, status="sent",
        source_type="transactional", provider="twilio", sent_at=1, created_at=1, updated_at=1))  # fmt: skip
    receive_sms("two")
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == home.account_id).execute())
    transactions.write(lambda: Account.update(sms_from="+14155550198").where(Account.id == second_account).execute())
    receive_sms("three")
    receive_sms("four", to="+1 (415) 555-0198")
    assert [row.account_id for row in stored_sms()] == [
        home.account_id,
        second_account,
        home.account_id,
        second_account,
    ]
    # All have the same number and none has written yet: the account with the contact gets the message
    third_account = create_other_account("+14155550777")
    transactions.write(lambda: Account.update(sms_from=OURS).execute())
    receive_sms("five", "+14155550777")
    receive_sms("six", "+14155550888")
    assert [row.account_id for row in stored_sms()][4:] == [third_account, home.account_id]


def test_claimed_number_may_belong_to_a_messaging_service(home: Home, ann: int) -> None:
    """An SMS of a contact of the account that sends by a service stays there, any other goes to the number's."""
    second_account = create_other_account()
    transactions.write(lambda: Account.update(sms_from=f"MG{'0a' * 16}").where(Account.id == home.account_id).execute())
    transactions.write(lambda: Account.update(sms_from=OURS).where(Account.id == second_account).execute())
    receive_sms("one")
    receive_sms("two", "+14155550888")
    assert [row.account_id for row in stored_sms()] == [home.account_id, second_account]
