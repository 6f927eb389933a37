"""A slow reference evaluator of filters: docs/decisions.md#10 in plain Python, independent of the SQL."""

from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.domain.filters_people import DAY, ZONE


def without_case(text: str) -> str:
    """Fold the case of each letter; a letter outside ASCII is never folded into ASCII."""
    folded = []
    for char in text:
        simple = next((candidate for candidate in (char.casefold(), char.lower()) if len(candidate) == 1), char)
        folded.append(char if simple.isascii() and not char.isascii() else simple)
    return "".join(folded)


def text_matches(actual: str, predicate: str, expected: Any) -> bool:
    """Return whether a text matches a positive text predicate, ignoring case."""
    actual = without_case(actual)
    if predicate == "in":
        return actual in [without_case(item) for item in expected]
    folded = without_case(expected)
    return {
        "eq": actual == folded,
        "cont": folded in actual,
        "start": actual.startswith(folded),
        "end": actual.endswith(folded),
    }[predicate]


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def ordered(actual: Any, predicate: str, expected: Any) -> bool:
    """Return whether a value satisfies a comparison (`between`, `gt`, `gteq`, `lt`, `lteq`)."""
    if predicate == "between":
        return bool(expected[0] <= actual <= expected[1])
    return bool(
        {"gt": actual > expected, "gteq": actual >= expected, "lt": actual < expected, "lteq": actual <= expected}[
            predicate
        ]
    )


def ascii_lower(text: str) -> str:
    """Lowercase ASCII letters only, as SQLite's NOCASE does before it compares code points."""
    return "".join(char.lower() if char.isascii() else char for char in text)


def json_matches(actual: Any, predicate: str, expected: Any) -> bool:
    """Return whether a JSON value matches a positive predicate; values of different JSON types never match."""
    if predicate in ("present", "true"):
        return actual not in (None, "", [], {}) if predicate == "present" else actual is True
    if predicate in ("eq", "in"):
        for item in expected if predicate == "in" else [expected]:
            alike = isinstance(item, bool) == isinstance(actual, bool)
            if isinstance(item, str) and isinstance(actual, str) and without_case(item) == without_case(actual):
                return True
            if (
                not isinstance(item, str)
                and not isinstance(actual, str | list | dict | None)
                and alike
                and item == actual
            ):
                return True
        return False
    if predicate in ("cont", "start", "end"):
        if isinstance(actual, list) and predicate == "cont":
            return any(isinstance(item, str) and without_case(item) == without_case(expected) for item in actual)
        return isinstance(actual, str) and text_matches(actual, predicate, expected)
    text = isinstance(expected[0] if predicate == "between" else expected, str)
    if text and isinstance(actual, str):
        lowered = [ascii_lower(item) for item in expected] if predicate == "between" else ascii_lower(expected)
        return ordered(ascii_lower(actual), predicate, lowered)
    return not text and is_number(actual) and ordered(actual, predicate, expected)


def time_range(text: str) -> tuple[int, int]:
    """Return the start and end, in milliseconds, of a day in New York or of an exact time."""
    if len(text) > 10:
        moment = int(datetime.fromisoformat(text).timestamp() * 1000)
        return moment, moment + 1
    day = date.fromisoformat(text)
    midnights = [datetime.combine(day_start, time(), ZoneInfo(ZONE)) for day_start in (day, day + timedelta(days=1))]
    return int(midnights[0].timestamp() * 1000), int(midnights[1].timestamp() * 1000)


def time_matches(actual: int | None, predicate: str, expected: Any, now: int) -> bool:
    """Return whether a time in milliseconds matches a positive predicate; days are days in ZONE."""
    if actual is None or predicate == "present":
        return actual is not None
    if predicate == "within_days":
        return actual >= now - expected * DAY
    if predicate == "between":
        return time_range(expected[0])[0] <= actual < time_range(expected[1])[1]
    if predicate == "eq":
        same = [
            datetime.fromtimestamp(time_ms / 1000, ZoneInfo(ZONE)).date()
            for time_ms in (actual, time_range(expected)[0])
        ]
        return same[0] == same[1]
    start, end = time_range(expected)
    return {"gt": actual >= end, "gteq": actual >= start, "lt": actual < start, "lteq": actual < end}[predicate]


def get_path(data: Any, path: str) -> Any:
    """Return the JSON value at a dotted path, or None."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


OPPOSITES = {
    "not_eq": "eq", "not_cont": "cont", "not_start": "start", "not_end": "end", "not_in": "in", "blank": "present",
    "false": "true", "not_within_days": "within_days", "not_performed": "performed",
}  # fmt: skip


def matches(contact: dict[str, Any], condition: dict[str, Any], now: int) -> bool:
    """Return whether a contact matches a filter or a group of filters."""
    name, predicate, value = condition["name"], condition["predicate"], condition.get("value")
    if name == "group":
        results = [matches(contact, inner, now) for inner in value]
        return {"any": any(results), "all": all(results), "none": not any(results)}[predicate]
    negative = predicate in OPPOSITES
    positive = OPPOSITES.get(predicate, predicate)
    if positive in ("present", "true") and value is False:
        negative = not negative
    return matches_positive_form(contact, name, positive, value, now) != negative


def matches_positive_form(contact: dict[str, Any], name: str, predicate: str, value: Any, now: int) -> bool:
    """Return whether a contact matches the positive form of a predicate."""
    if name.startswith(("contact_data.", "data.")):
        return json_matches(get_path(contact["data"], name.partition(".")[2]), predicate, value)
    if name == "event":
        return matches_event_filter(contact, value, now)
    short = name.removeprefix("contact_")
    if short in ("created_at", "last_interacted_at", "email_last_opened_at"):
        return time_matches(contact[short], predicate, value, now)
    if short == "unsubscribed_at":
        opt_out_times = [channel["opt_out_at"] for channel in contact["channels"] if not channel["subscribed"]]
        return time_matches(max((at for at in opt_out_times if at is not None), default=None), predicate, value, now)
    if short == "email_open_count":
        actual = contact[short]
        return predicate == "present" or (
            actual == value if predicate == "eq" else actual in value if predicate == "in"
            else ordered(actual, predicate, value)
        )  # fmt: skip
    if short in ("list", "list_id"):
        expected = value if predicate == "in" else [value]
        return bool(contact["lists"]) if predicate == "present" else bool(set(expected) & set(contact["lists"]))
    if short in BOOLEANS:
        return BOOLEANS[short](contact) == (value if predicate == "eq" else True)
    return any(
        bool(actual) if predicate == "present" else text_matches(actual, predicate, value)
        for actual in texts(contact, short) if actual is not None
    )  # fmt: skip


def texts(contact: dict[str, Any], short: str) -> list[str | None]:
    """Return the texts of a contact that a filter name refers to."""
    if short == "tag":
        tags = contact["data"].get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    if short == "email":
        return [channel["value"] for channel in contact["channels"] if channel["kind"] == "email"]
    if short == "suppression_reason":
        return [channel["suppression"] for channel in contact["channels"]]
    if short == "verification_status":
        return [status(contact)]
    if short == "language":
        subtags = contact["language"].split("-") if contact["language"] else []
        return ["-".join(subtags[:count]) for count in range(1, len(subtags) + 1)]
    return [contact[{"country": "country_code"}.get(short, short)]]


def status(contact: dict[str, Any]) -> str:
    """Return a contact's verification status, which is that of the first email channel, else of a phone."""
    channels = sorted(contact["channels"], key=lambda channel: channel["kind"] != "email")
    if not channels:
        return "unverified"
    return "suppressed" if channels[0]["suppression"] else "verified" if channels[0]["verified_at"] else "unverified"


BOOLEANS: dict[str, Any] = {
    "subscribed_email": lambda contact: any(c["kind"] == "email" and c["subscribed"] for c in contact["channels"]),
    "verified": lambda contact: status(contact) == "verified",
    "suppressed": lambda contact: any(c["suppression"] for c in contact["channels"]),
    "enriched": lambda contact: (
        isinstance(contact["data"].get("enrichment"), dict) and bool(contact["data"]["enrichment"])
    ),
}


def matches_event_filter(contact: dict[str, Any], value: dict[str, Any], now: int) -> bool:
    """Return whether the number of a contact's matching events is within the filter's limits."""
    number = 0
    for event in contact["events"]:
        machine = event["event"].startswith("email_") and event["data"]["verdict"] == "machine"
        if event["event"] != value["event"] or event["test"] or (machine and not value.get("include_machine")):
            continue
        if "within_days" in value and event["created_at"] < now - value["within_days"] * DAY:
            continue
        number += all(
            json_matches(get_path(event["data"], inner["name"].removeprefix("event.")),
                       OPPOSITES.get(inner["predicate"], inner["predicate"]), inner["value"])
            != (inner["predicate"] in OPPOSITES)
            for inner in value.get("where", [])
        )  # fmt: skip
    return value.get("at_least", 1) <= number <= value.get("at_most", number)
