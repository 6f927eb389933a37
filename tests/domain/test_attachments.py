"""Files attached to messages: what a page and the source of a captured message contain, and which files expire."""

import base64
import errno

import pytest

from appliance.api import http
from appliance.audience.contacts import removal
from appliance.core import validation
from appliance.sending.messages import attachments, transactional
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import disk_guard, transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Message
from tests.domain.home import BY_API, Home

MAIL = {"to": "one@example.org", "subject": "For one", "html": "<p>For one</p>"}


def queue(home: Home, content: bytes, **more: object) -> Message:
    """Queue a message with an inline image of a content, and return it."""
    file = {"filename": "a.png", "content": base64.b64encode(content).decode(), "content_id": "a"}
    body = validation.read(MessageWrite, MAIL | {"attachments": [file]} | more)
    assert isinstance(body.attachments, list)
    files = attachments.store(body.attachments)
    message = transactions.write(transactional.queue_message, home.account_id, body, files=files)
    attachments.release(files)
    return message


def test_repeated_inline_images_have_a_limit(home: Home) -> None:
    """HTML that shows one image thousands of times does not grow without limit (T22)."""
    message = queue(home, bytes(1_000_000))
    html = '<img src="cid:a">' * 5_000
    shown = attachments.show_inline_images(html, message.id)
    assert shown.count('src="data:image/png;base64,') == 11 and shown.count('src="cid:a"') == 4_989


def test_a_placeholder_in_a_text_restores_no_file(home: Home) -> None:
    """The source of a captured message has only its own files, whatever placeholders its sender wrote (T09)."""
    message = queue(home, b"of one account")
    other = queue(home, b"of another")
    [(sha256,)] = rows("SELECT sha256 FROM attachment WHERE message_id = ?", (message.id,))
    source = f"Hello\r\n=_stored:{sha256}\r\n".encode()
    assert attachments.restore_contents(source, other.id) == attachments.restore_contents(source, None) == source
    assert base64.b64encode(b"of one account") in attachments.restore_contents(source, message.id)


def test_files_of_a_message_that_is_queued_again_stay(home: Home) -> None:
    """A message may be queued again between the search for old files and their deletion."""
    message = queue(home, b"x")
    run("UPDATE message SET status = 'failed' WHERE id = ?", (message.id,))
    home.advance(31 * 86_400)
    ids = attachments.list_expired(10)
    run("UPDATE message SET status = 'queued' WHERE id = ?", (message.id,))
    assert (len(ids), transactions.write(attachments.expire, ids)) == (1, 0)
    run("UPDATE message SET status = 'failed' WHERE id = ?", (message.id,))
    assert transactions.write(attachments.expire, ids) == 1


def test_little_space_refuses_files(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files leave the last space of the disk to the database; a write that fails all the same is a 503 error (P9)."""
    monkeypatch.setattr(disk_guard._guard, "low", "little space")
    with pytest.raises(disk_guard.StorageError):
        queue(home, b"x")
    full = http._describe_error(OSError(errno.ENOSPC, "No space left on device"))
    assert (full[0], full[1]) == (503, "storage_unavailable")
    assert http._describe_error(OSError(errno.EACCES, "Permission denied"))[0] == 500


def test_a_copy_is_shown_as_it_was_sent(home: Home) -> None:
    """The page of a copy shows the address of `to` in the text, as the copy itself does."""
    queue(home, b"x", cc=["two@example.org"], html="<p>Account {{ email }}</p>")
    copy = Message.get(Message.recipient == "two@example.org")
    assert "Account one@example.org" in MessagePreparer().fill_again(copy).text


@pytest.mark.parametrize("is_contact", [True, False])
@pytest.mark.parametrize("can_read_contacts", [True, False])
def test_erasure_covers_copies(is_contact: bool, can_read_contacts: bool, home: Home) -> None:
    """The erasure of the contact of `to` ends the copies, also those of a key that may not read contacts."""
    contact_id = home.contact("one@example.org").id if is_contact else None
    body = validation.read(MessageWrite, MAIL | {"cc": ["two@example.org"]})
    transactions.write(
        transactional.queue_message, home.account_id, body, can_read_contacts=can_read_contacts
    )  # fmt: skip
    contact_id = contact_id or home.contact("one@example.org").id
    transactions.write(removal.erase, home.account_id, contact_id, BY_API)
    assert rows("SELECT recipient, status, subject FROM message ORDER BY id") == [
        (None, "skipped", None), ("two@example.org", "skipped", None),
    ]  # fmt: skip
    assert rows("SELECT body FROM message_content") == [(None,), (None,)]
