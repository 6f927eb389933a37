"""The scopes and roles that a request about a flow needs, beyond the scope of its route (T45 in docs/threats.md)."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from appliance.api.auth import (
    require_access_to_named_contact,
    require_contacts_scope,
    require_contacts_scope_of_test_key,
    require_scope,
)
from appliance.api.endpoints import ApiRequest
from appliance.api.http import ApiError
from appliance.audience.filters import compiler
from appliance.audience.filters.fields import is_event_path
from appliance.flows import document, store, triggers
from appliance.flows.steps import BY_TYPE
from appliance.storage import models


def require_send_scope(request: ApiRequest) -> None:
    """Raise a 403 error unless the credential has the scope `campaigns:send`; `flows:write` is not enough.

    A test key also needs `contacts:read`.
    """
    require_scope(request.credential, "campaigns:send")
    require_contacts_scope_of_test_key(request)


def require_can_change(request: ApiRequest, row: models.Flow) -> None:
    """Raise a 403 error if the credential may not change a flow that has been activated.

    A user may change such a flow only with a role that may send, and a test key only if a test key activated the flow.
    """
    credential = request.credential
    if row.version > 0 and credential.role is not None and not credential.has_scope("campaigns:send"):
        raise ApiError(
            403,
            "forbidden",
            "Only a user who may send can change a flow that was live.",
            required_scope="campaigns:send",
        )
    if request.credential.is_test and row.version > 0 and not row.test:
        raise ApiError(403, "forbidden", "A test key may change only flows activated by test keys.")


def require_conditions_access(request: ApiRequest, draft: store.FlowInput, stored: models.Flow | None = None) -> None:
    """Raise a 403 error if the credential lacks the scope that the new conditions of a flow require.

    A step that discloses data (`StepKind.get_disclosures`) and a condition on the contact need `contacts:read`. A
    condition on the data of events, and a step that forwards this data, need `events:read`. The runs of a flow show
    which contacts its trigger matched, which branch each took and until when it waits, so a key that chooses the
    conditions could read any value of any contact or event (T45 in docs/threats.md). Conditions of a starter, and those
    that the flow has already, are not new.
    """
    known = [] if stored is None else _list_disclosures(stored.steps)
    steps = draft.steps.steps if draft.steps is not None and request.body.steps is not UNSET else ()
    new = [disclosure for disclosure in _list_disclosures(steps) if disclosure not in known]
    checked = new
    trigger = draft.trigger if request.body.trigger is not UNSET else None
    if trigger is not None and stored is not None:
        previous = triggers.get_spec(stored.loaded_trigger)
        if previous.event != trigger.event:
            # The branches on event data now compare the data of another event.
            checked = [*new, *known]
        if triggers.has_same_conditions(previous, trigger):
            trigger = None
    if new or (trigger is not None and triggers.uses_contact_data(trigger)):
        require_contacts_scope(request)
    if any(
        disclosure.get("by_amount")
        or disclosure.get("forwarded_to")
        or compiler.uses_event_data(disclosure.get("filters"))
        for disclosure in checked
    ) or (trigger is not None and triggers.uses_event_data(trigger)):
        require_scope(request.credential, "events:read")


def _list_disclosures(steps: Sequence[document.Step]) -> list[dict[str, Any]]:
    by_step = (BY_TYPE[step["type"]].get_disclosures(step) for _, step in document.walk(steps))
    return [disclosure for disclosure in by_step if disclosure]


def require_simulation_access(request: ApiRequest) -> None:
    """Raise a 403 error if a simulation would show more of a real contact than the credential may read.

    Branches of the request that compare the data of the contact's events need `events:read` (T45 in docs/threats.md).
    """
    require_access_to_named_contact(request)
    if request.body is not None and request.body.contact_id and _compares_event_data(request.body.steps):
        require_scope(request.credential, "events:read")


def _compares_event_data(raw_steps: Any) -> bool:
    """Return whether any branch in the steps of a request, which may be invalid, compares the data of events."""
    steps = compiler.walk(raw_steps, models.NESTED_STEP_KEYS)
    return any(compiler.uses_event_data(step.get("filters")) or is_event_path(step.get("field")) for step in steps)


def require_bulk_simulation_access(request: ApiRequest) -> None:
    """Raise a 403 error unless the credential may read contacts and events, because the simulation uses both."""
    require_contacts_scope(request)
    require_scope(request.credential, "events:read")
