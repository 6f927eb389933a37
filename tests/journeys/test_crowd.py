"""A large campaign through the relay: everybody once, everybody personal, every count exact."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import FreshServer
from tests.kit.smtp import SmtpServer


def test_a_crowd_gets_its_mail(fresh_server: FreshServer, smtp_server: SmtpServer, full: bool) -> None:
    """10,000 with `--full`, 1,500 otherwise: the books, the events and what arrived agree row by row."""
    count = 10_000 if full else 1_500
    server = fresh_server(relay=smtp_server.port)
    api = server.client(keep_alive=True)
    group = api.post("/lists", {"name": "Crowd"}).expect(201)["id"]

    def add(index: int) -> int:
        body = {"email": f"c{index}@crowd.example", "first_name": f"N{index}", "list_ids": [group],
                "data": {"mark": f"m-{index}-m"}, "opt_in": index % 50 != 0}  # fmt: skip
        number: int = api.post("/contacts", body).expect(201)["id"]
        return number

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(add, range(count)))
    out = {index for index in range(count) if index % 50 == 0}
    content = {
        "subject": "{{ first_name }}",
        "body": "<p>{{ contact.data.mark }}</p>",
        "from_email": "a@bakery.example",
    }
    made = api.post("/campaigns", {"name": "Crowd", "template_attributes": content}).expect(201)
    sent = api.post(f"/campaigns/{made['id']}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    done = api.wait(f"/campaigns/{made['id']}", lambda row: row["status"] == "completed", timeout=180)

    assert len(set(ids)) == count
    assert sent["audience_count"] == count
    assert done["stats"] == done["stats"] | {
        "audience": count, "sent": count - len(out), "skipped": len(out), "pending": 0, "failed": 0, "uncertain": 0,
    }  # fmt: skip
    assert done["sent_count"] == count - len(out)
    arrived = Counter(message.to for message in smtp_server.messages)
    assert arrived == {f"c{index}@crowd.example": 1 for index in range(count) if index not in out}
    for message in smtp_server.messages:
        number = message.to.partition("@")[0][1:]
        assert (message.subject, re.findall(r"m-\d+-m", message.html() or "")) == (f"N{number}", [f"m-{number}-m"])
    assert len({message.raw_header("Message-ID") for message in smtp_server.messages}) == count - len(out)
    totals = {
        status: int(api.get("/messages", campaign_id=made["id"], status=status, limit=1).headers["X-Total-Count"])
        for status in ("sent", "skipped", "queued", "sending", "failed")
    }
    assert totals == {"sent": count - len(out), "skipped": len(out), "queued": 0, "sending": 0, "failed": 0}
    assert int(api.get("/events", event="email_sent", limit=1).headers["X-Total-Count"]) == count - len(out)
