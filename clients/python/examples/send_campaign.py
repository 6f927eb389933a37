"""Send a campaign to a segment and print the status of each message: `send_campaign.py URL KEY`."""

import sys
import time

from campanero_client import ApiError, Campanero


def main(url: str, key: str) -> None:
    """Create a list, contacts, a segment and a campaign, and send it."""
    with Campanero(url, key) as client:
        news = client.lists.create(name="Newsletter")
        for email, name, city in (("anna@example.org", "Anna", "Lyon"), ("bo@example.org", "Bo", "Oslo")):
            client.contacts.create(email=email, first_name=name, list_ids=[news["id"]], data={"city": city})
        segment = client.segments.create(
            name="From Lyon", filters=[{"name": "data.city", "predicate": "eq", "value": "Lyon"}]
        )

        campaign = client.campaigns.create(name="October letter")
        try:
            client.campaigns.send(
                campaign["id"],
                trigger_attributes={"contact_list_id": news["id"], "segment_id": segment["id"]},
                template_attributes={"subject": "Hello {{ first_name }}", "body": "<p>Good morning.</p>"},
            )
        except ApiError as error:
            sys.exit(f"{error} {error.fields}")
        while client.campaigns.get(campaign["id"])["status"] == "active":
            time.sleep(0.2)

        for message in client.messages.list(campaign_id=campaign["id"]):
            print(message["to"], message["status"])


if __name__ == "__main__":
    main(*sys.argv[1:])
