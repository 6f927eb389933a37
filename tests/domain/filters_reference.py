"""A slow evaluator of filters: says in plain Python what docs/decisions.md#10, says, apart from the SQL."""

from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.domain.filters_people import DAY, ZONE


def without_case(text: str) -> str:
    """Fold letter by letter; a letter outside ASCII stays outside."""
    folded = []
    for char in text:
        simple = next((one for one in (char.casefold(), char.lower()) if len(one) == 1), char)
        folded.append(char if simple.isascii() and not char.isascii() else simple)
    return "".join(folded)


def text_holds(have: str, predicate: str, wanted: Any) -> bool:
    """Compare one text."""
    have = without_case(have)
    if predicate == "in":
        return have in [without_case(one) for one in wanted]
    want = without_case(wanted)
    return {
        "eq": have == want, "cont": want in have, "start": have.startswith(want), "end": have.endswith(want)
    }[predicate]  # fmt: skip


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def ordered(have: Any, predicate: str, wanted: Any) -> bool:
    """Compare by order."""
    if predicate == "between":
        return bool(wanted[0] <= have <= wanted[1])
    return bool({"gt": have > wanted, "gteq": have >= wanted, "lt": have < wanted, "lteq": have <= wanted}[predicate])


def ascii_lower(text: str) -> str:
    """Lower what SQLite's NOCASE lowers: order is by code point else."""
    return "".join(char.lower() if char.isascii() else char for char in text)


def json_holds(have: Any, predicate: str, wanted: Any) -> bool:
    """Compare a JSON value: its own type counts."""
    if predicate in ("present", "true"):
        return have not in (None, "", [], {}) if predicate == "present" else have is True
    if predicate in ("eq", "in"):
        for one in wanted if predicate == "in" else [wanted]:
            alike = isinstance(one, bool) == isinstance(have, bool)
            if isinstance(one, str) and isinstance(have, str) and without_case(one) == without_case(have):
                return True
            if not isinstance(one, str) and not isinstance(have, str | list | dict | None) and alike and one == have:
                return True
        return False
    if predicate in ("cont", "start", "end"):
        if isinstance(have, list) and predicate == "cont":
            return any(isinstance(one, str) and without_case(one) == without_case(wanted) for one in have)
        return isinstance(have, str) and text_holds(have, predicate, wanted)
    text = isinstance(wanted[0] if predicate == "between" else wanted, str)
    if text and isinstance(have, str):
        lowered = [ascii_lower(one) for one in wanted] if predicate == "between" else ascii_lower(wanted)
        return ordered(ascii_lower(have), predicate, lowered)
    return not text and is_number(have) and ordered(have, predicate, wanted)


def edges(text: str) -> tuple[int, int]:
    """Return beginning and end of a day in New York, or of a moment."""
    if len(text) > 10:
        moment = int(datetime.fromisoformat(text).timestamp() * 1000)
        return moment, moment + 1
    day = date.fromisoformat(text)
    found = [datetime.combine(one, time(), ZoneInfo(ZONE)) for one in (day, day + timedelta(days=1))]
    return int(found[0].timestamp() * 1000), int(found[1].timestamp() * 1000)


def time_holds(have: int | None, predicate: str, wanted: Any, now: int) -> bool:
    """Compare a moment."""
    if have is None or predicate == "present":
        return have is not None
    if predicate == "within_days":
        return have >= now - wanted * DAY
    if predicate == "between":
        return edges(wanted[0])[0] <= have < edges(wanted[1])[1]
    if predicate == "eq":
        same = [datetime.fromtimestamp(one / 1000, ZoneInfo(ZONE)).date() for one in (have, edges(wanted)[0])]
        return same[0] == same[1]
    start, end = edges(wanted)
    return {"gt": have >= end, "gteq": have >= start, "lt": have < start, "lteq": have < end}[predicate]


def dig(data: Any, path: str) -> Any:
    """Follow a path into JSON."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


OPPOSITES = {
    "not_eq": "eq", "not_cont": "cont", "not_start": "start", "not_end": "end", "not_in": "in", "blank": "present",
    "false": "true", "not_within_days": "within_days", "not_performed": "performed",
}  # fmt: skip


def holds(one: dict[str, Any], asked: dict[str, Any], now: int) -> bool:
    """Return whether a filter holds for a person."""
    name, predicate, value = asked["name"], asked["predicate"], asked.get("value")
    if name == "group":
        results = [holds(one, inner, now) for inner in value]
        return {"any": any(results), "all": all(results), "none": not any(results)}[predicate]
    negative = predicate in OPPOSITES
    positive = OPPOSITES.get(predicate, predicate)
    if positive in ("present", "true") and value is False:
        negative = not negative
    return positively(one, name, positive, value, now) != negative


def positively(one: dict[str, Any], name: str, predicate: str, value: Any, now: int) -> bool:
    """Return whether the positive form of a filter holds."""
    if name.startswith(("contact_data.", "data.")):
        return json_holds(dig(one["data"], name.partition(".")[2]), predicate, value)
    if name == "event":
        return lived(one, value, now)
    short = name.removeprefix("contact_")
    if short in ("created_at", "last_interacted_at", "email_last_opened_at"):
        return time_holds(one[short], predicate, value, now)
    if short == "unsubscribed_at":
        left = [channel["opt_out_at"] for channel in one["channels"] if not channel["subscribed"]]
        return time_holds(max((at for at in left if at is not None), default=None), predicate, value, now)
    if short == "email_open_count":
        have = one[short]
        return predicate == "present" or (
            have == value if predicate == "eq" else have in value if predicate == "in"
            else ordered(have, predicate, value)
        )  # fmt: skip
    if short in ("list", "list_id"):
        wanted = value if predicate == "in" else [value]
        return bool(one["lists"]) if predicate == "present" else bool(set(wanted) & set(one["lists"]))
    if short in BOOLEANS:
        return BOOLEANS[short](one) == (value if predicate == "eq" else True)
    return any(
        bool(have) if predicate == "present" else text_holds(have, predicate, value)
        for have in texts(one, short) if have is not None
    )  # fmt: skip


def texts(one: dict[str, Any], short: str) -> list[str | None]:
    """Return the texts that a name stands for."""
    if short == "tag":
        found = one["data"].get("tags")
        return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []
    if short == "email":
        return [channel["value"] for channel in one["channels"] if channel["kind"] == "email"]
    if short == "suppression_reason":
        return [channel["suppression"] for channel in one["channels"]]
    if short == "verification_status":
        return [status(one)]
    return [one[{"country": "country_code"}.get(short, short)]]


def status(one: dict[str, Any]) -> str:
    """Return the verification status."""
    channels = sorted(one["channels"], key=lambda channel: channel["kind"] != "email")
    if not channels:
        return "unverified"
    return "suppressed" if channels[0]["suppression"] else "verified" if channels[0]["verified_at"] else "unverified"


BOOLEANS: dict[str, Any] = {
    "subscribed_email": lambda one: any(c["kind"] == "email" and c["subscribed"] for c in one["channels"]),
    "verified": lambda one: status(one) == "verified",
    "suppressed": lambda one: any(c["suppression"] for c in one["channels"]),
    "enriched": lambda one: isinstance(one["data"].get("enrichment"), dict) and bool(one["data"]["enrichment"]),
}


def lived(one: dict[str, Any], value: dict[str, Any], now: int) -> bool:
    """Count the events that are meant."""
    number = 0
    for event in one["events"]:
        machine = event["event"].startswith("email_") and event["data"]["verdict"] == "machine"
        if event["event"] != value["event"] or event["test"] or (machine and not value.get("include_machine")):
            continue
        if "within_days" in value and event["created_at"] < now - value["within_days"] * DAY:
            continue
        number += all(
            json_holds(dig(event["data"], inner["name"].removeprefix("event.")),
                       OPPOSITES.get(inner["predicate"], inner["predicate"]), inner["value"])
            != (inner["predicate"] in OPPOSITES)
            for inner in value.get("where", [])
        )  # fmt: skip
    return value.get("at_least", 1) <= number <= value.get("at_most", number)
