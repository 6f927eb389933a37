"""Wake-ups that get lost: they carry no data, so no work is lost."""

import os
import signal
import time

import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.kit.recipients import (
    NO_RATE_LIMITS,
    create_campaign,
    create_list,
    recipient_address,
    send_campaign,
    wait_until_completed,
)
from tests.kit.reconciliation import reconcile
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4


def toggle_lost_wake_ups(server: Server, state: str) -> None:
    """Start or stop discarding wake-ups, and wait until the log says so."""
    os.kill(server.pid, signal.SIGUSR1)
    server.wait_for_line(f"the queue is {state}")


@pytest.mark.full
def test_lost_wake_ups_lose_no_message(fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures) -> None:
    """Campaigns, single messages and retries are sent once, though nearly every wake-up is lost."""
    smtp_server.rules.reject("rcpt", recipient_address(3), code=450, times=1)
    server = fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS, module="tests.kit.lost_wake_ups")
    api = server.client()
    list_id = create_list(api, 300)
    scheduled_path = create_campaign(api, list_id, subject="Later")
    toggle_lost_wake_ups(server, "emptied")
    path = send_campaign(api, list_id, subject="Now")
    due = time.time() + 5
    scheduled_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due))
    api.patch(scheduled_path, {"scheduled_at": scheduled_at}).expect(200)
    api.post(f"{scheduled_path}/send").expect(200)
    body = {"to": "single@example.org", "subject": "Single", "body": "b", "from_email": "ana@bakery.example"}
    single = api.post("/messages", body).expect(201)["id"]
    time.sleep(max(0.0, due - time.time()) + 1)
    toggle_lost_wake_ups(server, "left alone")
    api.wait(f"/messages/{single}", lambda row: row["status"] == "sent")
    for campaign_path, subject in ((path, "Now"), (scheduled_path, "Later")):
        wait_until_completed(api, campaign_path)
        books = reconcile(
            api, campaign_path, (message for message in smtp_server.messages if message.subject == subject)
        )
        figures.books(books)
        assert (books.accepted, books.copies, books.missing) == (300, 0, 0)


def test_a_restart_needs_no_wake_up(fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures) -> None:
    """After a kill without wake-ups the next process finds all due messages."""
    smtp_server.rules.delay("body", 0.01)
    server = fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS, module="tests.kit.lost_wake_ups")
    api = server.client()
    path = send_campaign(api, create_list(api, 300))
    smtp_server.wait_for(50)
    toggle_lost_wake_ups(server, "emptied")
    server.kill()
    api = server.start().client()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, kills=1)

    assert (books.accepted, books.missing) == (300, 0) and books.copies <= 2 * CONNECTIONS
