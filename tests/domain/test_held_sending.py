"""What an account would send after a restore, as `/restored` and the command line show it."""

from appliance.ops.backups import restore
from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.home import Home


def test_reported_messages_count_as_sent(home: Home) -> None:
    """A message counts as sent whatever was reported of it since; the others are open."""
    contacts = [home.contact(f"p{number}@example.org") for number in range(6)]
    news = home.list_of(*(contact.id for contact in contacts))
    campaign = home.send(home.campaign(news.id))
    for contact, status in zip(contacts, ("sent", "delivered", "bounced", "complained"), strict=False):
        transactions.write(
            run,
            "UPDATE message SET status = ?, sent_at = 1, body_hash = 1 WHERE contact_id = ?",
            (status, contact.id),
        )
    [held] = restore.find_held_sending(home.account_id).campaigns

    assert (held.campaign_id, held.sent_count, held.open_count) == (campaign.id, 4, 2)
