"""The form of a campaign's A/B test or holdout group: its fields, its parts for edit conflicts, and reading it.

The fields of a variant end with the variant's id (`subject_12`), so that a form that was opened before a colleague
added or removed a variant still changes the right one.
"""

from collections.abc import Iterable
from typing import Any

from appliance.campaigns import variants
from appliance.campaigns.variants import Setup
from appliance.content.templates.revisions import to_document
from appliance.content.templates.variant_content import CONTENT_FIELDS, TEXT_FIELDS
from appliance.core.i18n import gettext, gettext_noop
from appliance.storage.models import Campaign, Variant
from ui import formats
from ui.forms import Form, FormPart, FormParts, flow_forms, parse_number

DEFAULT_EVENT = "order_paid"
_DEFAULT_SHARE_PERCENT, _DEFAULT_HOLDOUT_PERCENT = 20, 10
_MAX_MINUTES = variants.MAX_MINUTES
# The units of times, by their minutes, with marked labels.
UNITS = ((1, gettext_noop("minutes")), (60, gettext_noop("hours")), (1440, gettext_noop("days")))
_END_UNITS = (1440, 60, 1)
# What can differ between variants, with the fields of each; `content` and `time` are not plain texts.
DIFFERENCES: dict[str, tuple[str, ...]] = {
    "subject": ("subject",), "preheader": ("preheader",), "sender": ("from_name", "from_email", "reply_to"),
    "content": ("body", "design"), "time": ("send_after_minutes",),
}  # fmt: skip
DIFFERENCE_LABELS = {
    "subject": gettext_noop("Subject"), "preheader": gettext_noop("Preview text"), "sender": gettext_noop("Sender"),
    "content": gettext_noop("Content"), "time": gettext_noop("Send time"), "text": gettext_noop("Text"),
}  # fmt: skip
_FIELD_LABELS = {
    "name": gettext_noop("Name"), "subject": gettext_noop("Subject"), "preheader": gettext_noop("Preview text"),
    "from_name": gettext_noop("From name"), "from_email": gettext_noop("From address"),
    "reply_to": gettext_noop("Reply-to"), "body": gettext_noop("Content"), "delay": gettext_noop("Send time"),
}  # fmt: skip
_SETTINGS = (
    FormPart(gettext_noop("Recipients of the test"), ("split", "share")),
    FormPart(gettext_noop("Winner is decided by"), ("metric", "event", "by_amount"), True),
    FormPart(gettext_noop("End of the test"), ("end", "end_unit")),
    FormPart(gettext_noop("Who chooses the winner"), ("decided_by", "too_close")),
    FormPart(gettext_noop("Uneven shares"), ("uneven",), True),
    FormPart(gettext_noop("Holdout group"), ("control", "holdout"), True),
)


class ExperimentParts(FormParts):
    """The parts of the form: each text of each variant, the list of variants, and groups of settings."""

    def __init__(self, setup: Setup | None) -> None:
        self._labels = {"variants": gettext("Variants")}
        parts = [FormPart("variants", ("variant",)), *_SETTINGS]
        for variant in setup.variants if setup is not None else ():
            for name, label in _FIELD_LABELS.items():
                key = f"{name}_{variant.id}"
                names = (key, f"delay_unit_{variant.id}") if name == "delay" else (key,)
                parts.append(FormPart(key, names))
                self._labels[key] = gettext(
                    "%(label)s: %(value)s", label=variants.get_name(variant), value=gettext(label)
                )
        super().__init__(*parts)

    def label(self, key: str) -> str:
        """Return the label of a part; that of a text begins with the name of its variant."""
        return self._labels.get(key) or super().label(key)

    def field_labels(self) -> dict[str, str]:
        """Return the label of the part of each field."""
        return {name: self.label(key) for key in self._parts for name in self._parts[key].names}


def build_form(campaign: Campaign) -> Form:
    """Return the form with the stored values; without a test it has no fields."""
    setup: Setup | None = campaign.setup
    if setup is None:
        return Form()
    row = setup.experiment
    is_part = float(row.test_share) < 1
    end, end_unit = _split_minutes(row.decide_after_minutes)
    values = {
        "split": "part" if is_part else "all",
        "share": _format_percent(row.test_share) if is_part else str(_DEFAULT_SHARE_PERCENT),
        "metric": row.metric, "event": row.event or "", "by_amount": "yes" if row.by_amount else "",
        "end": end, "end_unit": end_unit, "decided_by": row.decided_by, "too_close": row.too_close,
        "uneven": "yes" if row.uneven else "", "control": "yes" if row.holdout else "",
        "holdout": _format_percent(row.holdout) if row.holdout else str(_DEFAULT_HOLDOUT_PERCENT),
    }  # fmt: skip
    ids = [str(variant.id) for variant in setup.variants]
    for variant in setup.variants:
        delay, unit = _split_minutes(variant.send_after_minutes)
        values |= {f"name_{variant.id}": variant.name or "", f"delay_{variant.id}": delay if delay != "0" else ""}
        values[f"delay_unit_{variant.id}"] = unit if delay != "0" else "60"
        if variant.number > 1:
            texts = {name: getattr(variant.template, name) for name in (*TEXT_FIELDS, "body")}
            values |= {f"{name}_{variant.id}": text or "" for name, text in texts.items()}
    return Form({**values, "variant": ids[0] if ids else ""}, {"variant": ids})


def _split_minutes(minutes: int) -> tuple[str, str]:
    """Return a number of minutes as (number, unit), both as text, in the largest unit that fits."""
    unit = next(unit for unit in _END_UNITS if not minutes % unit)
    return str(minutes // unit), str(unit if minutes else 60)


def _format_percent(part: float) -> str:
    return f"{round(float(part) * 100, 2):g}"


def list_shown(variant: Variant, form: Form) -> set[str]:
    """Return the differences whose fields are shown: those that a variant has, and those that the form has ticked."""
    own = set(variants.list_differences(variant))
    differing = {
        key for key, names in DIFFERENCES.items() if own & {*names, *(("content",) if key == "content" else ())}
    }
    differing |= {"time"} if variant.send_after_minutes else set()
    ticked = set(form.getlist(f"differs_{variant.id}")) & DIFFERENCES.keys()
    return differing | ticked if differing or f"checkboxes_{variant.id}" in form.values else {"subject"}


def read_form(form: Form, campaign: Campaign) -> dict[str, Any]:
    """Return the posted values as a request of the API (`ExperimentWrite`), with errors of numbers at their fields.

    Fields that the form does not have are left out, so they keep their values. Differences that the form has, and whose
    box is no longer ticked, are null: the variant has the text of the campaign again.
    """
    setup: Setup | None = campaign.setup
    if setup is None:
        return {}
    raw: dict[str, Any] = _read_settings(form, setup)
    if form.getlist("variant"):
        raw["variants"] = [_read_variant(form, variant, campaign.channel == "sms") for variant in setup.variants]
    return raw


def _read_settings(form: Form, setup: Setup) -> dict[str, Any]:
    raw: dict[str, Any] = {name: form[name] for name in ("metric", "decided_by", "too_close") if form[name]}
    if form["split"]:
        raw["test_share"] = _read_percent(form, "share", setup.experiment.test_share) if form["split"] == "part" else 1
    if "end" in form.values:
        raw["decide_after_minutes"] = _read_minutes(form, "end", "end_unit")
    if "event" in form.values:
        raw["event"] = form["event"] or None
    if form["checkboxes"] == "settings":
        raw["uneven"] = form["uneven"] == "yes"
        raw["by_amount"] = form["metric"] == "event" and form["by_amount"] == "yes"
    if form["control_checkbox"]:
        raw["holdout"] = _read_holdout(form, setup) if form["control"] == "yes" else 0
    needs_event = raw.get("metric", setup.experiment.metric) == "event" or raw.get("holdout", setup.experiment.holdout)
    if needs_event and not raw.get("event", setup.experiment.event):
        raw["event"] = DEFAULT_EVENT
    return {name: value for name, value in raw.items() if value is not None or name == "event"}


def _read_holdout(form: Form, setup: Setup) -> float | None:
    if "holdout" not in form.values:
        return float(setup.experiment.holdout) or _DEFAULT_HOLDOUT_PERCENT / 100
    return _read_percent(form, "holdout", setup.experiment.holdout)


def _read_percent(form: Form, name: str, present: float) -> float | None:
    """Return a percentage as a share; without the field, the present share if it is under 1, else the default."""
    if name not in form.values:
        return float(present) if float(present) < 1 else _DEFAULT_SHARE_PERCENT / 100
    limit = round(variants.MAX_HOLDOUT * 100) if name == "holdout" else 100
    try:
        share = float(parse_number(form[name].removesuffix("%"))) / 100
    except ValueError:
        share = 0.0
    if not 0.01 <= share <= limit / 100:
        form.add_error(name, gettext("Enter a percentage from 1 to %(limit)s.", limit=formats.number(limit)))
        return None
    return share


def _read_minutes(form: Form, name: str, unit_name: str) -> int | None:
    unit = int(form[unit_name]) if form[unit_name] in ("1", "60", "1440") else 60
    try:
        minutes = round(float(parse_number(form[name] or "0")) * unit)
    except ValueError:
        minutes = -1
    if not 0 <= minutes <= _MAX_MINUTES:
        form.add_error(name, gettext("Enter a number, at most %(days)s days.", days=formats.number(variants.MAX_DAYS)))
        return None
    return minutes


def _read_variant(form: Form, variant: Variant, sms: bool) -> dict[str, Any]:
    """Return a variant as a request; one that the form does not have keeps all its values."""
    raw: dict[str, Any] = {"id": variant.id}
    if f"name_{variant.id}" in form.values:
        raw["name"] = form.text(f"name_{variant.id}")
    has_boxes = f"checkboxes_{variant.id}" in form.values
    ticked = set(form.getlist(f"differs_{variant.id}"))
    if variant.number > 1:
        for key in ("subject", "preheader", "sender"):
            for name in DIFFERENCES[key]:
                if f"{name}_{variant.id}" in form.values:
                    raw[name] = None if has_boxes and key not in ticked else form.text(f"{name}_{variant.id}")
        if f"body_{variant.id}" in form.values:
            raw["body"] = form.text(f"body_{variant.id}")
        if has_boxes and "content" not in ticked and form[f"content_{variant.id}"] and not sms:
            raw |= {"body": None, "design": None}
    if f"delay_{variant.id}" in form.values:
        is_kept = not has_boxes or "time" in ticked
        minutes = _read_minutes(form, f"delay_{variant.id}", f"delay_unit_{variant.id}") if is_kept else 0
        raw |= {"send_after_minutes": minutes} if minutes is not None else {}
    return raw


def map_errors(setup: Setup | None) -> dict[str, str]:
    """Return the field of each error path of the API."""
    fields = {
        "experiment.test_share": "share", "experiment.decide_after_minutes": "end", "experiment.variants": "base",
        "experiment.event": "event", "experiment.holdout": "holdout", "experiment.uneven": "uneven",
        "experiment.by_amount": "by_amount", "experiment.metric": "metric",
    }  # fmt: skip
    for index, variant in enumerate(setup.variants if setup is not None else ()):
        path = f"experiment.variants[{index}]."
        fields |= {f"{path}{name}": f"{name}_{variant.id}" for name in (*TEXT_FIELDS, "name", "body")}
        fields[f"{path}send_after_minutes"] = f"delay_{variant.id}"
    return fields


def list_events(account_id: int, chosen: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the events that can decide a test, by group: those of a shop, and the account's own."""
    shop = flow_forms.list_goal_groups(account_id, chosen)
    return [group for group in shop if group[0] in (gettext("Shop"), gettext("Your events"))]


# Undo: the whole test as a request, stored in the fields of the notice.


def serialize_setup(setup: Setup | None) -> dict[str, Any] | None:
    """Return a test as a request that restores it, with the content of all variants; None without a test."""
    if setup is None:
        return None
    row = setup.experiment
    names = (
        "metric", "event", "by_amount", "test_share", "holdout", "uneven", "decide_after_minutes", "decided_by",
        "too_close",
    )  # fmt: skip
    return {name: getattr(row, name) for name in names} | {
        "variants": [serialize_variant(variant) | {"id": variant.id} for variant in setup.variants]
    }


def serialize_variant(variant: Variant) -> dict[str, Any]:
    """Return a variant as a request that creates it, with the fields that it has itself, and their translations.

    The translations are not fields of a request; the caller writes them.
    """
    raw: dict[str, Any] = {"name": variant.name, "send_after_minutes": variant.send_after_minutes}
    if variant.number == 1:
        return raw
    document = to_document(variant.template)
    names = (*CONTENT_FIELDS, "translations")
    return raw | {name: document[name] for name in names if document[name] not in (None, "", {})}


def restore_request(stored: dict[str, Any] | None, setup: Setup | None) -> dict[str, Any] | None:
    """Return the request that restores a serialized test: variants that still exist keep their ids, others are new."""
    if stored is None:
        return None
    present = {variant.id for variant in setup.variants} if setup is not None else set()
    restored = []
    for index, variant in enumerate(stored["variants"]):
        values = {name: value for name, value in variant.items() if name not in ("id", "translations")}
        if index and variant["id"] in present:
            values = {**dict.fromkeys(CONTENT_FIELDS), **values}
        restored.append(values | ({"id": variant["id"]} if variant["id"] in present else {}))
    return stored | {"variants": restored}


def find_next_name(setup: Setup, source: Variant) -> str | None:
    """Return the name of a copy of a variant, such as `Short 2`; None if the source has no name, only its letter."""
    if not source.name:
        return None
    used = {variant.name for variant in setup.variants}
    candidates: Iterable[str] = (f"{source.name} {number}" for number in range(2, len(used) + 3))
    return next((name for name in candidates if name not in used), None)
