"""What happened: the stream of events, by kind, person and day."""

from datetime import date, timedelta
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store
from appliance.core import clock, fields
from appliance.core.errors import NotFound
from appliance.core.pagination import Page
from appliance.core.rested import Rested
from appliance.events import kinds, log
from appliance.inbound.conversations import reading
from appliance.storage.models import Contact
from appliance.storage.work import call
from ui import people, view, words
from ui.forms import number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_activity", url_prefix="/activity")
_MONTH_MS = 30 * 86_400_000
_CANDIDATES = 8
_lately: Rested[dict[str, int]] = Rested()
_GROUPS = {
    "contact": "People", "audience": "Lists and segments", "consent": "Consent", "email": "Email", "sms": "SMS",
    "flow": "Flows", "campaign": "Campaigns and settings",
}  # fmt: skip


class Asked(NamedTuple):
    """What the page is asked for: a kind, a person or words for one, two days, and whether tests count."""

    event: str
    contact_id: int | None
    who: str
    since: date | None
    until: date | None
    tests: bool

    def query(self) -> dict[str, Any]:
        """Return the filters in the words of the domain, as an export takes them too."""
        raw: dict[str, Any] = {"event": self.event, "contact_id": self.contact_id}
        raw["created_after"] = self.since.isoformat() if self.since else None
        # The last day is meant to its end
        raw["created_before"] = (self.until + timedelta(days=1)).isoformat() if self.until else None
        raw["test"] = None if self.tests else "false"
        return {name: value for name, value in raw.items() if value}

    def address(self) -> dict[str, Any]:
        """Return what stands in the page's own address."""
        return {
            "event": self.event, "contact_id": self.contact_id, "who": self.who, "from": self.since or "",
            "to": self.until or "", "tests": "yes" if self.tests else "",
        }  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Events, newest first; those of test messages only when asked for."""
    asked = _asked(request)

    def read() -> tuple[Page, Contact | None, list[Contact], dict[str, int]]:
        person, candidates = _person(visit.account_id, asked)
        mine = asked._replace(contact_id=person.id) if person is not None else asked
        if asked.who and person is None:
            return Page([], 0, 1, 50), None, candidates, {}
        raw = {**mine.query(), "page": number(request.args.get("page")), "limit": 50}
        found = load(visit.account_id, fields.read(log.EventQuery, raw, loose=True))
        return found, person, [], _happened(visit.account_id)

    found, person, candidates, counts = await call(read)
    waiting = (await call(reading.page, visit.account_id, reading.IncomingQuery(unseen=True, limit=1))).total
    if person is not None:
        asked = asked._replace(contact_id=person.id, who="")
    return view.page(
        request, "activity/index.html", also=("export",), found=found, asked=asked, person=person,
        candidates=candidates, groups=_groups(counts, asked.event), spans=_spans(asked), waiting=waiting,
        is_filtered=any(asked.address().values()),
    )  # fmt: skip


def _happened(account_id: int) -> dict[str, int]:
    """Count the events of the last month by kind; of a million, that takes longer than all else on the page."""
    return _lately.get(account_id, lambda: log.counts(account_id, clock.now_ms() - _MONTH_MS))


def load(account_id: int, query: log.EventQuery) -> Page:
    """Return events, each with the person it is about as `who` (None if there is none)."""
    found = log.page(account_id, query)
    known = people.by_id({row.contact_id for row in found.rows if row.contact_id})
    for row in found.rows:
        row.who = known.get(row.contact_id)
    return found


def _asked(request: Request) -> Asked:
    contact = request.args.get("contact_id")
    return Asked(
        (request.args.get("event") or "")[:64], number(contact, 0, 2**53) if contact else None,
        (request.args.get("who") or "").strip()[:254], day(request.args.get("from")), day(request.args.get("to")),
        request.args.get("tests") == "yes",
    )  # fmt: skip


def day(text: str | None) -> date | None:
    """Read a day; what is none is no filter."""
    try:
        found = date.fromisoformat(text or "")
    except ValueError:
        return None
    return found if 1970 <= found.year < 9999 else None


def _person(account_id: int, asked: Asked) -> tuple[Contact | None, list[Contact]]:
    """Return the person that is meant, or those who may be."""
    if asked.contact_id is not None:
        try:
            return store.get(account_id, asked.contact_id), []
        except NotFound:
            return None, []
    if not asked.who:
        return None, []
    found = list(store.find(account_id, asked.who, 1, _CANDIDATES).rows)
    exact = [one for one in found if asked.who.lower() in [channel.value.lower() for channel in one.channels]]
    if len(exact) == 1 or len(found) == 1:
        return (exact or found)[0], []
    return None, found


def _groups(counts: dict[str, int], chosen: str) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Return the kinds of events that happened lately, in groups, each with its words and number."""
    grouped: dict[str, list[tuple[str, str, int]]] = {}
    for name in sorted({*counts, *([chosen] if chosen else [])}, key=lambda name: words.event(name)[2]):
        known = kinds.BY_NAME.get(name)
        group = _GROUPS[known.group] if known else "Your own"
        grouped.setdefault(group, []).append((name, words.event(name)[2], counts.get(name, 0)))
    order = [*_GROUPS.values(), "Your own"]
    return sorted(grouped.items(), key=lambda pair: order.index(pair[0]))


def _spans(asked: Asked) -> list[tuple[str, str, bool]]:
    """Return the usual spans of days: words, address, and whether it is the present one."""
    today = words.local(clock.now_ms()).date()
    found = []
    for label, days in (("All time", None), ("Today", 1), ("7 days", 7), ("30 days", 30)):
        since = None if days is None else today - timedelta(days=days - 1)
        here = asked.since == since and asked.until is None
        address = words.query({**asked._replace(since=since, until=None).address()})
        found.append((label, f"/activity{address}", here))
    return found
