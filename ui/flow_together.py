"""Two at one panel of a flow: what a step, the start and its conditions say, part by part."""

import json
from collections.abc import Mapping
from typing import Any

from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.core.errors import NotFound
from appliance.flows import draft_edits, tree
from appliance.flows.steps import BY_TYPE
from appliance.flows.triggers import Start
from ui import filter_look, flow_forms
from ui import people as named
from ui.filters import Rows
from ui.flow_forms import LABELS, OTHER, SEGMENTS, UNITS, StepForm
from ui.forms import Form
from ui.together import Known, Part, Parts

_WHO = "Who goes to Yes"
_START = ("event", "event_name", "contact_list_id", "segment_id", "often", "gap", "tag", "keywords", "path", "offset",
          "side", "at", "yearly")  # fmt: skip
WHERE = Parts(Part("Only if", ("rules",)))


class _Fields(Parts):
    """The fields of a step."""

    def words(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Say a time with its unit behind it."""
        names = self.names(key)
        if not names[1:]:
            return super().words(form, key, known)
        number, unit = form[names[0]], dict(UNITS).get(form[names[1]], "")
        return f"{number} {unit.removesuffix('s') if number == '1' else unit}"


class _Start(Parts):
    """What starts a flow says one thing together, in the fields that its event has; the rest is not asked for."""

    def value(self, form: Form, key: str) -> Any:
        """Return what a form says in a part; what its event does not know is nothing."""
        names = _asked(form) if "event" in self.names(key) else self.names(key)
        return [[name, *filter(None, self._of(form, name))] for name in names]

    def words(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return what starts it, and for whom."""
        if "event" not in self.names(key):
            return form["goal"] or "nothing"
        event = form["event_name"] if form["event"] == OTHER else LABELS.get(form["event"], form["event"])
        rest = [(name, form[name]) for name in _asked(form) if name not in ("event", "event_name") and form[name]]
        return ", ".join([event or "nothing", *(known.get(f"{name} {value}", value) for name, value in rest)])


START = _Start(Part("Start", _START), Part("Goal", ("goal",)))


def _asked(form: Form) -> list[str]:
    """Return the fields that say something about the event of a form."""
    event = form["event"]
    found = ["event", *(["event_name"] if event == OTHER else [])]
    if event == "manual":
        return found
    found += ["segment_id"] if event in SEGMENTS else ["contact_list_id", "segment_id"]
    if event == "date_reached":
        return [*found, "path", "offset", "side", "at", "yearly"]
    found += ["keywords"] if event in ("message", "keyword") else ["tag"] if event in ("tag_add", "tag_remove") else []
    return [*found, "often", *(["gap"] if form["often"] == "gap" else [])]


def of_step(kind: str) -> Parts:
    """Return the parts of the form of a step of a kind."""
    found = []
    for field in BY_TYPE[kind].fields:
        if field.type == "filters":
            found.append(Part(_WHO, ("rules",)))
        elif field.type == "duration":
            found.append(Part(field.label, (field.name, f"{field.name}_unit")))
        elif field.type != "design":
            found.append(Part(field.label, (field.name,), field.type == "boolean"))
    return _Fields(*found)


def step(account_id: int, flow_id: int, step_id: int) -> dict[str, Any]:
    """Return a step as it is kept, with its content; raises NotFound."""
    found = tree.find(draft_edits.said(draft_edits.of(account_id, flow_id).steps), step_id)
    if found is None:
        raise NotFound
    return found


def shown(step: dict[str, Any]) -> StepForm:
    """Fill the form of a step with what is kept of it, its rules as one value."""
    form = flow_forms.shown(step)
    if any(field.type == "filters" for field in BY_TYPE[step["type"]].fields):
        form.values["rules"] = rules(Rows.of(step["filters"] or []))
    return form


def where(start: Start) -> Form:
    """Return the form of the conditions of a start, as one value."""
    return Form({"rules": rules(Rows.of(start.data.get("where") or []))})


def rules(found: Rows) -> str:
    """Return rules as one value of a form."""
    return json.dumps(found.filters(), sort_keys=True)


def said(account_id: int, *both: Rows) -> dict[str, str]:
    """Return rules in words, by their value."""
    told = ((rules(one), filter_look.look(account_id, one, counted=False).sentence) for one in both)
    return {value: sentence or "everybody" for value, sentence in told}


def named_in(account_id: int, kind: str) -> Known:
    """Return the names of the lists that a step of a kind chooses from."""
    names = {str(row.id): row.name for row in named.all_lists(account_id)}
    return {field.label: names for field in BY_TYPE[kind].fields if field.type == "list"}


def named_at_start(account_id: int) -> Known:
    """Return the names of the lists and segments that a start chooses from."""
    lists = {f"contact_list_id {row.id}": row.name for row in named.all_lists(account_id)}
    found = segments.page(account_id, SegmentQuery(limit=100)).rows
    return {"Start": lists | {f"segment_id {row.id}": row.name for row in found}}
