"""Forms of a flow: what a step and a trigger take, as a browser shows it and as the middle reads it."""

import json
import re
from typing import Any

from appliance.core import errors
from appliance.events import kinds
from appliance.flows import spec
from appliance.flows.steps import BY_TYPE
from appliance.flows.triggers import Start
from ui.filters import Rows
from ui.forms import Form, number, sentence

UNITS = (("86400", "days"), ("3600", "hours"), ("60", "minutes"), ("604800", "weeks"), ("1", "seconds"))
_SHOWN_UNITS = (604_800, 86_400, 3_600, 60, 1)
OTHER = "other"
# What a person may start a flow by, as they say it; the rest of what the service records starts nothing sensible
STARTS = (
    ("People", (("list_add", "Joins a list"), ("contact_add", "Is added as a contact"), ("tag_add", "Gets a tag"),
                ("segment_enter", "Comes into a segment"), ("segment_exit", "Leaves a segment"),
                ("list_remove", "Leaves a list"), ("form_submitted", "Fills in a form"),
                ("double_opt_in_confirmed", "Confirms their address"), ("date_reached", "A date comes round"))),
    ("Messages", (("email_opened", "Opens an email"), ("email_clicked", "Clicks a link in an email"),
                  ("email_replied", "Replies to an email"), ("message", "Writes an SMS"),
                  ("keyword", "Sends a keyword"))),
    ("Shop", (("order_paid", "Pays an order"), ("order_shipped", "Gets an order sent"),
              ("cart_abandoned", "Leaves a cart behind"), ("browse_abandoned", "Looks and leaves"),
              ("checkout", "Goes to the checkout"), ("cart_add", "Puts something into the cart"),
              ("product_view", "Looks at a product"))),
)  # fmt: skip
LABELS = {name: label for _, group in STARTS for name, label in group}
_KNOWN = {name for _, group in STARTS for name, _ in group} | {"manual"}
LISTS, SEGMENTS = ("list_add", "list_remove"), ("segment_enter", "segment_exit")
_PAIR = re.compile(r"\s*([^:=]{1,100}?)\s*[:=]\s*(.*)")


class StepForm(Form):
    """A form with the rows of a filter in it, once those were read or asked for, and what is said beside them."""

    rows: Rows | None = None
    where: Form | None = None


def shown(step: dict[str, Any]) -> StepForm:
    """Fill the form of a step with what it says."""
    said = {**step, **(step.get("content") or {})}
    values: dict[str, str] = {}
    for field in BY_TYPE[step["type"]].fields:
        value = said.get(field.name)
        if field.type == "duration":
            unit = next(unit for unit in _SHOWN_UNITS if not int(value or 0) % unit)
            unit = 86_400 if not value else unit
            values |= {field.name: str(int(value or 0) // unit), f"{field.name}_unit": str(unit)}
        elif field.type == "boolean":
            values[field.name] = "yes" if value else ""
        elif field.type == "object":
            values[field.name] = _lines(value or {})
        elif field.type not in ("design", "filters"):
            values[field.name] = "" if value is None else str(value)
    return StepForm(values)


def read(form: Form, kind: str) -> dict[str, Any]:
    """Return what a form says of a step of a kind, beside filters; raises Invalid for what cannot be read."""
    raw: dict[str, Any] = {}
    for field in BY_TYPE[kind].fields:
        text = form[field.name]
        if field.type == "duration":
            raw[field.name] = _seconds(field.name, text, form[f"{field.name}_unit"])
        elif field.type == "boolean":
            raw[field.name] = True if text == "yes" else None
        elif field.type == "object":
            raw[field.name] = lines(text, field.name) or None
        elif field.type == "list":
            raw[field.name] = int(text) if text.isdecimal() and len(text) < 19 else None
        elif field.type == "event":
            raw[field.name] = event_name(text)
        elif field.type not in ("design", "filters") and field.name in form.values:
            raw[field.name] = text or None
    return raw


def event_name(text: str) -> str | None:
    """Return the name of an event as people write it: `Became reader` is `became_reader`."""
    return re.sub(r"[\s-]+", "_", text.strip().lower()) or None


def _seconds(name: str, text: str, unit: str) -> int:
    try:
        found = round(float(text.replace(",", ".")) * int(unit or 86_400))
    except (ValueError, OverflowError):
        raise errors.Invalid({name: ["write a number"]}) from None
    return found


def _lines(values: dict[str, Any]) -> str:
    return "\n".join(f"{key}: {_text(value)}" for key, value in values.items())


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and not _is_read_otherwise(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_read_otherwise(text: str) -> bool:
    return bool(_value(text) != text)


def _value(text: str) -> Any:
    if not text:
        return None
    if text[0] in '-0123456789"{[' or text in ("true", "false", "null"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def lines(text: str, name: str) -> dict[str, Any]:
    """Read lines of `name: value`; a value that looks like a number, yes or no in JSON is one."""
    found: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            raise errors.Invalid({name: [f"write each line as name: value, also “{line.strip()[:40]}”"]})
        found[pair[1]] = _value(pair[2].strip())
    return found


def start_shown(start: Start, goal: str | None) -> StepForm:
    """Fill the form of a trigger."""
    data, often = start.data, start.data.get("frequency")
    gap = int(often["min_gap_seconds"]) if isinstance(often, dict) else 0
    known = start.event in _KNOWN
    return StepForm({
        "event": start.event if known else OTHER, "event_name": "" if known else start.event,
        "contact_list_id": str(start.contact_list_id or ""), "segment_id": str(start.segment_id or ""),
        "often": "gap" if gap else str(often or ""), "gap": str(-(-gap // 86_400)) if gap else "30",
        "tag": str(data.get("tag") or ""), "keywords": ", ".join(data.get("keywords") or []),
        "path": str(data.get("path") or ""), "yearly": "yes" if data.get("yearly") else "",
        "offset": str(abs(int(data.get("offset_days") or 0))),
        "side": "before" if int(data.get("offset_days") or 0) < 0 else "after",
        "at": str(data.get("at") or "09:00"), "goal": goal or "",
    })  # fmt: skip


def start_read(form: Form, before: Start) -> dict[str, Any]:
    """Return what a form says of a trigger; keys that its event does not know are dropped."""
    event = form["event"]
    if event == OTHER:
        event = event_name(form["event_name"]) or ""
        if not event:
            raise errors.Invalid({"event_name": ["write the name of your event"]})
        words = kinds.fault(event)
        if words and event not in kinds.RESERVED:
            raise errors.Invalid({"event_name": ["use letters, digits and _, a letter first"]})
    keep = {key: value for key, value in before.data.items() if key not in _OURS}
    data: dict[str, Any] = dict(keep)
    if event == "date_reached":
        offset = number(form["offset"], 0) if form["offset"] not in ("", "0") else 0
        data |= {
            "path": _path(form["path"]), "yearly": form["yearly"] == "yes", "at": form["at"] or "09:00",
            "offset_days": -offset if form["side"] == "before" else offset,
        }  # fmt: skip
    elif form["often"] == "gap":
        data["frequency"] = {"min_gap_seconds": number(form["gap"], 30) * 86_400}
    elif form["often"]:
        data["frequency"] = form["often"]
    if event in ("message", "keyword") and form["keywords"]:
        data["keywords"] = [word.strip() for word in form["keywords"].split(",") if word.strip()]
    if event in ("tag_add", "tag_remove") and form["tag"]:
        data["tag"] = form["tag"]
    return {
        "event": event or None, "data": data,
        "contact_list_id": next(iter(form.ids("contact_list_id")), None),
        "segment_id": next(iter(form.ids("segment_id")), None),
    }  # fmt: skip


_OURS = ("path", "yearly", "offset_days", "at", "frequency", "keywords", "tag")


def _path(text: str) -> str | None:
    """Return where a date stands; a bare name is one of the contact's data."""
    text = text.strip()
    if not text:
        return None
    return text if text.startswith(("data.", "contact")) else f"data.{text}"


def take(form: StepForm, refused: errors.Invalid) -> StepForm:
    """Show faults at the fields they are about, whatever path they have."""
    for path, messages in refused.fields.items():
        last = re.sub(r"\[\d+\]", "", path).split(".")
        name = next((one for one in reversed(last) if one in form.values), None)
        name = {"event": "event", "offset_days": "offset", "frequency": "often"}.get(last[-1], name)
        form.wrong(name or "base", _said(messages[0], name, path))
    if not refused.fields:
        form.wrong("base", sentence(refused.message))
    return form


def _said(message: str, name: str | None, path: str) -> str:
    if message == "is reserved":
        return "This name is ours. Choose another."
    return sentence(message, "" if name is not None or path.startswith("base") else path.rpartition(".")[2])


def starting_events() -> list[str]:
    """Return the names of events of clients that are offered where a name is typed."""
    return [one["name"] for one in spec.spec()["events"] if one["group"] == "client"]
