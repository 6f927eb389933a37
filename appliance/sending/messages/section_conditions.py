"""Sections of emails that only some contacts see (`show_if`): which of their conditions a contact meets.

The messages of all accounts are rendered on one event loop, so the conditions of a message have a limit of cost, like
its rendering. A message that exceeds it cannot be rendered.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from appliance.audience.filters import personal
from appliance.audience.filters.fields import Compiled
from appliance.audience.segments import members
from appliance.audience.segments.condition_budget import ConditionsTooSlow, Cost, limit_statement
from appliance.content.designs.merge_limits import MergeError
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext_noop
from appliance.storage import masking
from appliance.storage.database import rows

# What the conditions of one message may cost, on the event loop of the workers. As a measure: five conditions on 15,000
# events of the contact cost 2,700,000 steps and 0.06 s. A batch of recipients that costs more is split.
MAX_COST = Cost(3_000_000, 0.1)
_TOO_SLOW = gettext_noop("takes too long to check which sections to show: use fewer conditions on events")
# How long the results of conditions are cached, for how many contacts, and how many are evaluated together at most.
_CACHE_SECONDS, _MAX_CACHED_CONTACTS, _MAX_BATCH = 60.0, 10_000, 1_000


def get_show_values(account_id: int, contact_id: int | None, conditions: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the values under `show` for a contact: {"show": {condition name: whether the contact meets it}}.

    `conditions` are lists of filters by name. Without a contact, all conditions are met. So are those on names and
    addresses where contact data is masked, because a preview would otherwise tell what is masked. Raises MergeError if
    they cost more than `MAX_COST`.
    """
    if contact_id is None:
        return {"show": dict.fromkeys(conditions, True)}
    if not conditions:
        return {"show": {}}
    asked = {
        name: filters for name, filters in conditions.items()
        if not (masking.is_active() and personal.has_personal_filter(filters))
    }  # fmt: skip
    try:
        values = evaluate_conditions(account_id, [contact_id], asked)[contact_id]
        return {"show": dict.fromkeys(conditions, True) | values}
    except ConditionsTooSlow:
        raise MergeError(_TOO_SLOW) from None


def evaluate_conditions(
    account_id: int,
    contact_ids: Iterable[int],
    conditions: Mapping[str, list[Any]],
    compiled: dict[str, Compiled | None] | None = None,
) -> dict[int, dict[str, bool]]:
    """Return which conditions each contact meets: {contact id: {condition name: whether it is met}}.

    Each condition is evaluated in one SQL statement for all contacts, as a segment would be. No contact meets a
    condition with invalid filters, because content for a few contacts must not be shown to all. `compiled` is filled
    with the SQL of the conditions by name, for the next call. Raises ConditionsTooSlow if all of it costs more than
    `MAX_COST`.
    """
    ids = [int(contact_id) for contact_id in contact_ids]
    results: dict[int, dict[str, bool]] = {contact_id: dict.fromkeys(conditions, False) for contact_id in ids}
    values = {"one_ids": msgspec.json.encode(ids).decode(), "one_account": account_id}
    known = {} if compiled is None else compiled
    with limit_statement(MAX_COST) as meter:
        for name, filters in conditions.items():
            if name not in known:
                known[name] = _compile_condition(account_id, filters)
                meter.check()
            condition = known[name]
            if condition is None:
                continue
            sql = (
                "SELECT c.id FROM json_each(:one_ids) one CROSS JOIN contact c ON c.id = one.value "
                f"WHERE c.account_id = :one_account AND ({condition.sql})"
            )
            for row in rows(sql, {**condition.parameters, **values}):
                results[row[0]][name] = True
    return results


def _compile_condition(account_id: int, filters: list[Any]) -> Compiled | None:
    try:
        return members.compile_condition(account_id, filters)
    except Invalid:
        return None


class ConditionCache:
    """The results of one campaign's or step's conditions for contacts, cached; only one thread may use it.

    Conditions are evaluated for many recipients in one statement, because one query for each recipient would be slow;
    for fewer recipients if that costs too much. `conditions` are lists of filters by name.
    """

    def __init__(self, account_id: int, conditions: Mapping[str, list[Any]]) -> None:
        self._account_id, self._conditions = account_id, conditions
        self._compiled: dict[str, Compiled | None] = {}
        self._known: dict[int, dict[str, bool]] = {}
        self._expected: list[int] = []
        self._batch_size = _MAX_BATCH
        self._until = 0.0  # `clock.monotonic`

    def set_expected_contacts(self, contact_ids: Iterable[int]) -> None:
        """Set the contacts of the next calls of `get_values`, which are then evaluated together.

        They replace the contacts set before.
        """
        self._expected = list(contact_ids)

    def get_values(self, contact_id: int | None) -> dict[str, Any]:
        """Return the values under `show` for a contact: {"show": {condition name: whether the contact meets it}}.

        Without a contact, all conditions are met. If the result is not cached, it is evaluated together with those of
        expected contacts. Raises MergeError if the conditions of this contact alone cost more than `MAX_COST`.
        """
        if contact_id is None or not self._conditions:
            return get_show_values(self._account_id, None, self._conditions)
        now = clock.monotonic()
        if now >= self._until or len(self._known) > _MAX_CACHED_CONTACTS:
            self._known, self._compiled, self._until = {}, {}, now + _CACHE_SECONDS
        if contact_id not in self._known:
            try:
                self._evaluate(contact_id)
            except ConditionsTooSlow:
                raise MergeError(_TOO_SLOW) from None
        return {"show": self._known[contact_id]}

    def _evaluate(self, contact_id: int) -> None:
        """Evaluate the conditions for a contact together with others, or alone if that costs too much."""
        others = [other for other in self._expected if other not in self._known and other != contact_id]
        batch = [contact_id, *others[: self._batch_size - 1]]
        try:
            results = evaluate_conditions(self._account_id, batch, self._conditions, self._compiled)
            self._batch_size = min(2 * self._batch_size, _MAX_BATCH)
        except ConditionsTooSlow:
            self._batch_size = max(len(batch) // 8, 1)
            if len(batch) == 1:
                raise
            results = evaluate_conditions(self._account_id, batch[:1], self._conditions, self._compiled)
        self._known |= results
