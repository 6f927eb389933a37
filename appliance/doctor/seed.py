"""Sends one message the whole way into the built-in inbox and reads it back as a recipient's server would.

It goes to nobody: whatever the transport, it is captured, and taken out of the inbox again. Its row stays, as a test.
"""

import http.client
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from appliance import addresses, clock, config
from appliance.db import work
from appliance.db.open import one, run
from appliance.db.work import writing
from appliance.delivery import resolver
from appliance.doctor import ground, reading
from appliance.doctor.findings import Line
from appliance.messages import compose, senders
from appliance.messages.ledger import AT_ONCE
from appliance.settings import Config
from appliance.tables import Account, Message, MessageContent

# The name is of nobody for ever (RFC 2606)
_TO = "seed@campanero.invalid"
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


def send(directory: Path, account_id: int | None) -> Iterator[Line]:
    """Send a message from the account's own address and look at it as it arrived."""
    if not ground.runs(directory):
        yield Line("fail", "seed", "the service does not run, so nothing is sent", "campanero serve")
        return
    account = _account(account_id)
    if account is None:
        yield Line("fail", "seed", "there is no such account", "campanero setup --email you@example.com")
        return
    number = work.write(_put, account)
    try:
        arrived = _wait(number)
        if arrived is None:
            status = one("SELECT status, error_text FROM message WHERE id = ?", (number,)) or ("gone", None)
            yield Line(
                "fail", "seed", f"message {number} did not arrive in {_PATIENCE_SECONDS:.0f} s: it is {status[0]}"
            )
            return
        sender = senders.resolve(account, None)
        yield Line("ok", "seed", f"message {number} from {sender} arrived in the built-in inbox")
        level = "fail" if config.current().email.transport != "capture" else "warn"
        yield from reading.findings(arrived[1], arrived[0], level, resolver.lookup)
        yield _one_click(arrived[1])
    finally:
        work.write(_end, number)


def _account(account_id: int | None) -> Account | None:
    """Return the account, else the first one; read to the end, for a query that is not holds on to its moment."""
    found = list(Account.select().where((Account.id == account_id) if account_id else True).order_by(Account.id))
    return found[0] if found else None


def _put(account: Account) -> int:
    """Queue the message, with the headers of marketing mail."""
    writing()
    now, to = clock.now_ms(), addresses.email(_TO)
    sender = senders.resolve(account, None)
    message = Message.create(
        account=account, channel="email", recipient=to.value, recipient_key=to.key, sender=sender, status="queued",
        subject="Seed", source_type="test", transactional=True, test=True, provider="capture", due_at=AT_ONCE,
        created_at=now, updated_at=now,
    )  # fmt: skip
    domain = sender.rpartition("@")[2]
    headers = compose.marketing_headers(message.id, None, account.name, f"account-{account.id}", domain, account.id)
    MessageContent.create(message=message, subject="Seed", body="<p>Is this read as it was sent?</p>",
                          headers=dict(headers))  # fmt: skip
    return int(message.id)


def _wait(number: int) -> tuple[str, bytes] | None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        found = one("SELECT mail_from, source FROM captured WHERE message_id = ?", (number,))
        if found is not None:
            return str(found[0]), bytes(found[1])
        time.sleep(_LOOK_SECONDS)
    return None


def _end(number: int) -> None:
    writing()
    run("DELETE FROM captured WHERE message_id = ?", (number,))
    run(
        "UPDATE message SET status = 'cancelled', due_at = NULL WHERE id = ? AND status IN ('queued', 'held')",
        (number,),
    )


def _door(here: Config) -> http.client.HTTPConnection:
    """Return a connection to our own door, whoever its certificate is of: we know where we go."""
    target, port = config.reached(here.listen)
    if not here.tls.certificate:
        return http.client.HTTPConnection(target, port, timeout=5)
    look = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    look.check_hostname, look.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(target, port, timeout=5, context=look)


def _one_click(source: bytes) -> Line:
    """Follow the way out as its header says it, to our own door; looking changes nothing (RFC 8058)."""
    head = source.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ").replace(b"\r\n\t", b" ").decode("utf-8", "replace")
    found = re.search(r"^List-Unsubscribe: *<(https?://[^>]+)>", head, re.MULTILINE | re.IGNORECASE)
    if found is None or "List-Unsubscribe=One-Click" not in head:
        return Line("fail", "seed one-click", "the headers of one-click unsubscribing are missing")
    parts = urlsplit(found[1])
    try:
        door = _door(config.current())
        door.request("GET", parts.path, headers={"Host": parts.netloc})
        status = door.getresponse().status
        door.close()
    except OSError as error:
        return Line("fail", "seed one-click", f"our own door does not answer: {error}")
    if status != 200:
        return Line("fail", "seed one-click", f"our own door answers {status} to {parts.path}")
    words = f"the link leads to {parts.scheme}://{parts.netloc}, and our door answers"
    if parts.scheme != "https":
        return Line(
            "warn", "seed one-click", f"{words}; mailbox providers follow https only", 'base_url = "https://..."'
        )
    return Line("ok", "seed one-click", words)
