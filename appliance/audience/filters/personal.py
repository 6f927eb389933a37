"""Filters and splits by names and addresses, for a role whose contact data is masked (docs/decisions.md#34).

Such a role cannot ask these questions, because by asking for more and more letters it could read what is masked. Saved
filters that ask them keep working, but their values are hidden.
"""

from typing import Any

from appliance.audience.filters.fields import FIELDS_BY_NAME
from appliance.core.errors import NotAllowed
from appliance.core.i18n import gettext
from appliance.storage import masking
from appliance.storage.masking import HIDDEN_TEXT

_PERSONAL_FIELDS = frozenset(("contact_first_name", "contact_last_name", "contact_email", "contact_phone_number"))


def is_personal(name: Any) -> bool:
    """Return whether the name of a filter means a name, an address or a phone number of the contact."""
    field = FIELDS_BY_NAME.get(name) if isinstance(name, str) else None
    return field is not None and field.name in _PERSONAL_FIELDS


def require_allowed(value: Any) -> None:
    """Raise NotAllowed if JSON as sent has a filter on names or addresses, at any depth, and contact data is masked."""
    if masking.is_active() and has_personal_filter(value):
        raise NotAllowed(gettext("Your role sees masked contact data, so it cannot filter by name or address."))


def has_personal_filter(value: Any) -> bool:
    """Return whether JSON has a filter on names or addresses, at any depth, or a split of a flow by such a field."""
    if isinstance(value, list):
        return any(has_personal_filter(item) for item in value)
    if not isinstance(value, dict):
        return False
    is_filter = "predicate" in value and is_personal(value.get("name"))
    return is_filter or _is_personal_split(value) or any(has_personal_filter(item) for item in value.values())


def _is_personal_split(value: dict[str, Any]) -> bool:
    """Return whether JSON is a step of a flow that compares a name or address with the values of its branches."""
    return isinstance(value.get("branches"), list) and is_personal(value.get("field"))


def hide_values(value: Any) -> Any:
    """Return JSON whose filters and splits by names and addresses have hidden values, where contact data is masked."""
    return _hide_values(value) if masking.is_active() else value


def _hide_values(value: Any) -> Any:
    if isinstance(value, list):
        return [_hide_values(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "predicate" in value and is_personal(value.get("name")):
        return {key: hide_value(item) if key == "value" else item for key, item in value.items()}
    if _is_personal_split(value):
        value = {**value, "branches": [_hide_branch(item) for item in value["branches"]]}
    return {key: _hide_values(item) for key, item in value.items()}


def _hide_branch(branch: Any) -> Any:
    if not isinstance(branch, dict):
        return branch
    return {key: hide_value(item) if key == "values" else item for key, item in branch.items()}


def hide_value(value: Any) -> Any:
    """Return the value of a filter on a name or address with its texts hidden."""
    if isinstance(value, list):
        return [hide_value(item) for item in value]
    return HIDDEN_TEXT if isinstance(value, str) else value
