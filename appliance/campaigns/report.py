"""What became of a campaign, as numbers a person can follow to the rows.

The page asks for them every other second: nothing here reads more rows than it shows, however large the campaign.
"""

import hashlib
import re
import threading
import time
from collections import Counter, deque
from typing import Any, NamedTuple

from appliance.sending.delivery import classes
from appliance.storage.models import Campaign, Message
from appliance.storage.open import rows, scalar

# What servers say, without what they say to one recipient alone: so that a thousand answers are one problem.

# Addresses, numbers, the names servers give a message in their queue, and moments; `…` stands for each
_OWN_TO_ONE = re.compile(
    r"<?(?<![^\s<>@:;,()\[\]\"'])[^\s<>@:;,()\[\]\"']+@[\w.-]+\w>?|"  # an address
    r"(?<!\w)\+[1-9]\d{6,14}\b|"  # a phone number
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|"  # a moment
    r"(?<![\w./=])(?=[\w.-]*\d)(?=[\w.-]*[a-z])(?![\w.-]*\.[a-z]{2,}\b)[a-zA-Z0-9][\w.-]{11,}(?![\w./])|"
    r"\b(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{9,}\b"
)
_SPACES = re.compile(r"\s+")


def group_words(text: str | None) -> str | None:
    """Return a server's words as they are the same for everybody."""
    return None if text is None else _SPACES.sub(" ", _OWN_TO_ONE.sub("…", text)).strip()


_ENDED_BADLY = ("failed", "bounced", "skipped", "uncertain", "complained")
# What waits for another attempt is due later than what was never tried; with the channel, the index leads there
_AGAIN = (
    "m.campaign_id = ? AND m.channel = ? AND m.run_id IS NULL AND m.status IN ('queued', 'held') AND m.due_at > ? "
    "AND m.attempts > 0"
)
_BADLY = f"({','.join(repr(one) for one in _ENDED_BADLY)})"
_WHY = "m.status, coalesce(m.skip_reason, m.error_code), m.error_text, r.kind"
_JUDGED = "LEFT JOIN returned r ON r.message_id = m.id"
_MAX_SHOWN, _MAX_KEPT = 200, 50
_RATE_SECONDS, _KNOWN_SECONDS = 60.0, 20.0


class _Group(NamedTuple):
    """Messages that ended for the same reason; `kind` is the class of the refusal."""

    status: str
    reason: str | None
    text: str | None
    kind: str | None
    people: int

    def alike(self) -> "_Group":
        """Return it without what was said to one recipient alone."""
        return self._replace(text=group_words(self.text), people=0)

    def key(self) -> str:
        """Return a short name that leads back to the same messages."""
        return hashlib.sha256(repr(self[:4]).encode()).hexdigest()[:16]


class _Memory:
    """What was asked lately: the problems as they were at certain sums, and how many had been sent when."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.problems: dict[int, tuple[Any, list[_Group]]] = {}
        self.sent: dict[int, deque[tuple[float, int]]] = {}


_memory = _Memory()


def problems(campaign: Campaign) -> list[dict[str, Any]]:
    """Group what did not go out by status, reason, the server's words and what they mean; the most frequent first."""
    both = _badly(campaign) + _grouped(_AGAIN, _waiting(campaign))
    both.sort(key=lambda one: (-one.people, one.status, one.reason or "", one.text or ""))
    return [_told(one) for one in both[:_MAX_SHOWN]]


def troubled(campaign: Campaign, key: str) -> list[int]:
    """Return the messages of one of the groups of `problems`."""
    condition = f"m.campaign_id = ? AND m.status IN {_BADLY} OR {_AGAIN}"
    values = (campaign.id, *_waiting(campaign))
    found = rows(f"SELECT m.id, {_WHY} FROM message m {_JUDGED} WHERE {condition}", values)
    return [row[0] for row in found if _Group(row[1], row[2], row[3], row[4], 0).alike().key() == key]


def _told(one: _Group) -> dict[str, Any]:
    meant = classes.BY_NAME.get(one.kind or "")
    return {
        "status": one.status, "reason": one.reason, "text": one.text, "count": one.people, "class": one.kind,
        "meaning": meant.words if meant else None, "help": (meant.help or None) if meant else None, "key": one.key(),
    }  # fmt: skip


def skips(campaign: Campaign) -> dict[str, int]:
    """Count those who were skipped by reason, the most frequent first."""
    counted: Counter[str] = Counter()
    for one in _badly(campaign):
        if one.status == "skipped":
            counted[one.reason or ""] += one.people
    return dict(counted.most_common())


def _badly(campaign: Campaign) -> list[_Group]:
    """Group what ended badly; read anew only if there is more or less of it than when it was read last."""
    sums = (campaign.updated_at, *(campaign.stats[name] for name in _ENDED_BADLY))
    with _memory.lock:
        known, found = _memory.problems.get(campaign.id, (None, []))
    if known != sums:
        found = _grouped(f"m.campaign_id = ? AND m.status IN {_BADLY}", (campaign.id,))
        with _memory.lock:
            if len(_memory.problems) >= _MAX_KEPT:
                _memory.problems.clear()
            _memory.problems[campaign.id] = sums, found
    return found


def _grouped(condition: str, values: tuple[Any, ...]) -> list[_Group]:
    """Group messages; what servers say to one alone does not part them."""
    counted: Counter[_Group] = Counter()
    sql = f"SELECT {_WHY}, count(*) FROM message m {_JUDGED} WHERE {condition} GROUP BY 1, 2, 3, 4"
    for row in rows(sql, values):
        counted[_Group(row[0], row[1], row[2], row[3], 0).alike()] += row[4]
    return [one._replace(people=count) for one, count in counted.most_common(_MAX_SHOWN)]


def _waiting(campaign: Campaign) -> tuple[int, str, int]:
    return campaign.id, campaign.channel, campaign.hold_until or 0


def in_hand(campaign_id: int) -> int:
    """Count the messages that are being handed over at this moment."""
    return int(scalar("SELECT count(*) FROM message WHERE campaign_id = ? AND status = 'sending'", (campaign_id,)))


def doubts(campaign_id: int, most: int = 5) -> list[Message]:
    """Return some of the messages of which nobody knows whether they arrived, the first ones first."""
    asked = Message.select().where(Message.campaign == campaign_id, Message.status == "uncertain")
    return list(asked.order_by(Message.id).limit(most))


def progress(campaign: Campaign) -> dict[str, Any]:
    """Return how many wait for another attempt, the rate while it was looked at lately, and the time left if known."""
    seconds, sent = _lately(campaign.id, campaign.sent_count)
    rate = sent / seconds if seconds >= 1 else 0.0
    known = seconds >= _KNOWN_SECONDS and rate > 0 and campaign.phase == "sending"
    return {
        "retrying": int(scalar(f"SELECT count(*) FROM message m WHERE {_AGAIN}", _waiting(campaign))),
        "per_second": rate,
        "seconds_left": campaign.stats["pending"] / rate if known else None,
    }


def _lately(campaign_id: int, sent: int) -> tuple[float, int]:
    """Note how many were sent by now; answers over how many seconds that was noted lately, and how many more it is."""
    now = time.monotonic()
    with _memory.lock:
        if campaign_id not in _memory.sent and len(_memory.sent) >= _MAX_KEPT:
            _memory.sent.clear()
        noted = _memory.sent.setdefault(campaign_id, deque())
        noted.append((now, sent))
        while noted[0][0] < now - _RATE_SECONDS:
            noted.popleft()
        return now - noted[0][0], sent - noted[0][1]
