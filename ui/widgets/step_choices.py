"""The choices in the fields of the form of a step or trigger, and the menu of steps."""

from typing import Any

from appliance.accounts import users
from appliance.audience.segments import suggestions
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.date_events import WEEKDAYS
from appliance.flows.drafts import FlowDraft
from appliance.flows.steps import BY_TYPE, KINDS
from appliance.flows.steps.base import StepKind
from appliance.flows.steps.wait_until import name_weekday
from appliance.storage import masking
from ui.forms import Form, branch_rows, flow_forms, lookups
from ui.widgets import filter_builder, flow_tree

# The groups of the menu of steps, with marked labels; a kind that none of them names is in the last one.
_MENU_GROUPS = (
    (gettext_noop("Messages"), ("email", "sms")),
    (gettext_noop("Timing"), ("wait", "wait_until")),
    (gettext_noop("Paths"), ("split", "split_value", "random_split", "go_to", "exit")),
    (gettext_noop("Contact"), ("list_add", "list_remove", "tag_add", "tag_remove", "contact_update", "unsubscribe")),
    (gettext_noop("Team and programs"), ("notify", "http_request", "emit_event")),
)


def list_menu_groups() -> list[tuple[str, list[StepKind]]]:
    """Return the kinds of steps as the menu of steps offers them, as (label of the group, kinds)."""
    grouped = [name for _, names in _MENU_GROUPS for name in names]
    groups = [(gettext(label), [BY_TYPE[name] for name in names]) for label, names in _MENU_GROUPS]
    groups[-1][1].extend(kind for kind in KINDS if kind.type not in grouped)
    return groups


def _list_known_values(account_id: int, form: Form) -> list[str]:
    """Return the values that contacts have in the chosen field; none where contact data is masked."""
    name = form["field"].replace(".*", f".{form['field_other']}") if form["field_other"] else form["field"]
    if masking.is_active() or not name:
        return []
    return [str(known.value) for known in suggestions.suggest_values(account_id, name)]


def load_choices(
    account_id: int, draft: FlowDraft, steps: list[Any], step: Any, kind: StepKind | None, form: Form
) -> dict[str, Any]:
    """Return the template context of the fields of a step of a kind; `kind` is None for the trigger.

    `steps` are the draft's steps with their contents, and `step` the one that the form is about, None for a new one.
    """
    types = {field.type for field in kind.fields} if kind is not None else {"list"}
    choices: dict[str, Any] = {
        "pickable": [], "colleagues": [], "step_options": [], "value_fields": [], "awaited_events": [],
        "known_values": [], "branch_fields": branch_rows.BRANCH_FIELDS, "branch_rows": branch_rows.list_rows,
        "weekdays": [(day, name_weekday(day)) for day in WEEKDAYS],
    }  # fmt: skip
    if "list" in types:
        # Lists that mirror a segment are left out, since contacts cannot be added to or removed from them.
        lists = lookups.list_contact_lists(account_id)
        choices["pickable"] = [(str(row.id), row.name) for row in lists if row.segment_id is None]
    if "user" in types:
        members = users.list_members(account_id)
        choices["colleagues"] = [(str(row.id), row.name or row.email) for row in members if row.disabled_at is None]
    if "step" in types:
        choices["step_options"] = flow_tree.list_step_options(draft, steps, step)
    if "value_field" in types:
        event = draft.trigger.event or ""
        choices["value_fields"] = filter_builder.list_value_fields(account_id, event, form["field"])
        choices["known_values"] = _list_known_values(account_id, form)
    if "awaited_event" in types:
        choices["awaited_events"] = flow_forms.list_goal_groups(account_id, form["event_name"])
    return choices
