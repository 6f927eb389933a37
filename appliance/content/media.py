"""Pictures that mails show: written anew, kept in the database, served under names that nobody can guess."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from appliance.content.pictures import process
from appliance.content.pictures.kinds import Picture, Unusable
from appliance.core import clock, tokens
from appliance.core.errors import Invalid, NotFound
from appliance.core.pagination import Page, paginate
from appliance.settings import config
from appliance.storage.models import Media
from appliance.storage.open import fetch_one, rows
from appliance.storage.work import writing

T = TypeVar("T")
MAX_BYTES = 5 * 1_048_576
PATH = "/m/"
# What the directory begins with that a file comes to, before it is a picture
ROOM = "campanero-upload-"
# Its thread waits for the child process that decodes pictures (`pictures.process`), one at a time
_decoder = ThreadPoolExecutor(1, thread_name_prefix="pictures")
_account_locks: dict[int, asyncio.Lock] = {}
_NAME_LENGTH = 32
_PER_PAGE = 24


class Served(NamedTuple):
    """A picture as a browser gets it."""

    content_type: str
    content: bytes


def url(signed_id: str) -> str:
    """Return the public address of a picture."""
    return f"{config.base_url(config.current())}{PATH}{signed_id}"


def shown(address: str | None) -> str | None:
    """Return what is written where a picture stands, a signed id or an address, as an address."""
    if not address or address.lower().startswith(("http://", "https://")):
        return address or None
    return url(address)


def named(account_id: int, address: str) -> str | None:
    """Return the signed id of an upload from its public address, so that it outlives a move to another host."""
    signed_id = address.removeprefix(url(""))
    known = Media.account == account_id, Media.signed_id == signed_id
    return signed_id if signed_id != address and Media.select().where(*known).exists() else None


async def decode(account_id: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run what decodes a picture of an account, beside the loop and away from the database.

    One picture is decoded at a time, and of each account only one waits for that: the accounts take turns, so that
    nobody waits for all that one account uploads.
    """
    async with _account_locks.setdefault(account_id, asyncio.Lock()):
        return await asyncio.get_running_loop().run_in_executor(_decoder, function, *arguments)


def prepared(path: Path, full_size: bool = False) -> Picture:
    """Make what is served of an uploaded file; runs in `decode`.

    Raises Invalid in words, or Unavailable where no picture can be decoded now.
    """
    try:
        return process.remake(path.read_bytes(), full_size)
    except Unusable as why:
        raise Invalid({"file": [str(why)]}) from None


def add(account_id: int, filename: str, picture: Picture) -> Media:
    """Keep a picture."""
    writing()
    made: Media = Media.create(
        account=account_id, signed_id=tokens.random_base62(_NAME_LENGTH), filename=filename or "picture",
        content_type=picture.content_type, bytes=len(picture.content), width=picture.width, height=picture.height,
        created_at=clock.now_ms(), content=picture.content,
    )  # fmt: skip
    return made


def get(account_id: int, media_id: int) -> Media:
    """Return a picture, all but its content."""
    found: Media | None = _pictures(account_id).where(Media.id == media_id).get_or_none()
    if found is None:
        raise NotFound
    return found


def page(account_id: int, number: int = 1, limit: int = _PER_PAGE, search: str = "") -> Page:
    """Return the account's pictures, newest first, without their content; `search` is a part of the file's name."""
    query = _pictures(account_id)
    if search:
        query = query.where(Media.filename.contains(search))
    return paginate(query.order_by(Media.id.desc()), number, limit)


def _pictures(account_id: int) -> Any:
    columns = [column for column in Media._meta.sorted_fields if column is not Media.content]
    return Media.select(*columns).where(Media.account == account_id)


def served(signed_id: str) -> Served | None:
    """Return a picture to whoever knows its name, or None."""
    found = fetch_one("SELECT content_type, content FROM media WHERE signed_id = ?", (signed_id,))
    return Served(*found) if found else None


def is_kept(signed_id: str) -> bool:
    """Return whether a picture of this name is served."""
    return fetch_one("SELECT 1 FROM media WHERE signed_id = ?", (signed_id,)) is not None


_BRAND = "coalesce(b.logo, '') || b.default_header || b.default_footer || b.default_theme"


def used_in(account_id: int, media_id: int) -> list[dict[str, Any]]:
    """Return what shows a picture: templates, campaigns with what they sent, flows, the brand, single messages.

    A name that nobody can guess stands in a text for no other reason, so texts are searched for it.
    """
    name = get(account_id, media_id).signed_id
    found = _used(account_id, name)
    messages = fetch_one(
        "SELECT count(*) FROM message m JOIN message_content c ON c.message_id = m.id WHERE m.account_id = ?2 AND "
        "m.created_at >= (SELECT created_at FROM media WHERE signed_id = ?1) "
        "AND (instr(c.body, ?1) OR instr(c.design, ?1) OR instr(c.data, ?1))",
        (name, account_id),
    )
    return [*found, {"messages": messages[0]}] if messages and messages[0] else found


def _used(account_id: int, name: str) -> list[dict[str, Any]]:
    """Return what is still worked on, or was sent to many, with a picture of this name."""
    written = "(instr(t.body, ?1) OR instr(t.design, ?1))"
    asked = {
        "template_id": f"SELECT t.id, t.name FROM template t WHERE t.account_id = ?2 AND t.flow_id IS NULL "
        f"AND {written} ORDER BY t.id",
        "campaign_id": f"SELECT c.id, c.name FROM campaign c JOIN template t ON t.id = c.template_id "
        f"LEFT JOIN template_revision r ON r.id = c.content_id WHERE c.account_id = ?2 AND c.deleted_at IS NULL "
        f"AND ({written} OR instr(r.document, ?1)) ORDER BY c.id",
        "flow_id": "SELECT f.id, f.name FROM flow f WHERE f.account_id = ?2 AND NOT f.hidden "
        f"AND (instr(f.steps, ?1) OR EXISTS (SELECT 1 FROM template t WHERE t.flow_id = f.id "
        f"AND {written}) OR EXISTS (SELECT 1 FROM step s JOIN template_revision r ON r.id = s.content_id "
        f"WHERE s.flow_id = f.id AND instr(r.document, ?1))) ORDER BY f.id",
        "brand_id": f"SELECT b.id, b.company_name FROM brand b WHERE b.account_id = ?2 AND instr({_BRAND}, ?1)",
    }
    return [
        {kind: number, "name": title} for kind, sql in asked.items() for number, title in rows(sql, (name, account_id))
    ]


def must_be_unused(account_id: int, media_id: int) -> None:
    """Raise Invalid while anything shows a picture; asked before `delete`, for it reads every message."""
    _refuse(used_in(account_id, media_id))


def delete(account_id: int, media_id: int) -> Media:
    """Delete a picture and answer what it was; raises NotFound, or Invalid while anything of now shows it."""
    writing()
    found = get(account_id, media_id)
    _refuse(_used(account_id, found.signed_id))
    Media.delete().where(Media.id == media_id).execute()
    return found


def _refuse(used: list[dict[str, Any]]) -> None:
    if used:
        raise Invalid({"base": ["is in use"]}, reason="in_use", used_by=used)
