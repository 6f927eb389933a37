"""Which handler a path belongs to, and what the library does at its start without what is for people who debug it."""

import re
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from sanic import Sanic
from sanic.mixins import routes
from sanic.router import Router
from sanic.touchup import TouchUp
from sanic_routing import route
from sanic_routing import router as library
from sanic_routing.exceptions import NoMethod, NotFound
from sanic_routing.group import RouteGroup
from sanic_routing.utils import parts_to_path, path_to_parts

# Of paths like ours the parts are what stands between the slashes; the library looks at each part for what it may be
_PLAIN = re.compile(r"[/\w.-]*(?:<\w+:\w+>[/\w.-]*)*", re.ASCII)


@cache
def _path_to_parts(path: str, delimiter: str = "/") -> tuple[str, ...]:
    if _PLAIN.fullmatch(path):
        return tuple(path.lstrip(delimiter).split(delimiter))
    return tuple(path_to_parts(path, delimiter))  # type: ignore[no-untyped-call]  # untyped in the library


@cache
def _parts_to_path(parts: tuple[str, ...], delimiter: str = "/") -> str:
    path = delimiter.join(parts)
    if _PLAIN.fullmatch(path):
        return path
    return str(parts_to_path(parts, delimiter))  # type: ignore[no-untyped-call]  # untyped in the library


def _with_parameters(handler: Callable[..., Any]) -> SimpleNamespace:
    """Answer what stands for the signature of a handler: the library wants to see that there is a parameter."""
    code = handler.__code__
    return SimpleNamespace(parameters=dict.fromkeys(code.co_varnames[: code.co_argcount]))


vars(routes)["signature"] = _with_parameters
# Each route takes its path apart and puts it together five times, and most paths have several methods
for _place in (library, route):
    vars(_place).update(path_to_parts=_path_to_parts, parts_to_path=_parts_to_path)

# The kinds of parameters that paths have, in the order in which they are tried; the last takes all that is left
_KINDS = ("int", "str", "path")


class Crossing(NamedTuple):
    """A place in a path: what may follow, and what ends here."""

    words: dict[str, "Crossing"]
    values: dict[str, tuple[Callable[[str], Any], "Crossing"]]
    ends: list[RouteGroup]


class PathRouter(Router):
    """Walks along a path: a word goes before a number, a number before any text; what leads nowhere is left again.

    The library writes a program of 130 KB for its routes and compiles it at each start, a seventh of it. This is no
    slower. Routes are of our own making: what it does not know it refuses when it is added.
    """

    def finalize(self, *args: Any, **kwargs: Any) -> None:
        """Make ready for requests; raises TypeError for a route of a kind that is not known here."""
        self._first = Crossing({}, {}, [])
        super().finalize(*args, **kwargs)

    def _generate_tree(self) -> None:
        for group in [*self.static_routes.values(), *self.dynamic_routes.values(), *self.regex_routes.values()]:
            if group.strict or group.unquote or any(one.requirements for one in group.routes):
                raise TypeError(f"/{group.path} wants what this router does not do")
            here, params = self._first, group[0].defined_params
            for index, part in enumerate(group.parts):
                if index not in params:
                    here = here.words.setdefault(part, Crossing({}, {}, []))
                    continue
                kind = params[index].label
                if kind not in _KINDS or (kind == "path" and index + 1 < len(group.parts)):
                    raise TypeError(f"/{group.path} has a parameter that this router does not know")
                _, here = here.values.setdefault(kind, (params[index].cast, Crossing({}, {}, [])))
            here.ends.append(group)

    def _render(self, do_compile: bool = True, do_optimize: bool = False) -> None:
        """Do nothing: there is no program to write."""

    def resolve(
        self, path: str, *, method: str | None = None, orig: str | None = None, extra: dict[str, str] | None = None
    ) -> tuple[Any, Callable[..., Any], dict[str, Any]]:
        """Answer the route of a path, its handler, and the values in the path; slashes at the end do not count.

        Raises NotFound, and NoMethod with the methods that there are.
        """
        values: dict[int, Any] = {}
        # All slashes at once: who sends thousands must not have each of them tried
        bare = path.rstrip(self.delimiter) or self.delimiter
        ways = (_walk(self._first, one[1:].split(self.delimiter), 0, values) for one in dict.fromkeys((path, bare)))
        group = next(filter(None, ways), None)
        if group is None:
            raise NotFound(path=path)
        found = group.methods_index.get(method)
        if found is None:
            raise NoMethod(method=method, allowed_methods=set(group.methods), path=path)
        return found, found.handler, {found.defined_params[index].name: value for index, value in values.items()}

    def _normalize(self, uri: str, handler: Any) -> str:
        """Ask a handler what its parameters are only where the path does not say it."""
        if all(":" in part for part in uri.split("/") if part.startswith("<")):
            return uri
        return super()._normalize(uri, handler)


def _walk(here: Crossing, parts: list[str], at: int, values: dict[int, Any]) -> RouteGroup | None:
    """Answer the routes at the end of a path, and note its values; None where it leads nowhere."""
    if at == len(parts):
        return here.ends[0] if here.ends else None
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


def catch_up(app: "Sanic[Any, Any]") -> None:
    """Take the steps that nobody listens to out of the code of requests, which the start left in (`TOUCHUP`).

    The library rewrites its own source for that, a twentieth of a start; from the next request on it is quicker.
    """
    TouchUp.run(app)  # type: ignore[no-untyped-call]  # untyped in the library
