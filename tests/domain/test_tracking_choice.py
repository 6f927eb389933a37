"""The tracking setting of campaigns: chosen before the send, and unchanged afterwards."""

import re

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import send, store
from appliance.campaigns.store import CampaignCreate, CampaignPatch
from appliance.core import validation
from appliance.core.errors import Invalid
from appliance.sending.messages import transactional
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home

BODY = '<p><a href="https://example.org/a">A</a></p>'


def render_content(message_id: int) -> str:
    """Return the content of a message without quoted-printable encoding."""
    (ledger_row,) = (LedgerRow._make(row)._replace(first_attempt_at=1) for row in rows(
        f"SELECT {COLUMNS} FROM message WHERE id = ?", (message_id,)))  # fmt: skip
    return (
        MessagePreparer()
        .prepare(ledger_row)
        .envelope.content.replace(b"=\r\n", b"")
        .replace(b"=3D", b"=")
        .decode("latin-1")
    )


def is_tracked(message_id: int) -> bool:
    """Return whether a message has a tracked link and a pixel; it must have both or neither."""
    content = render_content(message_id)
    has_link, has_pixel = re.search(r'href="http://[^/]+/c/', content) is not None, "/o/" in content
    assert has_link == has_pixel == ('href="https://example.org/a"' not in content)
    return has_link


@pytest.mark.parametrize("tracking", [True, False])
def test_tracking_of_a_campaign_can_be_disabled(tracking: bool, home: Home) -> None:
    """Without tracking the links are unchanged and there is no pixel; after the send the setting is locked."""
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
    # The setting of the send counts: a message that is sent again must have the same bytes
    transactions.write(run, "UPDATE campaign SET tracking = ?", (not tracking,))
    assert is_tracked(1) == tracking
    with pytest.raises(Invalid) as error_info:
        transactions.write(
            send.update,
            home.account_id,
            campaign.id,
            validation.read(CampaignPatch, {"tracking": tracking}),
            Actor("k"),
        )
    assert error_info.value.reason == "campaign_locked"


def test_a_campaign_can_be_created_without_tracking(home: Home) -> None:
    """`tracking` is stored when the campaign is created."""
    campaign = transactions.write(
        store.create, home.account_id, validation.read(CampaignCreate, {"name": "Quiet", "tracking": False})
    )
    assert campaign.tracking is False


def test_only_marketing_messages_are_tracked(home: Home) -> None:
    """A single marketing message is tracked, a transactional one is not."""
    home.contact("ann@example.org")
    fields = {"to": "ann@example.org", "subject": "S", "body": BODY}
    requests = [validation.read(MessageWrite, {**fields, "transactional": value}) for value in (True, False)]
    receipt, offer = (transactions.write(transactional.queue_message, home.account_id, request) for request in requests)
    assert not is_tracked(receipt.id) and is_tracked(offer.id)


def test_contacts_without_tracking_are_not_tracked(home: Home) -> None:
    """In a tracked campaign the message of a contact with tracking `none` is not tracked."""
    contact_ids = [home.contact(f"{name}@example.org", tracking=name).id for name in ("full", "aggregate", "none")]
    home.send(home.campaign(home.list_of(*contact_ids).id, body=BODY))
    assert [is_tracked(number) for number in (1, 2, 3)] == [True, True, False]
