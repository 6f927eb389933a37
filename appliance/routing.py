"""Which handler a path belongs to, and what the library does at its start without what is for people who debug it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from sanic import Sanic
from sanic.middleware import Middleware, MiddlewareLocation
from sanic.router import Router
from sanic.touchup import TouchUp
from sanic_routing.exceptions import NoMethod, NotFound
from sanic_routing.route import Route

# The kinds of parameters that paths have, in the order in which they are tried; the last takes all that is left
_KINDS = ("int", "str", "path")
_ORDER = attrgetter("order")


class Guards(NamedTuple):
    """What each request to some routes passes on its way in, and each answer on its way out."""

    before: Sequence[Middleware] = ()
    after: Sequence[Middleware] = ()


def guards(before: Callable[..., Any], after: Callable[..., Any]) -> Guards:
    """Return the guards of a door; among those of the whole service they have the place of this moment."""
    return Guards(
        (Middleware(before, MiddlewareLocation.REQUEST),),
        (Middleware(after, MiddlewareLocation.RESPONSE),),
    )


class Promised(NamedTuple):
    """A route that is known, and made when somebody first asks for it: to make hundreds took a twentieth of a start."""

    path: str  # as the library writes it, with a kind for each parameter
    name: str
    methods: Sequence[str]
    handler: Callable[..., Any]
    error_format: str
    streams: bool = False  # the handler takes the body itself
    ignore_body: bool = False
    context: Mapping[str, Any] = MappingProxyType({})
    guards: Guards = Guards()


# What ends at a place, by method
Ends = dict[str, Route | Promised]


class Crossing(NamedTuple):
    """A place in a path: what may follow, and what ends here."""

    words: dict[str, "Crossing"]
    values: dict[str, tuple[Callable[[str], Any], "Crossing"]]
    ends: Ends


class PathRouter(Router):
    """Walks along a path: a word goes before a number, a number before any text; what leads nowhere is left again.

    The library writes a program for its routes and compiles it at each start: 130 KB for as many as these are. This is
    no slower, and knows routes that are only promised. They are of our own making: what it does not know it refuses
    when it is added.
    """

    def __init__(self) -> None:
        super().__init__()
        self._promised: list[Promised] = []

    def promise(self, found: Iterable[Promised]) -> None:
        """Add routes without making them; before `finalize`, which raises TypeError for what is not known here."""
        self._promised += found

    def finalize(self, *args: Any, **kwargs: Any) -> None:
        """Make ready for requests; raises TypeError for a route of a kind that is not known here, or there already."""
        self._first = Crossing({}, {}, {})
        super().finalize(*args, **kwargs)

    def _generate_tree(self) -> None:
        for group in [*self.static_routes.values(), *self.dynamic_routes.values(), *self.regex_routes.values()]:
            if group.strict or group.unquote or any(one.requirements for one in group.routes):
                raise TypeError(f"/{group.path} wants what this router does not do")
            for one in group.routes:
                self._place(f"/{group.path}", one)
        for promised in self._promised:
            self._place(promised.path, promised)

    def _place(self, path: str, one: Route | Promised) -> None:
        here, parts = self._first, path.strip(self.delimiter).split(self.delimiter)
        for index, part in enumerate(parts):
            if not part.startswith("<"):
                here = here.words.get(part) or here.words.setdefault(part, Crossing({}, {}, {}))
                continue
            kind = part[1:-1].partition(":")[2]
            if kind not in _KINDS or (kind == "path" and index + 1 < len(parts)):
                raise TypeError(f"{path} has a parameter that this router does not know")
            if kind not in here.values:
                here.values[kind] = (self.regex_types[kind][0], Crossing({}, {}, {}))
            here = here.values[kind][1]
        for method in one.methods:
            if here.ends.setdefault(method, one) is not one:
                raise TypeError(f"{method} {path} is there already, so this router does not add it")

    def _made(self, one: Promised) -> Route:
        """Return a route as the library makes it (`Router.add`, `Sanic.finalize_middleware`)."""
        app = self.ctx.app
        name, methods = app.generate_name(one.name), frozenset(one.methods)
        made = Route(self, one.path.strip("/"), name, one.handler, methods, static="<" not in one.path)
        made.finalize()  # type: ignore[no-untyped-call]  # untyped in the library
        if one.streams:
            vars(one.handler)["is_stream"] = True
        before = Middleware.convert(app.request_middleware, one.guards.before, location=MiddlewareLocation.REQUEST)
        after = Middleware.convert(app.response_middleware, one.guards.after, location=MiddlewareLocation.RESPONSE)
        vars(made.extra).update(
            ident=name, ignore_body=one.ignore_body, stream=one.streams, hosts=[None], static=False, websocket=False,
            error_format=one.error_format, request_middleware=deque(sorted(before, key=_ORDER, reverse=True)),
            response_middleware=deque(sorted(after, key=_ORDER)),
        )  # fmt: skip
        vars(made.ctx).update(one.context)
        return made

    def _render(self, do_compile: bool = True, do_optimize: bool = False) -> None:
        """Do nothing: there is no program to write."""

    def resolve(
        self, path: str, *, method: str | None = None, orig: str | None = None, extra: dict[str, str] | None = None
    ) -> tuple[Any, Callable[..., Any], dict[str, Any]]:
        """Return the route of a path, its handler, and the values in the path; slashes at the end do not count.

        Raises NotFound, and NoMethod with the methods that there are.
        """
        values: dict[int, Any] = {}
        # All slashes at once: who sends thousands must not have each of them tried
        bare = path.rstrip(self.delimiter) or self.delimiter
        ways = (_walk(self._first, one[1:].split(self.delimiter), 0, values) for one in dict.fromkeys((path, bare)))
        ends = next(filter(None, ways), None)
        if ends is None:
            raise NotFound(path=path)
        found = ends.get(method or "")
        if isinstance(found, Promised):
            made = self._made(found)
            ends.update(dict.fromkeys(found.methods, made))
            found = made
        if found is None:
            raise NoMethod(method=method, allowed_methods=set(ends), path=path)
        return found, found.handler, {found.defined_params[index].name: value for index, value in values.items()}

    def _normalize(self, uri: str, handler: Any) -> str:
        """Ask a handler what its parameters are only where the path does not say it."""
        if all(":" in part for part in uri.split("/") if part.startswith("<")):
            return uri
        return super()._normalize(uri, handler)


def _walk(here: Crossing, parts: list[str], at: int, values: dict[int, Any]) -> Ends | None:
    """Return what is at the end of a path, and note its values; None where it leads nowhere."""
    if at == len(parts):
        return here.ends or None
    part = parts[at]
    if (following := here.words.get(part)) and (found := _walk(following, parts, at + 1, values)):
        return found
    for kind in _KINDS:
        if kind not in here.values:
            continue
        read, following = here.values[kind]
        try:
            value = read(part) if kind != "path" else "/".join(parts[at:])
        except ValueError:
            continue
        if found := _walk(following, parts, len(parts) if kind == "path" else at + 1, values):
            values[at] = value
            return found
    return None


def promise(app: "Sanic[Any, Any]", found: Iterable[Promised]) -> None:
    """Add routes to the server that are made when somebody first asks for them."""
    router = app.router
    assert isinstance(router, PathRouter), "the server has our router"
    router.promise(found)


def catch_up(app: "Sanic[Any, Any]") -> None:
    """Take the steps that nobody listens to out of the code of requests, which the start left in (`TOUCHUP`).

    The library rewrites its own source for that, a twentieth of a start; from the next request on it is quicker.
    """
    TouchUp.run(app)  # type: ignore[no-untyped-call]  # untyped in the library
