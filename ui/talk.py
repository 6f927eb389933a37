"""What was said with a person by SMS, as the pages show it."""

import secrets
from typing import Any, NamedTuple

from appliance.conversations import reading, writing
from appliance.conversations.reading import Line
from appliance.messages.texts import Shown
from appliance.tables import Channel, Contact
from ui.forms import Form

SHOWN = 30


class Talk(NamedTuple):
    """A conversation, the oldest line first; `older` is the page of what was said before, None if that is all.

    `takes` is what the words in the form take as an SMS.
    """

    contact: Contact
    number: Channel | None
    lines: list[Line]
    total: int
    older: int | None
    form: Form
    takes: Shown


def of(account_id: int, contact: Contact, page: int = 1, form: Form | None = None) -> Talk | None:
    """Return the conversation with a person, or None if there is neither a number nor anything that was said."""
    found = reading.conversation(account_id, contact.id, page, SHOWN)
    number = writing.number_of(contact)
    if number is None and not found.total:
        return None
    # A form is sent once, however often its button is pressed
    form = form or Form({"once": secrets.token_hex(8)})
    older = page + 1 if page < found.pages else None
    takes = writing.weigh(account_id, form["text"])
    return Talk(contact, number, list(reversed(found.rows)), found.total, older, form, takes)


def is_ours(line: Line) -> bool:
    """Return whether a line is a message of ours."""
    return line.message is not None


def words(line: Line) -> str:
    """Return what a line says."""
    return line.body or "These words are not kept any more."


def unread(line: Line) -> Any:
    """Return what came in if it may be a refusal that nobody has looked at yet, else None."""
    heard = line.incoming
    return heard if heard is not None and heard.kind == "refusal" and heard.seen_at is None else None
