"""What flows wait to hear: whether a message is a keyword of one, and the event by which they hear it."""

import logging
from typing import Any, NamedTuple

from appliance import clock
from appliance.db.dialect.documents import each_of, length_of, type_of
from appliance.db.open import one, rows, scalar
from appliance.events import log as events
from appliance.events.log import Happened
from appliance.sms import keywords

_WORDS = (
    f"SELECT t.event, w.value FROM flow f JOIN trigger t ON t.flow_id = f.id, {each_of('t.data', 'keywords')} w "
    "WHERE f.account_id = ? AND f.status = 'active' AND f.deleted_at IS NULL AND t.event IN ('message', 'keyword') "
    f"AND {type_of('t.data', 'keywords')} = 'array' AND w.type = 'text'"
)
# A live flow that is started by keywords and names none: any word that stands alone is one
_ANY = (
    "SELECT 1 FROM flow f JOIN trigger t ON t.flow_id = f.id WHERE f.account_id = ? AND f.status = 'active' "
    f"AND f.deleted_at IS NULL AND t.event = 'keyword' AND coalesce({length_of('t.data', 'keywords')}, 0) = 0"
)
# What a number answered to messages of flows
_ANSWERED = (
    "SELECT count(*) FROM (SELECT 1 FROM incoming i JOIN message m ON m.id = i.answered_id WHERE i.account_id = ? "
    "AND i.sender = ? AND i.created_at > ? AND m.source_type = 'flow' LIMIT ?)"
)
_DAY_MS = 24 * 3_600_000
_MAX_IN_A_DAY = 20

log = logging.getLogger("campanero.sms")


class Awaited(NamedTuple):
    """What a message means to flows: the events that tell of it, each with the keyword it is or begins with."""

    events: tuple[tuple[str, str | None], ...]

    @property
    def is_keyword(self) -> bool:
        """Return whether a flow waits for it as a keyword."""
        return self.events[0][0] == "keyword"

    @property
    def word(self) -> str | None:
        """The keyword by which it is known, if it is one."""
        return self.events[0][1]


def awaited(account_id: int, body: str) -> Awaited:
    """Return what a message means to the flows of an account.

    It is a `keyword` where a live flow is started by keywords and names this one, or names none and this is a word
    alone; else a `message`; and both where flows of both kinds name it, so that each of them is started.
    """
    said = keywords.plain(body)
    first = said.partition(" ")[0]
    found: dict[str, str | None] = {}
    for event, word in rows(_WORDS, (account_id,)):
        known = keywords.plain(word)
        # The whole message says more than the word it begins with
        if known and known in (said, first) and (event not in found or known == said):
            found[event] = word.strip()
    if "keyword" not in found and said and first == said and one(_ANY, (account_id,)) is not None:
        found["keyword"] = said.upper()
    return Awaited(tuple(sorted(found.items())) or (("message", None),))


def is_machine(account_id: int, sender: str) -> bool:
    """Return whether a number has answered flows so often within a day that it must be a machine.

    What it writes starts no more flows, or the two would answer each other for ever, each time at a price.
    """
    since = clock.now_ms() - _DAY_MS
    count = int(scalar(_ANSWERED, (account_id, sender, since, _MAX_IN_A_DAY + 1)))
    if count == _MAX_IN_A_DAY:
        log.warning("a number answers the SMS of flows like a machine: for a day it starts none any more")
    return count >= _MAX_IN_A_DAY


def tell(
    account_id: int, contact_id: int | None, number: int, about: dict[str, Any], heard: Awaited, test: bool,
    quiet: bool = False,
) -> None:  # fmt: skip
    """Record the events of a message that came in, by which flows are started; `quiet`, by which none is."""
    events.record_many(
        [
            Happened(
                account_id, event, contact_id, {**about, "keyword": word}, resource_uid=f"incoming:{number}",
                test=test, quiet=quiet,
            )
            for event, word in heard.events
        ]
    )  # fmt: skip
