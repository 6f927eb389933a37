"""Values of filters as text in a form, and back: numbers, days, several lines, typed values of custom data."""

import json
import re
from typing import Any

from appliance.audience.filters import fields
from appliance.audience.filters.predicates import BY_TYPE
from appliance.audience.filters.scope import Place

# Several values, one on a line or one in a box each
MANY = ("texts", "values", "ids")
# From … to …
_PAIRS = ("numbers", "times", "values")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
DAY = re.compile(r"\d{4}-\d\d-\d\d")
EXACT = "exact"
_OFTEN = {"least": "at least", "most": "at most", "exactly": "exactly", "between": "between"}


def takes(type_: str, predicate: str) -> str:
    """Return what the value of a predicate is: a text, numbers, days …; nothing for one that the type has not."""
    if type_ == "history":
        return "event" if predicate in ("performed", "not_performed") else ""
    if type_ == "group":
        return "filters" if predicate in ("any", "all", "none") else ""
    found = BY_TYPE.get(type_, {}).get(predicate)
    if found is None:
        return ""
    # Two words for two shapes: an edge on either side, or as many as one likes
    if found[0].key == "between":
        return "pair"
    return "many numbers" if found[0].takes == "numbers" else found[0].takes


def is_complete(kind: str, values: list[str]) -> bool:
    """Return whether the values that a predicate needs are there."""
    if kind in ("flag", ""):
        return kind == "flag"
    if kind == "pair":
        return len([one for one in values if one.strip()]) == 2
    return any(one.strip() for one in values)


def tidy(row: Any) -> list[str]:
    """Return the posted values of a row: where several may stand, one for each line."""
    if row["kind"] == EXACT:
        return [line for text in row.values for line in text.split("\n") if line.strip()]
    if row["as"] in (*MANY, "many numbers"):
        lines = [line.strip() for text in row.values for line in text.split("\n")]
        return list(dict.fromkeys(line for line in lines if line))
    return [text.strip() for text in row.values]


def carried(before: str, now: str, values: list[str]) -> list[str]:
    """Return what of the values still makes sense under another predicate of the same field."""
    texts, ids = ("text", "texts", "value", "values"), ("id", "ids")
    numbers, times = ("number", "many numbers", "pair"), ("time", "pair")
    for alike in (texts, ids, numbers, times, ("value", "values", "pair")):
        if before in alike and now in alike:
            return values
    return []


def value(row: Any) -> Any:
    """Return the value of a filter from its texts; what cannot be read stays a text, so that the rules say why."""
    kind, texts = row.takes, row.values
    first = texts[0] if texts else ""
    if kind == "flag":
        return True
    if row["kind"] == EXACT:
        read = [_exact(one) for one in texts]
        return read if kind in (*MANY, "pair", "many numbers") else next(iter(read), "")
    if kind in ("number", "days"):
        return _number(first)
    if kind == "many numbers" or (kind == "pair" and row.type == "number"):
        return [_number(one) for one in texts]
    if kind == "id":
        return _id(first)
    if kind == "ids":
        return [_id(one) for one in texts]
    if kind == "boolean":
        return {"true": True, "false": False}.get(first, first)
    if kind == "value":
        return _typed(first, row["kind"])
    if row.type == "json" and kind in ("values", "pair"):
        return [_typed(one, row["kind"]) for one in texts]
    return texts if kind in ("texts", "pair") else first


def put(row: Any, raw: Any) -> None:
    """Write a stored value into a row."""
    field = fields.find(row.name, Place.SPLIT, "x")
    known = BY_TYPE.get(field.type, {}) if field else {}
    if row.takes == "flag":
        test, negative = known[row.predicate]
        if raw is False and test.opposite:
            row.predicate = test.key if negative else test.opposite
        return
    items = raw if isinstance(raw, list) else [raw]
    if field is not None and field.type == "json":
        row.more["kind"] = _kind(items)
    elif any(isinstance(one, str) and (one != one.strip() or "\n" in one or "\r" in one) for one in items):
        row.more["kind"] = EXACT
    row.values = [_text(one, row["kind"]) for one in items]


def _kind(items: list[Any]) -> str:
    """Return of what type values of custom data are; several types, or texts with odd spaces, are written exactly."""
    if all(isinstance(one, bool) for one in items):
        return "boolean"
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in items):
        return "number"
    if all(isinstance(one, str) and one == one.strip() and "\n" not in one and "\r" not in one for one in items):
        return "date" if items and all(DAY.fullmatch(one) for one in items) else "text"
    return EXACT


def _text(one: Any, kind: str) -> str:
    if kind == EXACT or one is None:
        return json.dumps(one, ensure_ascii=False)
    if isinstance(one, bool):
        return "true" if one else "false"
    return repr(one) if isinstance(one, float) else str(one)


def _exact(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, str | int | float | bool) else text


def _typed(text: str, kind: str) -> Any:
    if kind == "number":
        return _number(text)
    if kind == "boolean":
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    return text


def _number(text: str) -> Any:
    plain = text.replace("\u202f", "").replace(" ", "")
    if _INTEGER.fullmatch(plain):
        return int(plain)
    try:
        return float(plain)
    except ValueError:
        return text


def _id(text: str) -> Any:
    return int(text) if text.isdecimal() and len(text) < 19 else text


def history(row: Any) -> dict[str, Any]:
    """Return how often and when something must have happened, as a filter says it."""
    often, times = row["often"] or "least", _number(row["times"] or "1")
    found: dict[str, Any] = {"at_least": times}
    if often == "most":
        found = {"at_least": 0, "at_most": times}
    elif often == "exactly":
        found["at_most"] = times
    elif often == "between":
        found["at_most"] = _number(row["times_to"] or row["times"] or "1")
    if row["when"] == "days":
        found["within_days"] = _number(row["days"] or "30")
    elif row["when"] == "both":
        found |= {"within_days": _number(row["days"] or "30"), "since": row["since"]}
    elif row["when"] == "since":
        found["since"] = row["since"]
    elif row["when"] == "start":
        found["since"] = "flow_start"
    return found | ({"include_machine": True} if row["machine"] == "yes" else {})


def of_history(raw: dict[str, Any]) -> dict[str, str]:
    """Return how often and when, as the fields of a row."""
    least, most = raw.get("at_least"), raw.get("at_most")
    least = 1 if least is None else least
    found = {"often": "least", "times": str(least)}
    if most is not None:
        found |= {"often": "exactly" if most == least else "most" if least == 0 else "between",
                  "times": str(most if least == 0 else least), "times_to": str(most)}  # fmt: skip
    within, since = raw.get("within_days"), raw.get("since")
    if since is not None:
        found |= {"when": "start" if since == "flow_start" else "since", "since": str(since)}
    if within is not None:
        found |= {"when": "days" if since is None else "both", "days": str(within)}
    return found | ({"machine": "yes"} if raw.get("include_machine") else {})
