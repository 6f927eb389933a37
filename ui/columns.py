"""Where the columns of a file may go, in the words of a person, and what a form says of them."""

from typing import Any, NamedTuple

from appliance.imports import cells, columns, store
from appliance.imports.store import ImportOptions
from appliance.storage.models import Import
from ui.forms import Form

OWN = "own"
# Group, and what may be chosen in it: the target of the import, and its words
GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Addresses", (("email", "Email"), ("phone", "Phone"))),
    ("Person", (
        ("name", "Full name"), ("first_name", "First name"), ("last_name", "Last name"),
        ("country_code", "Country"), ("source", "Where they came from"), ("tags", "Tags"),
        ("lists", "Lists, by name"),
    )),
    ("Consent", (
        ("subscribed_email", "Subscribed to email: yes or no"), ("subscribed_phone", "Subscribed to SMS: yes or no"),
        ("status", "Status: subscribed, unsubscribed …"), ("unsubscribed", "Unsubscribed: yes, or when"),
        ("bounced", "Bounced: yes, or when"), ("opt_in_at", "When they agreed"), ("opt_out_at", "When they left"),
        ("verified", "Address confirmed: yes or no"), ("tracking", "Opens and clicks: full, aggregate, none"),
        ("opted_out_by", "Who unsubscribed them"),
    )),
    ("Everything else", (
        (OWN, "A field of its own"), ("data", "Several fields, as JSON"), ("channels", "Addresses, as JSON"),
    )),
)  # fmt: skip
BLOCKING = (
    ("Addresses", (("email", "Email"), ("phone", "Phone"))),
    ("About it", (("reason", "Reason: bounced, complaint, manual …"), ("note", "Note"))),
)
# More than one column may say these
_SEVERAL = ("phone", "tags", "unsubscribed", "bounced", OWN, "")


class Column(NamedTuple):
    """A column as the form shows it: its name, what is in it, where it goes, and the name of its own field."""

    name: str
    samples: list[str]
    to: str
    key: str


def shown(found: Import, form: Form) -> list[Column]:
    """Return the columns of a file; what was typed stands before what was guessed."""
    made = []
    for index, column in enumerate(found.columns):
        target = str(column["target"])
        own = target[5:] if target.startswith("data.") else columns.plain(column["name"]) or f"column_{index + 1}"
        to = OWN if target.startswith("data.") else target
        if f"to-{index}" in form.values:
            to, own = form[f"to-{index}"], form[f"key-{index}"] or own
        made.append(Column(column["name"], [one for one in column["samples"] if one], to, own))
    return made


def asked(found: Import, form: Form) -> dict[str, str]:
    """Return where the form sends each column, by its name; notes what cannot be."""
    goes: dict[str, str] = {}
    taken: dict[str, str] = {}
    for index, column in enumerate(found.columns):
        to, name = form[f"to-{index}"], column["name"]
        if to == OWN:
            key = form[f"key-{index}"] or columns.plain(name) or f"column_{index + 1}"
            goes[name] = f"data.{key}"
            if goes[name] in taken:
                form.wrong(f"to-{index}", f"“{taken[goes[name]]}” has this name already.")
        else:
            goes[name] = to
            if to in taken and to not in _SEVERAL:
                form.wrong(f"to-{index}", f"“{taken[to]}” goes there already. Choose one of the two.")
        taken.setdefault(goes[name], name)
    if not {"email", "phone", "channels"} & set(goes.values()):
        form.wrong("columns", "Say which column holds the email addresses or phone numbers.")
    return goes


def options(found: Import, form: Form) -> dict[str, Any]:
    """Return what a form asks of an import, in the words of the domain; notes what is missing."""
    if found.resource == "suppressions":
        return {"map": asked(found, form)}
    form.need("consent_source", "Say where these contacts come from. It is kept with each of them as evidence.")
    form.need("opt_in", "Choose whether these contacts are subscribed.")
    new = form.text("new_list")
    return {
        "map": asked(found, form), "list_ids": form.ids("list_ids"), "list_names": [new] if new else [],
        "on_conflict": "skip" if form["on_conflict"] == "skip" else "merge", "opt_in": form["opt_in"] != "no",
        "consent_source": form["consent_source"][:1000], "trigger_flows": form["trigger_flows"] == "yes",
        "default_country": form.text("default_country"), "date_order": form.text("date_order"),
    }  # fmt: skip


def form_of(found: Import, country: str) -> Form:
    """Return the form that asks for what an import was asked for; a new one proposes a `country` for phone numbers."""
    asked_for: ImportOptions = store.options(found)
    is_new = found.phase == store.MAPPING
    form = Form(
        {
            # Nobody is subscribed because a box was ticked before anybody looked
            "on_conflict": asked_for.on_conflict, "opt_in": "" if is_new else "yes" if asked_for.opt_in else "no",
            "consent_source": asked_for.consent_source or "", "trigger_flows": "yes" if asked_for.trigger_flows else "",
            "new_list": ", ".join(asked_for.list_names[:1]), "date_order": asked_for.date_order or "",
            "default_country": asked_for.default_country or (country if is_new else ""),
        }
    )  # fmt: skip
    form.lists["list_ids"] = [str(one) for one in asked_for.list_ids]
    return form


def asks_order(found: Import) -> bool:
    """Whether a column holds dates that may be read in two ways, as far as it is known."""
    return any(
        column.get("dates") in ("ambiguous", "mixed")
        or any(
            (written := cells.read_date(sample)) is not None and not written.is_clear for sample in column["samples"]
        )
        for column in found.columns
    )
