"""The API of a signed-in user for the export and import of content files, called from a thread of the same process.

Every call is checked as over HTTP (`in_process`): scopes of the role, limits, validation and audit log.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sanic import Request

from appliance.accounts import audit
from appliance.accounts.access import Credential
from appliance.accounts.audit import Actor
from appliance.api.in_process import ApiCall, ApiReply, call_api
from appliance.content import media
from appliance.core.errors import Conflict, Invalid, Unavailable
from appliance.core.i18n import gettext
from appliance.remote.errors import CommandError, ServiceError
from appliance.settings import config
from appliance.storage.transactions import commit, fetch
from campanero_client.errors import ApiError

_PAGE_SIZE = 100
# A call that exceeds a rate limit is repeated for this long.
_MAX_WAIT_SECONDS = 120.0


class FileResponse(NamedTuple):
    """The response to the request for a picture, or to its upload."""

    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the JSON of the body."""
        return json.loads(self.content)


class InProcessConnection:
    """Calls the API with the credential of a user; its methods run in a thread beside the event loop."""

    def __init__(self, origin: Request, credential: Credential, actor: Actor) -> None:
        self.url = config.base_url(config.current())
        self._origin, self._credential, self._actor = origin, credential, actor
        self._loop = asyncio.get_running_loop()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of a response; raises ServiceError."""
        return self._send(ApiCall(method, path, {}, body)).value

    def pages(self, path: str, query: dict[str, Any]) -> Iterator["_Page"]:
        """Yield the pages of a list; raises ServiceError."""
        number = 1
        while True:
            reply = self._send(ApiCall("GET", path, {**query, "limit": _PAGE_SIZE, "page": number}))
            yield _Page(reply.value)
            if len(reply.value) < _PAGE_SIZE:
                return
            number += 1

    def request(self, method: str, path: str, files: dict[str, tuple[str, bytes]] | None = None) -> FileResponse:
        """Return a picture (`GET /m/ID`), or store one (`POST /uploads`); raises CommandError."""
        if files is not None:
            response: FileResponse = self._run(self._upload(*files["file"]))
            return response
        served = self._run(fetch(media.find_served, path.removeprefix(media.URL_PATH)))
        if served is None:
            return FileResponse({}, b"")
        return FileResponse({"content-type": served.content_type}, served.content)

    def _send(self, call: ApiCall) -> ApiReply:
        """Return the reply to a call, which is repeated while a rate limit is exceeded. Raises ServiceError."""
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while True:
            reply: ApiReply = self._run(call_api(self._origin, self._credential, call))
            if not reply.is_error:
                return reply
            seconds = float(reply.headers.get("retry-after") or 0)
            if reply.status != 429 or time.monotonic() + seconds > deadline:
                body = reply.value if isinstance(reply.value, dict) else {}
                raise ServiceError(ApiError(reply.status, body, reply.headers), self.url)
            time.sleep(max(seconds, 0.1))

    async def _upload(self, filename: str, content: bytes) -> FileResponse:
        if not self._credential.has_scope("templates:write"):
            raise CommandError(gettext("Your role does not allow this."))
        account_id = self._credential.account_id
        with TemporaryDirectory(prefix=media.UPLOAD_DIR_PREFIX) as directory:
            path = Path(directory) / "file"
            await asyncio.to_thread(path.write_bytes, content)
            try:
                picture = await media.decode(account_id, media.prepare_upload, path)
                args = (media.add, account_id, filename, picture)
                stored = await commit(audit.run_and_record_agent, self._actor, "picture_upload", *args)
            except Invalid as error:
                raise CommandError(f"{filename}: {next(iter(error.fields.values()))[0]}") from None
            except (Conflict, Unavailable) as error:
                raise CommandError(f"{filename}: {error.message}") from None
        return FileResponse({}, json.dumps({"url": media.public_url(stored.signed_id)}).encode())

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class _Page(NamedTuple):
    items: Any
