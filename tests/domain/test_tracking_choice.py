"""Whether a campaign counts opens and clicks: said before it is sent, and what was sent keeps to it."""

import re

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import send, store
from appliance.campaigns.store import CampaignCreate, CampaignPatch
from appliance.core import validation
from appliance.core.errors import Invalid
from appliance.sending.messages import transactional
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home

BODY = '<p><a href="https://example.org/a">A</a></p>'


def leaves(message_id: int) -> str:
    """Return what a message says as it leaves, links and pictures in one line."""
    (claim,) = (Claim._make(row)._replace(first_attempt_at=1) for row in rows(
        f"SELECT {COLUMNS} FROM message WHERE id = ?", (message_id,)))  # fmt: skip
    return (
        MessagePreparer().prepare(claim).envelope.content.replace(b"=\r\n", b"").replace(b"=3D", b"=").decode("latin-1")
    )


def is_tracked(message_id: int) -> bool:
    """Return whether a message counts what becomes of it; it does wholly or not at all."""
    said = leaves(message_id)
    has_link, has_picture = re.search(r'href="http://[^/]+/c/', said) is not None, "/o/" in said
    assert has_link == has_picture == ('href="https://example.org/a"' not in said)
    return has_link


@pytest.mark.parametrize("tracking", [True, False])
def test_a_campaign_says_whether_it_counts(tracking: bool, home: Home) -> None:
    """Without, its links are as they were written and there is no picture."""
    campaign = home.campaign(home.list_of(home.contact("ann@example.org").id).id, body=BODY)
    assert campaign.tracking
    transactions.write(
        send.update,
        home.account_id,
        campaign.id,
        validation.read(CampaignPatch, {"tracking": tracking}),
        Actor("key:1"),
    )
    home.send(campaign)
    assert is_tracked(1) == tracking
    # What was sent stays what it was: a repeat is the same bytes
    transactions.write(run, "UPDATE campaign SET tracking = ?", (not tracking,))
    assert is_tracked(1) == tracking
    with pytest.raises(Invalid) as refused:
        transactions.write(
            send.update,
            home.account_id,
            campaign.id,
            validation.read(CampaignPatch, {"tracking": tracking}),
            Actor("k"),
        )
    assert refused.value.reason == "campaign_locked"


def test_a_campaign_is_made_without(home: Home) -> None:
    """The choice may be made at once."""
    made = transactions.write(
        store.create, home.account_id, validation.read(CampaignCreate, {"name": "Quiet", "tracking": False})
    )
    assert made.tracking is False


def test_only_marketing_is_counted(home: Home) -> None:
    """A single message is, where it is marketing; a receipt never is, whoever gets it."""
    home.contact("ann@example.org")
    said = {"to": "ann@example.org", "subject": "S", "body": BODY}
    asked = [validation.read(MessageWrite, {**said, "transactional": one}) for one in (True, False)]
    receipt, offer = (transactions.write(transactional.queue_message, home.account_id, one) for one in asked)
    assert not is_tracked(receipt.id) and is_tracked(offer.id)


def test_who_chose_none_is_counted_nowhere(home: Home) -> None:
    """In a campaign that counts, their mail does not."""
    ids = [home.contact(f"{name}@example.org", tracking=name).id for name in ("full", "aggregate", "none")]
    home.send(home.campaign(home.list_of(*ids).id, body=BODY))
    assert [is_tracked(number) for number in (1, 2, 3)] == [True, True, False]
