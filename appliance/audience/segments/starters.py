"""Ready-made segments, which most accounts need; each becomes an ordinary segment that can be changed."""

from typing import Any, NamedTuple

from appliance.audience.segments.store import SegmentCreate
from appliance.core import validation
from appliance.core.errors import NotFound
from appliance.core.i18n import gettext, gettext_noop


class Starter(NamedTuple):
    """A ready-made segment; name and description are marked texts, `filters` those of the API."""

    key: str
    name: str
    description: str
    filters: tuple[dict[str, Any], ...]

    def build(self) -> SegmentCreate:
        """Return the request that creates the segment, with its name in the current language."""
        return validation.read(SegmentCreate, {"name": gettext(self.name), "filters": list(self.filters)})


def _filter(name: str, predicate: str, value: Any) -> dict[str, Any]:
    return {"name": name, "predicate": predicate, "value": value}


_SUBSCRIBED = _filter("contact_subscribed_email", "true", True)
STARTERS = (
    Starter(
        "engaged", gettext_noop("Engaged in the last 30 days"),
        gettext_noop("Opened or clicked an email in the last 30 days."),
        (
            _filter("group", "any", [
                _filter("email_last_opened_at", "within_days", 30), _filter("email_last_clicked_at", "within_days", 30),
            ]),
        ),
    ),
    Starter(
        "asleep", gettext_noop("Not engaged for 90 days"),
        gettext_noop("Subscribed to email, added over 90 days ago, and no opens or clicks since then."),
        (
            _SUBSCRIBED, _filter("contact_created_at", "not_within_days", 90),
            _filter("email_last_opened_at", "not_within_days", 90),
            _filter("email_last_clicked_at", "not_within_days", 90),
        ),
    ),
    Starter(
        "new", gettext_noop("New in the last 30 days"), gettext_noop("Added in the last 30 days."),
        (_filter("contact_created_at", "within_days", 30),),
    ),
    Starter(
        "never_opened", gettext_noop("Never opened"),
        gettext_noop("Got at least one email, and never opened or clicked one."),
        (
            _filter("email_sent_count", "gteq", 1), _filter("email_open_count", "lteq", 0),
            _filter("email_click_count", "lteq", 0),
        ),
    ),
)  # fmt: skip


def find_starter(key: str) -> Starter:
    """Return a ready-made segment by its key; raises NotFound."""
    starter = next((starter for starter in STARTERS if starter.key == key), None)
    if starter is None:
        raise NotFound
    return starter
