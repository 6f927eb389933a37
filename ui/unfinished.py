"""What its author left unfinished in an email, as pages tell it; whoever sends it all the same confirms that."""

from collections.abc import Sequence
from typing import Any

from appliance.content.templates.placeholders import UNFINISHED
from ui import words
from ui.forms import Form

CONFIRM = "Confirm that you want to send it as it is."


def among(findings: Sequence[Any]) -> list[Any]:
    """Return the findings that are about something unfinished."""
    return [one for one in findings if one.code in UNFINISHED]


def is_confirmed(form: Form, found: Sequence[Any]) -> bool:
    """Note at its field that what is unfinished was not confirmed; return whether there is nothing to confirm."""
    if found and form["unfinished"] != "yes":
        form.wrong("unfinished", CONFIRM)
        return False
    return True


def after_test(found: Sequence[Any]) -> str:
    """Say after a test what is still unfinished in the message."""
    if not found:
        return ""
    more = f" And {words.count(len(found) - 1, 'more thing', 'more things')} to finish." if len(found) > 1 else ""
    return f" {words.sentence(found[0].message)}{more}"
