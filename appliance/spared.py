"""What the web server's library brings along and nothing here uses: its own error pages, web sockets, HTTP/3, workers.

It imports them whether they are used or not, with four libraries that they need: a tenth of a start. Stand-ins with
the names that it asks for take their places before it does.
"""

import sys
from types import ModuleType

_UNUSED = {
    "sanic.pages.error": ("ErrorPage",),
    "sanic.pages.directory_page": ("DirectoryPage", "FileInfo"),
    "sanic.server.websockets.impl": ("WebsocketImplProtocol", "ConnectionClosed"),
    "sanic.server.websockets.connection": ("WebSocketConnection",),
    "sanic.server.protocols.websocket_protocol": ("WebSocketProtocol",),
    "sanic.http.http3": ("Http3", "HTTPReceiver", "SessionTicketStore", "get_config"),
    "sanic.worker.manager": ("WorkerManager",),
    "aiofiles": ("open",),
    "aiofiles.os": ("stat",),
}


class _Spared(Exception):
    """Whoever makes one of these is told so. Something to raise, because one of them is an exception."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(f"{type(self).__module__}.{type(self).__name__} is left out of this program")
        raise self


def spare() -> None:
    """Put the stand-ins into place; where the library was imported before, it keeps what it has."""
    for module, names in _UNUSED.items():
        standing = ModuleType(module)
        vars(standing).update({name: type(name, (_Spared,), {"__module__": module}) for name in names})
        sys.modules.setdefault(module, standing)
