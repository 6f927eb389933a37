"""The journey with a client that openapi-python-client generated: `python_journey.py URL KEY`."""

import sys
import time
from typing import TypeVar

from generated_client import AuthenticatedClient
from generated_client.api.campaigns import create_campaign, get_campaign, send_campaign
from generated_client.api.contacts import create_contact, list_contacts
from generated_client.api.lists import create_list
from generated_client.api.messages import list_messages
from generated_client.api.segments import create_segment
from generated_client.models import (
    CampaignCreate,
    ContactWrite,
    ContactWriteDataType0,
    Content,
    ErrorResponse,
    Filter,
    FilterPredicate,
    ListCreate,
    SegmentCreate,
    SendRequest,
    TriggerWrite,
)

client = AuthenticatedClient(sys.argv[1], sys.argv[2], raise_on_unexpected_status=True)


T = TypeVar("T")


def done(result: T | ErrorResponse | None) -> T:
    """Return the result of a call. Raises AssertionError for an error."""
    assert result is not None and not isinstance(result, ErrorResponse), result
    return result


news = done(create_list.sync(client=client, body=ListCreate(name="By openapi-python-client")))
data = ContactWriteDataType0.from_dict({"city": "Cork", "visits": 3})
done(create_contact.sync(client=client, body=ContactWrite(email="cat@example.org", list_ids=[news.id], data=data)))
cork = Filter(name="data.city", predicate=FilterPredicate.EQ, value="Cork")
segment = done(create_segment.sync(client=client, body=SegmentCreate(name="From Cork", filters=[cork])))
campaign = done(create_campaign.sync(client=client, body=CampaignCreate(name="Letter")))
trigger = TriggerWrite(contact_list_id=news.id, segment_id=segment.id)
content = Content(subject="Hello", body="<p>Good morning.</p>")
done(
    send_campaign.sync(
        campaign.id,
        client=client,
        body=SendRequest(trigger_attributes=trigger, template_attributes=content),
    )
)
while done(get_campaign.sync(campaign.id, client=client)).status == "active":
    time.sleep(0.1)
messages = done(list_messages.sync(client=client, campaign_id=campaign.id))
contacts = done(list_contacts.sync(client=client, list_id=news.id))
print(len(contacts), ",".join(f"{message.to} {message.status}" for message in messages))
