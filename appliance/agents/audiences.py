"""The segments that a proposal names, with their own conditions in words."""

from collections.abc import Iterable

from appliance.agents.differences import Difference
from appliance.agents.flow_words import Worded, word_filters, write_value
from appliance.audience.segments import explain, members
from appliance.audience.segments.store import describe_audience
from appliance.core.hidden_characters import show_hidden
from appliance.core.i18n import gettext


def describe_segments(account_id: int, references: Iterable[tuple[str, int | None]]) -> list[Difference]:
    """Return a row for each segment that decides an audience, also through lists and other segments.

    A name says nothing about who is in a segment, and an agent may have made it. Nothing of it changes by the act.
    """
    scope, rows = members.build_scope(account_id), []
    for kind, number, filters in describe_audience(account_id, references):
        if kind == "segment":
            worded = word_filters(account_id, filters or [], scope)
            text = show_hidden(worded.text if isinstance(worded, Worded) else write_value(worded))
            name = show_hidden(explain.fetch_name(account_id, kind, number))
            rows.append(Difference(gettext("Segment “%(name)s”", name=name), text, text))
    return rows
