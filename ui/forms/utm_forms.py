"""UTM parameters in forms: five fields in settings and campaigns, lines of text in a flow step."""

from collections.abc import Mapping
from typing import Any

from appliance.content.designs import utm
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from ui.forms import Form

# The form fields by the names of the API, and their marked labels.
FIELDS = {name: f"utm_{name}" for name in utm.NAMES}
# The choices of a campaign, with marked labels.
ACCOUNT, OWN, NONE = "account", "own", "none"
CHOICES = (
    (ACCOUNT, gettext_noop("From the account settings")),
    (OWN, gettext_noop("For this campaign")),
    (NONE, gettext_noop("No UTM parameters")),
)


def build_values(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return the values of the five fields from stored parameters."""
    return {field: (settings or {}).get(name, "") for name, field in FIELDS.items()}


def read_values(form: Form) -> dict[str, str | None]:
    """Return the parameters of the five fields as the API takes them."""
    return {name: form.text(field) for name, field in FIELDS.items()}


def build_choice(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return the values of a campaign's choice and of the five fields."""
    choice = ACCOUNT if settings is None else OWN if settings else NONE
    return {"utm": choice, **build_values(settings)}


def read_choice(form: Form) -> dict[str, str | None] | None:
    """Return the parameters of a campaign as the API takes them: None for those of the account."""
    if form["utm"] == OWN:
        return read_values(form)
    return {} if form["utm"] == NONE else None


def format_lines(settings: Mapping[str, str] | None) -> str:
    """Return the parameters of a step as lines such as `source: newsletter`, and "" for None.

    Without parameters it is one line without a value.
    """
    if settings is None:
        return ""
    return "\n".join(f"{name}: {settings[name]}" for name in utm.NAMES if settings.get(name)) or f"{utm.NAMES[0]}:"


def parse_lines(text: str) -> dict[str, Any] | None:
    """Parse lines such as `source: newsletter`; None for an empty text.

    Raises Invalid at `utm` for a line without a colon or with another name.
    """
    values: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, value = line.partition(":")
        key = name.strip().lower().removeprefix("utm_")
        if key not in utm.NAMES:
            message = gettext("Each line needs one of %(names)s, a colon and a value.", names=", ".join(utm.NAMES))
            raise errors.Invalid({"utm": [message]})
        values[key] = value.strip() or None
    return values or None
