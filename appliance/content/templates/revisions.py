"""Revisions of templates: one for every save, listed, named, thinned out with time."""

from typing import Any

from msgspec import Struct
from peewee import JOIN

from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.core.fields import PageQuery
from appliance.core.pagination import Page, paginate
from appliance.storage.models import Template, TemplateRevision, User
from appliance.storage.open import connection, rows
from appliance.storage.work import writing

FIELDS = ("name", "subject", "body", "preheader", "from_name", "from_email", "reply_to", "design")
_WORDS = {"body": "content", "from_name": "sender name", "from_email": "sender", "reply_to": "reply address",
          "preheader": "preview line"}  # fmt: skip
# All of the last ones are kept; of those before, what somebody named or sent and the last of each day
LAST = 200
# Within so long, changes of one value by one person are one
FOLD_MS = 3_000
_THIN_EVERY = 10
_DAY_MS = 86_400_000
_OLD = """
WITH r AS (SELECT id, number, follows, restores, named, created_at / :day AS day,
    restores IS NOT NULL AND follows IS NULL AS is_step FROM template_revision WHERE template_id = :id),
edits AS (SELECT number FROM r WHERE NOT is_step ORDER BY number DESC LIMIT :last)
SELECT number, follows FROM r WHERE named = 0 AND number > 1
AND NOT EXISTS (SELECT 1 FROM campaign WHERE content_id = r.id
    AND flow_id = (SELECT flow_id FROM template WHERE id = :id))
AND NOT EXISTS (SELECT 1 FROM step WHERE template_id = :id AND content_id = r.id)
AND CASE WHEN is_step THEN number <= (SELECT max(number) FROM r) - :last
ELSE number < (SELECT min(number) FROM edits)
    AND number < (SELECT max(number) FROM r AS other WHERE other.day = r.day AND NOT other.is_step)
    AND number NOT IN (SELECT restores FROM r WHERE restores IS NOT NULL) END
"""


_IN_USE = """
SELECT EXISTS (SELECT 1 FROM campaign WHERE content_id = :id
    AND flow_id = (SELECT flow_id FROM template WHERE id = :template_id))
OR EXISTS (SELECT 1 FROM step WHERE template_id = :template_id AND content_id = :id)
"""


class Origin(Struct):
    """How one revision came about.

    An edit `follows` the one it was made from. A restored one also names what it `restores`. A step of undo or redo
    only `restores`: it makes nothing new, and the next edit follows what it restored.
    """

    number: int
    follows: int | None
    restores: int | None

    @property
    def position(self) -> int:
        """The edit that a template with this revision stands at."""
        return self.restores if self.restores is not None and self.follows is None else self.number


def document(template: Template) -> dict[str, Any]:
    """Return what a revision keeps of a template."""
    return {name: getattr(template, name) for name in FIELDS}


def remember(
    template: Template, label: str, user_id: int | None, origin: Origin, touched: str | None = None
) -> TemplateRevision:
    """Keep a template as it stands now; `touched` names the one value that was changed, if it was one."""
    writing()
    made = TemplateRevision.create(
        template=template, number=origin.number, follows=origin.follows, restores=origin.restores,
        document=document(template), label=label[:255], touched=touched, user=user_id, created_at=template.updated_at,
    )  # fmt: skip
    if origin.number % _THIN_EVERY == 0:
        thin(template.id)
    return made


def folded(template: Template, touched: str | None, user_id: int | None) -> Origin | None:
    """Take out the last revision if the same person changed the same value a moment ago, and answer where it came from.

    One that is named, sent, or what a version of a flow says, stays.
    """
    writing()
    if touched is None:
        return None
    last = TemplateRevision.get(TemplateRevision.template == template.id, TemplateRevision.number == template.revision)
    is_same = (last.touched, last.user_id, last.restores, last.named) == (touched, user_id, None, False)
    if not is_same or last.number == 1 or abs(clock.now_ms() - last.created_at) > FOLD_MS:
        return None
    if rows(_IN_USE, {"id": last.id, "template_id": template.id})[0][0]:
        return None
    found = Origin(last.number, last.follows, None)
    connection().execute("DELETE FROM template_revision WHERE id = ?", (last.id,))
    return found


def changed_words(names: list[str]) -> str:
    """Name an edit by the fields it changed."""
    return "Changed " + ", ".join(_WORDS.get(name, name) for name in names)


def origins_of(template_id: int) -> dict[int, Origin]:
    """Return how each revision of a template came about, by number, oldest first."""
    found = rows(
        "SELECT number, follows, restores FROM template_revision WHERE template_id = ? ORDER BY number", (template_id,)
    )
    return {row[0]: Origin(*row) for row in found}


def page(account_id: int, template_id: int, query: PageQuery) -> Page:
    """List the revisions of a template, newest first, with who made them and without what they hold; or NotFound."""
    _known(account_id, template_id)
    kept = TemplateRevision
    found = (
        kept.select(kept.id, kept.number, kept.follows, kept.restores, kept.named, kept.label, kept.created_at, User)
        .join_from(kept, User, JOIN.LEFT_OUTER)
        .where(kept.template == template_id)
        .order_by(kept.number.desc())
    )
    return paginate(found, query.page, query.size())


def get(account_id: int, template_id: int, number: int) -> TemplateRevision:
    """Return one revision of a template; raises NotFound."""
    _known(account_id, template_id)
    found = TemplateRevision.get_or_none(TemplateRevision.template == template_id, TemplateRevision.number == number)
    if found is None:
        raise NotFound
    return found


def is_by_person(template: Template) -> bool:
    """Return whether somebody who is signed in wrote what a template says now, and not a program."""
    return author(template) is not None


def author(template: Template) -> int | None:
    """Return who wrote what a template says now; None where a program did."""
    found = TemplateRevision.select(TemplateRevision.user).where(
        TemplateRevision.template == template.id, TemplateRevision.number == template.revision
    )
    row = found.first()
    return row.user_id if row is not None else None


def name(account_id: int, template_id: int, number: int, label: str | None) -> TemplateRevision:
    """Name a revision, which keeps it for good; without a label it is one of many again. Raises NotFound."""
    writing()
    found = get(account_id, template_id, number)
    label = (label or "").strip()[:255]
    found.label, found.named = label or "Edited", bool(label)
    found.save(only=[TemplateRevision.label, TemplateRevision.named])
    return found


def pin(template: Template, label: str) -> TemplateRevision:
    """Return the revision that is the template as it stands now, named; what somebody named before keeps that name."""
    writing()
    found = TemplateRevision.get(TemplateRevision.template == template.id, TemplateRevision.number == template.revision)
    if not found.named:
        found.label, found.named = label, True
        found.save(only=[TemplateRevision.label, TemplateRevision.named])
    return found


def read_at(template: Template, moment: int) -> TemplateRevision | None:
    """Return the revision that somebody had before them who read a template as of its `updated_at`, if it is kept."""
    found: TemplateRevision | None = (
        TemplateRevision.select()
        .where(TemplateRevision.template == template.id, TemplateRevision.created_at <= moment)
        .order_by(TemplateRevision.number.desc())
        .first()
    )
    return found


def thin(template_id: int) -> int:
    """Take out old revisions: not the first, the last of a day, or one named, sent, or brought back by one that stays.

    What followed one that goes follows what that one followed, so that undo walks over the gap. Old steps of undo and
    redo go first: what they brought back is still there. Answers how many went.
    """
    writing()
    here = connection()
    gone = rows(_OLD, {"id": template_id, "last": LAST, "day": _DAY_MS})
    for number, follows in sorted(gone, reverse=True):
        here.execute(
            "UPDATE template_revision SET follows = ? WHERE template_id = ? AND follows = ?",
            (follows, template_id, number),
        )
        here.execute("DELETE FROM template_revision WHERE template_id = ? AND number = ?", (template_id, number))
    return len(gone)


def _known(account_id: int, template_id: int) -> None:
    if not Template.select().where(Template.account == account_id, Template.id == template_id).exists():
        raise NotFound


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Name the fields in which two documents differ."""
    return [one for one in FIELDS if before.get(one) != now.get(one)]
