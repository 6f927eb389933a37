"""Filters and splits by names and addresses, for a role whose contact data is masked (docs/decisions.md#34).

Filters on parts of custom data count as such filters, because custom data can be a name, an address or a phone number,
too. A role with masked data cannot use these filters: by trying more and more letters it could read what is masked.
Saved filters that ask them keep working, but their values are hidden.
"""

import re
from typing import Any

from appliance.audience.filters.fields import FIELDS_BY_NAME
from appliance.core.errors import NotAllowed
from appliance.core.i18n import gettext
from appliance.storage import masking
from appliance.storage.masking import HIDDEN_TEXT

# Custom data and the data of events can be compared with whole values only: parts of texts, or bounds, would reveal the
# masked value to a user who tries more and more letters or digits. Days can be bounds.
_DATA = ("data.", "contact_data.", "event.")
_PART_PREDICATES = frozenset(("cont", "not_cont", "start", "not_start", "end", "not_end"))
_BOUND_PREDICATES = frozenset(("gt", "gteq", "lt", "lteq", "between"))
_DAY = re.compile(r"\d{4}-\d\d-\d\d(T[\d:.]+Z?)?")
_PERSONAL_FIELDS = frozenset(("contact_first_name", "contact_last_name", "contact_email", "contact_phone_number"))


def is_personal(name: Any) -> bool:
    """Return whether the name of a filter refers to a name, an address or a phone number of the contact."""
    field = FIELDS_BY_NAME.get(name) if isinstance(name, str) else None
    return field is not None and field.name in _PERSONAL_FIELDS


def require_allowed(value: Any) -> None:
    """Raise NotAllowed if JSON as sent has a filter on names or addresses, at any depth, and contact data is masked."""
    if masking.is_active() and has_personal_filter(value):
        raise NotAllowed(gettext("Your role sees masked contact data, so it cannot filter by name or address."))


def has_personal_filter(value: Any) -> bool:
    """Return whether JSON has, at any depth, a filter on personal data, or a split by a name or address.

    A filter on a part or bound of custom data that is masked counts, too.
    """
    if isinstance(value, list):
        return any(has_personal_filter(item) for item in value)
    if not isinstance(value, dict):
        return False
    is_filter = "predicate" in value and (is_personal(value.get("name")) or _compares_masked_part(value))
    return is_filter or _is_personal_split(value) or any(has_personal_filter(item) for item in value.values())


def _compares_masked_part(value: dict[str, Any]) -> bool:
    """Return whether a filter compares a part of a masked value of custom data, or a bound of it."""
    name, bounds = value.get("name"), value.get("value")
    if not isinstance(name, str) or not name.startswith(_DATA):
        return False
    key = name.rpartition(".")[2]
    if value["predicate"] in _PART_PREDICATES:
        return key not in masking.OPEN_KEYS
    return value["predicate"] in _BOUND_PREDICATES and any(
        masking.mask_value(bound, key) == HIDDEN_TEXT and not (isinstance(bound, str) and _DAY.fullmatch(bound))
        for bound in (bounds if isinstance(bounds, list) else [bounds])
    )


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
