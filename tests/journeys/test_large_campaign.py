"""A large campaign through the relay: each recipient once, personalised, and exact counts."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import FreshServer
from tests.kit.smtp import SmtpServer


def test_a_large_campaign(fresh_server: FreshServer, smtp_server: SmtpServer, full: bool) -> None:
    """10,000 contacts with `--full`, else 500: stats, messages, events and received mail agree."""
    count = 10_000 if full else 500
    server = fresh_server(relay=smtp_server.port)
    api = server.client(keep_alive=True)
    list_id = api.post("/lists", {"name": "Crowd"}).expect(201)["id"]

    def add(index: int) -> int:
        body = {"email": f"c{index}@crowd.example", "first_name": f"N{index}", "list_ids": [list_id],
                "data": {"mark": f"m-{index}-m"}, "opt_in": index % 50 != 0}  # fmt: skip
        number: int = api.post("/contacts", body).expect(201)["id"]
        return number

    with ThreadPoolExecutor(4) as pool:
        contact_ids = list(pool.map(add, range(count)))
    opted_out = {index for index in range(count) if index % 50 == 0}
    content = {
        "subject": "{{ first_name }}",
        "body": "<p>{{ contact.data.mark }}</p>",
        "from_email": "a@bakery.example",
    }
    campaign = api.post("/campaigns", {"name": "Crowd", "template_attributes": content}).expect(201)
    sent = api.post(f"/campaigns/{campaign['id']}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(
        200
    )
    completed = api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed", timeout=180)

    assert len(set(contact_ids)) == count
    assert sent["audience_count"] == count
    assert completed["stats"] == completed["stats"] | {
        "audience": count, "sent": count - len(opted_out), "skipped": len(opted_out), "pending": 0,
        "failed": 0, "uncertain": 0,
    }  # fmt: skip
    assert completed["sent_count"] == count - len(opted_out)
    arrived = Counter(message.to for message in smtp_server.messages)
    assert arrived == {f"c{index}@crowd.example": 1 for index in range(count) if index not in opted_out}
    for message in smtp_server.messages:
        number = message.to.partition("@")[0][1:]
        assert (message.subject, re.findall(r"m-\d+-m", message.html() or "")) == (f"N{number}", [f"m-{number}-m"])
    assert len({message.raw_header("Message-ID") for message in smtp_server.messages}) == count - len(opted_out)
    totals = {
        status: int(api.get("/messages", campaign_id=campaign["id"], status=status, limit=1).headers["X-Total-Count"])
        for status in ("sent", "skipped", "queued", "sending", "failed")
    }
    assert totals == {"sent": count - len(opted_out), "skipped": len(opted_out), "queued": 0, "sending": 0, "failed": 0}
    assert int(api.get("/events", event="email_sent", limit=1).headers["X-Total-Count"]) == count - len(opted_out)
