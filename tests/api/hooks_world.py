"""Fixture for the tests of inbound webhooks: a server that accepts all of them, and the providers that post to it."""

import base64
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit import email_providers
from tests.kit.client import Client, Response
from tests.kit.clock import TestClock
from tests.kit.email_providers import TOPIC, Post, Postal, SendGrid, Sns
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

SECRETS = {
    "email": "own secret", "mailgun": "key-mailgun", "postmark": "pass:word", "brevo": "brevo word",
    "mailjet": "mailjet word", "resend": "whsec_" + base64.b64encode(b"twenty-four bytes of key").decode(),
}  # fmt: skip

NOTHING = ("sent", [], None, True)
COMPLAINED = ("complained", ["email_complained", "opt_out"], "complaint", False)


class World:
    """A server that accepts webhooks of all email providers, and the providers."""

    def __init__(
        self,
        server: Server,
        api: Client,
        smtp: SmtpServer,
        clock: TestClock,
        sns: Sns,
        grid: SendGrid,
        postal: Postal,
    ):
        self.server, self.api, self.smtp, self.clock, self.sns, self.grid = server, api, smtp, clock, sns, grid
        self.postal_server = postal
        self._numbers = itertools.count()

    def post(self, post: Post) -> Response:
        """Post a request of a provider to its webhook."""
        return self.api.request("POST", post.path, post.body, post.headers)

    def sent(self, **body: Any) -> Any:
        """Send a message to a new contact and return it once its status is `sent`."""
        address = f"p{next(self._numbers)}@example.org"
        self.api.post("/contacts", {"email": address}).expect(201)
        message = self.api.post("/messages", {"to": address, "subject": "s", "body": "b", **body}).expect(201)
        return self.api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")

    def state(self, message: Any) -> tuple[str, list[str], str | None, bool]:
        """Return status and feedback events of a message, suppression and subscription of its recipient."""
        now = self.api.get(f"/messages/{message['id']}").expect(200)
        channel = self.api.get(f"/contacts/{message['contact_id']}").expect(200)["channels"][0]
        events = [event["event"] for event in now["events"] if event["event"] != "email_sent"]
        return now["status"], sorted(events), channel["suppression_reason"], channel["subscribed"]

    # -- requests of the providers about a message ----------------------------------------------------------------

    def mail(self, message: Any) -> dict[str, Any]:
        """Return the `mail` object of SES for a message.

        SES replaces our Message-ID and reports it among the headers.
        """
        original = [{"name": "Message-ID", "value": f"<{message['internet_message_id']}>"}]
        return {"messageId": f"ses-{message['id']}", "source": "news@example.org", "headers": original,
                "destination": [message["to"]]}  # fmt: skip

    def ses(
        self, kind: str, message: Any, *, at: float | None = None, name: str = "notificationType", **extra: Any
    ) -> Post:
        """Return a notification of SES about a message."""
        body = {name: kind, "mail": self.mail(message), **extra}
        return self.sns.notification(body, at or self.clock.now())

    def ses_bounce(self, message: Any, kind: str, sub: str, **recipient: Any) -> Post:
        """Return a bounce notification of SES."""
        bounce = {
            "bounceType": kind, "bounceSubType": sub, "feedbackId": f"f-{message['id']}",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "bouncedRecipients": [{"emailAddress": message["to"], **recipient}],
        }  # fmt: skip
        return self.ses("Bounce", message, bounce=bounce)

    def mailgun(
        self, message: Any, event: str, *, token: str | None = None, at: float | None = None, **extra: Any
    ) -> Post:
        """Return an event of Mailgun."""
        headers = {"message-id": message["internet_message_id"]}
        body = {"event": event, "recipient": message["to"], "message": {"headers": headers}, **extra}
        return email_providers.mailgun(SECRETS["mailgun"], body, at or self.clock.now(), token)

    def sendgrid(self, message: Any, event: str, *, at: float | None = None, **extra: Any) -> Post:
        """Return an event of SendGrid."""
        body = {"email": message["to"], "event": event, "smtp-id": f"<{message['internet_message_id']}>", **extra}
        return self.grid.post([body], at or self.clock.now())

    def postmark(self, message: Any, record: str, **extra: Any) -> Post:
        """Return a record of Postmark, with the metadata header of the sent mail."""
        [mail] = self.smtp.to(message["to"])
        body = {"RecordType": record, "ID": message["id"], "MessageID": "guid", "Email": message["to"],
                "Metadata": {"campanero": mail.header("X-PM-Metadata-campanero")}, **extra}  # fmt: skip
        return email_providers.with_password("postmark", SECRETS["postmark"], body)

    def brevo(self, message: Any, event: str, **extra: Any) -> Post:
        """Return an event of Brevo, with the custom header of the sent mail."""
        [mail] = self.smtp.to(message["to"])
        body = {"event": event, "email": message["to"], "message-id": "<2026.1@smtp-relay.mailin.fr>", "id": 9,
                "X-Mailin-custom": mail.header("X-Mailin-custom"), "ts_epoch": self.clock.now() * 1000,
                **extra}  # fmt: skip
        return email_providers.with_password("brevo", SECRETS["brevo"], body)

    def mailjet(self, message: Any, event: str, **extra: Any) -> Post:
        """Return an event of Mailjet, with the custom id of the sent mail."""
        [mail] = self.smtp.to(message["to"])
        body = {"event": event, "time": int(self.clock.now()), "MessageID": message["id"], "email": message["to"],
                "CustomID": mail.header("X-MJ-CustomID"), "Payload": "", **extra}  # fmt: skip
        return email_providers.with_password("mailjet", SECRETS["mailjet"], body)

    def resend(self, message: Any, event: str, *, at: float | None = None, **extra: Any) -> Post:
        """Return an event of Resend about a message with the tag that our requests have."""
        tags = {"campanero": message["internet_message_id"].partition("@")[0]}
        data = {"email_id": "ae2014de", "to": [message["to"]], "tags": tags, **extra}
        body = {"type": f"email.{event}", "created_at": "2026-01-01T00:00:00.000Z", "data": data}
        return email_providers.resend(SECRETS["resend"], body, at or self.clock.now())

    def postal(
        self, message: Any, event: str, *, at: float | None = None, name: str = "message", to: str = "", **extra: Any
    ) -> Post:
        """Return an event of Postal; `name` is the field of the message, `to` another recipient."""
        details = {"id": 1, "direction": "outgoing", "message_id": message["internet_message_id"],
                   "to": to or message["to"]}  # fmt: skip
        return self.postal_server.post(event, {name: details, **extra}, at or self.clock.now())

    def custom_relay(
        self, message: Any, kind: str, *, at: float | None = None, name: str | None = None, **extra: Any
    ) -> Post:
        """Return a report of a custom relay."""
        body = {
            "type": kind,
            "internet_message_id": message["internet_message_id"],
            "recipient": message["to"],
            **extra,
        }
        return email_providers.custom_relay(SECRETS["email"], body, at or self.clock.now(), name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield one server for the module, which sends through an SMTP server of the test."""
    directory = tmp_path_factory.mktemp("hooks")
    clock, sns, grid, postal = TestClock(directory / "clock"), Sns(), SendGrid(), Postal()
    with SmtpServer() as smtp, sns.serving(directory) as stand_ins:
        environment = {
            "CAMPANERO_EMAIL__FEEDBACK_SECRET": SECRETS["email"], "CAMPANERO_EMAIL__HOOKS__SES_TOPIC": TOPIC,
            "CAMPANERO_EMAIL__HOOKS__MAILGUN": SECRETS["mailgun"],
            "CAMPANERO_EMAIL__HOOKS__POSTMARK": SECRETS["postmark"],
            "CAMPANERO_EMAIL__HOOKS__SENDGRID": grid.verification_key,
            "CAMPANERO_EMAIL__HOOKS__BREVO": SECRETS["brevo"], "CAMPANERO_EMAIL__HOOKS__MAILJET": SECRETS["mailjet"],
            "CAMPANERO_EMAIL__HOOKS__RESEND": SECRETS["resend"], "CAMPANERO_EMAIL__HOOKS__POSTAL": postal.key_set,
            **stand_ins,
        }  # fmt: skip
        with Server(relay=smtp.port, env=environment, clock=clock).set_up() as server:
            server.set_postal_address()
            yield World(server, server.client(), smtp, clock, sns, grid, postal)
            server.stop()
