"""Uploaded pictures: re-encoded, stored in the database, and served under random names that cannot be guessed."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from appliance.accounts import limits
from appliance.accounts.public_urls import fetch_base_url
from appliance.content import pictures
from appliance.content.pictures import Picture, UnusablePicture
from appliance.core import clock, crypto
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext, translate_stored
from appliance.settings import config
from appliance.storage.database import Page, fetch_one, paginate, rows
from appliance.storage.models import Media
from appliance.storage.transactions import require_write_transaction

T = TypeVar("T")
MAX_UPLOAD_BYTES = 5 * 1_048_576
URL_PATH = "/m/"
# The directory of the icons of social links, below URL_PATH.
ICONS_DIRECTORY = "icons"
# The prefix of the temporary directory that an upload is written to.
UPLOAD_DIR_PREFIX = "campanero-upload-"
# The one thread of this executor waits for the child process that decodes pictures one at a time (`pictures.py`).
_decoder = ThreadPoolExecutor(1, thread_name_prefix="pictures")
_account_locks: dict[int, asyncio.Lock] = {}
_NAME_LENGTH = 32
_PER_PAGE = 24


class ServedPicture(NamedTuple):
    """The content type and the bytes of a picture, as it is served."""

    content_type: str
    content: bytes


def public_url(signed_id: str) -> str:
    """Return the URL of a picture at the installation; for recipients, `move_urls` replaces its base URL."""
    return f"{config.base_url(config.current())}{URL_PATH}{signed_id}"


def move_urls(account_id: int, text: str, base_url: str) -> str:
    """Return a text in which `base_url`, that of the account, replaces the base URL of its pictures and of icons.

    The URL of another account's picture stays unchanged, because the picture is not served under this base URL.
    """
    prefix = public_url("")
    if not text or prefix == f"{base_url}{URL_PATH}" or prefix not in text:
        return text
    pattern = re.compile(re.escape(prefix) + rf"({ICONS_DIRECTORY}/|[A-Za-z0-9]{{{_NAME_LENGTH}}})")
    own_names = {f"{ICONS_DIRECTORY}/", *get_filenames(account_id, set(pattern.findall(text)))}
    return pattern.sub(lambda match: f"{base_url}{URL_PATH}{match[1]}" if match[1] in own_names else match[0], text)


def resolve_url(address: str | None) -> str | None:
    """Return the URL of a picture given by its URL or its signed id; None if `address` is empty."""
    if not address or address.lower().startswith(("http://", "https://")):
        return address or None
    return public_url(address)


def find_signed_id(account_id: int, address: str) -> str | None:
    """Return the signed id of an upload of the account from its public URL, or None for any other address.

    Storing the id keeps the picture reachable when the service's base URL changes.
    """
    prefixes = (public_url(""), f"{fetch_base_url(account_id)}{URL_PATH}")
    prefix = next((prefix for prefix in prefixes if address.startswith(prefix)), "")
    signed_id = address.removeprefix(prefix)
    conditions = Media.account == account_id, Media.signed_id == signed_id
    return signed_id if signed_id != address and Media.select().where(*conditions).exists() else None


def get_filenames(account_id: int, signed_ids: set[str]) -> dict[str, str]:
    """Return the file names of the account's pictures with these signed ids, by signed id."""
    if not signed_ids:
        return {}
    query = Media.select(Media.signed_id, Media.filename)
    query = query.where(Media.account == account_id, Media.signed_id.in_(signed_ids))
    return {media.signed_id: media.filename for media in query}


async def decode(account_id: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that decodes a picture of an account on the decoder thread, and return its result.

    One picture is decoded at a time. Each account has at most one call in the queue, so that accounts take turns.
    """
    async with _account_locks.setdefault(account_id, asyncio.Lock()):
        return await asyncio.get_running_loop().run_in_executor(_decoder, copy_context().run, function, *arguments)


def prepare_upload(path: Path, full_size: bool = False) -> Picture:
    """Re-encode an uploaded file for emails; call it through `decode`. `full_size` is passed to `pictures.convert`.

    Raises Invalid for an unusable picture, or Unavailable if no picture can be decoded now.
    """
    try:
        return pictures.convert(path.read_bytes(), full_size)
    except UnusablePicture as why:
        raise Invalid({"file": [translate_stored(str(why))]}) from None


def add(account_id: int, filename: str, picture: Picture) -> Media:
    """Store a picture under a new random signed id and return its row.

    Raises Conflict (`account_limit`) if the account has no room for it.
    """
    require_write_transaction()
    limits.require_picture(account_id, len(picture.content))
    media: Media = Media.create(
        account=account_id, signed_id=crypto.random_base62(_NAME_LENGTH), filename=filename or "picture",
        content_type=picture.content_type, bytes=len(picture.content), width=picture.width, height=picture.height,
        created_at=clock.now_ms(), content=picture.content,
    )  # fmt: skip
    return media


def get(account_id: int, media_id: int) -> Media:
    """Return a picture without its content; raises NotFound."""
    media: Media | None = _pictures(account_id).where(Media.id == media_id).get_or_none()
    if media is None:
        raise NotFound
    return media


def fetch_page(account_id: int, number: int = 1, limit: int = _PER_PAGE, search: str = "") -> Page:
    """Return a page of pictures without their content, newest first.

    `search` matches any part of the file name.
    """
    query = _pictures(account_id)
    if search:
        query = query.where(Media.filename.contains(search))
    return paginate(query.order_by(Media.id.desc()), number, limit)


def _pictures(account_id: int) -> Any:
    columns = [column for column in Media._meta.sorted_fields if column is not Media.content]
    return Media.select(*columns).where(Media.account == account_id)


def find_served(signed_id: str) -> ServedPicture | None:
    """Return the content of the picture with a signed id, or None if there is no such picture."""
    row = fetch_one("SELECT content_type, content FROM media WHERE signed_id = ?", (signed_id,))
    return ServedPicture(*row) if row else None


def exists(signed_id: str) -> bool:
    """Return whether a picture with this signed id exists."""
    return fetch_one("SELECT 1 FROM media WHERE signed_id = ?", (signed_id,)) is not None


_BRAND = "coalesce(b.logo, '') || b.default_header || b.default_footer || b.default_theme"


def find_uses(account_id: int, media_id: int) -> list[dict[str, Any]]:
    """Return where a picture is used, in templates, campaigns, flows, the brand and single messages; raises NotFound.

    Each use is a dict: `template_id`, `campaign_id`, `flow_id` or `brand_id` with the id, and `name`. The last item may
    be `{"messages": n}`, the number of single messages. Signed ids cannot be guessed, so every text that contains the
    picture's id uses the picture.
    """
    name = get(account_id, media_id).signed_id
    uses = _find_current_uses(account_id, name)
    messages = fetch_one(
        "SELECT count(*) FROM message m JOIN message_content c ON c.message_id = m.id "
        "LEFT JOIN bulk_content b ON b.id = c.bulk_id WHERE m.account_id = ?2 AND "
        "m.created_at >= (SELECT created_at FROM media WHERE signed_id = ?1) "
        "AND (instr(c.body, ?1) OR instr(b.body, ?1) OR instr(c.design, ?1) OR instr(c.data, ?1))",
        (name, account_id),
    )
    return [*uses, {"messages": messages[0]}] if messages and messages[0] else uses


def _find_current_uses(account_id: int, name: str) -> list[dict[str, Any]]:
    """Return the items of `find_uses` except for single messages."""
    shows_picture = "(instr(t.body, ?1) OR instr(t.design, ?1) OR instr(t.translations, ?1))"
    statements = {
        "template_id": f"SELECT t.id, t.name FROM template t WHERE t.account_id = ?2 AND t.flow_id IS NULL "
        f"AND {shows_picture} ORDER BY t.id",
        "campaign_id": "SELECT c.id, c.name FROM campaign c LEFT JOIN template_revision r ON r.id = c.content_id "
        "WHERE c.account_id = ?2 AND c.deleted_at IS NULL AND (instr(r.document, ?1) "
        f"OR EXISTS (SELECT 1 FROM template t WHERE t.flow_id = c.flow_id AND {shows_picture}) "
        "OR EXISTS (SELECT 1 FROM variant v JOIN experiment x ON x.id = v.experiment_id "
        "WHERE x.campaign_id = c.id AND instr(v.document, ?1))) ORDER BY c.id",
        "flow_id": "SELECT f.id, f.name FROM flow f WHERE f.account_id = ?2 AND NOT f.hidden "
        f"AND (instr(f.steps, ?1) OR EXISTS (SELECT 1 FROM template t WHERE t.flow_id = f.id "
        f"AND {shows_picture}) OR EXISTS (SELECT 1 FROM step s JOIN template_revision r ON r.id = s.content_id "
        f"WHERE s.flow_id = f.id AND instr(r.document, ?1))) ORDER BY f.id",
        "brand_id": f"SELECT b.id, b.company_name FROM brand b WHERE b.account_id = ?2 AND instr({_BRAND}, ?1)",
    }
    return [
        {kind: number, "name": title}
        for kind, sql in statements.items()
        for number, title in rows(sql, (name, account_id))
    ]


def require_unused(account_id: int, media_id: int) -> None:
    """Raise Invalid if a picture is in use, also by single messages. Call it before `delete`, outside the transaction.

    The check searches every message of the account since the upload, which takes too long for a write transaction. Also
    raises NotFound.
    """
    _raise_if_used(find_uses(account_id, media_id))


def delete(account_id: int, media_id: int) -> Media:
    """Delete a picture and return its row.

    Raises NotFound, or Invalid if a template, campaign, flow or the brand uses the picture. Single messages are not
    checked here: see `require_unused`.
    """
    require_write_transaction()
    media = get(account_id, media_id)
    _raise_if_used(_find_current_uses(account_id, media.signed_id))
    Media.delete().where(Media.id == media_id).execute()
    return media


def _raise_if_used(used: list[dict[str, Any]]) -> None:
    if used:
        raise Invalid({"base": [gettext("is in use")]}, reason="in_use", used_by=used)
