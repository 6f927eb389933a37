"""Words that a person holds back beside a live flow: what programs publish meanwhile goes out without them.

A template holds the words as people write them. While something of a flow is published that is not theirs, its
templates say what is live; then they say again what people wrote, with what was published under it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from appliance.db.work import writing
from appliance.tables import Flow, Step, Template, TemplateRevision
from appliance.templates import revisions
from appliance.templates import store as templates

Words = dict[str, Any]


@contextmanager
def apart(flow: Flow, changed: Template | None = None) -> Iterator[None]:
    """Publish without what people hold back; of a template that a program just `changed` with that change alone."""
    writing()
    kept = []
    for row, live in drifted(flow).values() if flow.draft is not None and flow.version else ():
        mine, author = templates.document(row), _author(row)
        out = live
        if changed is not None and row.id == changed.id:
            row, before = changed, revisions.get(row.account_id, row.id, row.revision - 1)
            author = before.user_id
            out = live | {name: value for name, value in mine.items() if value != before.document[name]}
        templates.quietly(row, out)
        held = {name: value for name, value in mine.items() if value != out[name]}
        kept.append((row.id, held, author))
    yield
    for number, held, author in kept:
        templates.quietly(Template.get_by_id(number), held, author)


def _author(row: Template) -> int | None:
    found = TemplateRevision.get(TemplateRevision.template == row.id, TemplateRevision.number == row.revision)
    author: int | None = found.user_id
    return author


def drifted(flow: Flow) -> dict[int, tuple[Template, Words]]:
    """Return by step the templates that differ from the live ones, each with the live one."""
    found = {}
    for action_id, number, pinned in live_words(flow):
        row = Template.get_by_id(number)
        if templates.document(row) != pinned:
            found[action_id] = (row, pinned)
    return found


def live_words(flow: Flow) -> list[tuple[int, int, Words]]:
    """Return of each step of the live version that sends: its id, its template, and what it says."""
    asked = (
        Step.select(Step.action_id, Step.template, TemplateRevision.document)
        .join(TemplateRevision, on=(Step.content == TemplateRevision.id))
        .where(Step.flow == flow.id, Step.version == flow.version, Step.template.is_null(False))
    )
    return [tuple(row) for row in asked.tuples()]


def show_live(flow: Flow, rows: Sequence[Template]) -> None:
    """Let templates that were read say what is live, as programs see a flow; they are not to be saved."""
    if flow.draft is None or not flow.version:
        return
    live = {number: words for _, number, words in live_words(flow)}
    for row in rows:
        for name, value in live.get(row.id, {}).items():
            setattr(row, name, value)
