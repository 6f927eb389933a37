"""Write the generated files of the Python client."""

import keyword
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from clients.generator.model import Alias, Api, ObjectType, Operation, Type

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "clients/python/campanero_client"
MARK = "Generated from the OpenAPI document by `python -m clients.generator`; do not edit."
_WIDTH = 116


def write(api: Api) -> dict[str, str]:
    """Return the generated files: their text by path from the root of the repository."""
    files = {
        "_version.py": _version(api),
        "_idempotency.py": _idempotency(api),
        "_client.py": _client(api),
        "types.py": _types(api),
        "resources/__init__.py": "\n".join(_docstring("", "The operations of each resource.", MARK)),
        **{f"resources/{name}.py": _resource(api, name) for name in api.resources},
    }
    return {f"{PACKAGE}/{name}": text for name, text in _format(files).items()}


def _format(files: dict[str, str]) -> dict[str, str]:
    """Return files as ruff formats them, all at once."""
    separator = "\n\n# ---- next file ----\n\n"
    command = [sys.executable, "-m", "ruff", "format", "--no-cache", "--stdin-filename", "client.py", "-"]
    whole = separator.join(files.values())
    done = subprocess.run(command, cwd=ROOT, input=whole, capture_output=True, text=True, timeout=60, check=True)
    parts = re.split(r"\n*# ---- next file ----\n*", done.stdout)
    return {name: f"{part.strip()}\n" for name, part in zip(files, parts, strict=True)}


def _docstring(indent: str, *paragraphs: str) -> list[str]:
    """Return the lines of a docstring with wrapped paragraphs."""
    wrapped = [
        textwrap.wrap(text, _WIDTH - len(indent) - 3, break_long_words=False, break_on_hyphens=False)
        for text in paragraphs
        if text
    ]
    lines = [line for number, part in enumerate(wrapped) for line in ([""] if number else []) + part]
    opening = 'r"""' if any("\\" in line for line in lines) else '"""'
    if len(lines) == 1 and len(indent + opening + lines[0] + '"""') <= 120:
        return [f'{indent}{opening}{lines[0]}"""']
    first, *others = lines
    return [f"{indent}{opening}{first}", *(f"{indent}{line}" if line else "" for line in others), f'{indent}"""']


def _sentence(text: str) -> str:
    """Return a description as a sentence: with a capital letter and a full stop."""
    flat = " ".join(text.split())
    if not flat:
        return ""
    return (flat if flat[0] == "`" else flat[0].upper() + flat[1:]) + ("" if flat[-1] in ".:" else ".")


# -- small files ------------------------------------------------------------------------------------------------------


def _version(api: Api) -> str:
    return "\n".join([*_docstring("", "The version of the client.", MARK), "", f'VERSION = "{api.version}"'])


def _idempotency(api: Api) -> str:
    paths = [
        re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(operation.path))
        for operation in api.operations
        if operation.is_idempotent and operation.http_method == "POST"
    ]
    rows = "\n".join(f'    r"{"|" if number else ""}{path}"' for number, path in enumerate(paths))
    text = "The POST requests that the service carries out once for an Idempotency-Key."
    return "\n".join([*_docstring("", text, MARK), "", "import re", "", "IDEMPOTENT_POSTS = re.compile(", rows, ")"])


def _client(api: Api) -> str:
    lines = [
        *_docstring("", "The clients, with a property for each resource.", MARK),
        "",
        "from __future__ import annotations",
        "",
        "from functools import cached_property",
        "from typing import TYPE_CHECKING",
        "",
        "from campanero_client._transport import AsyncTransport, Transport",
        "",
        "if TYPE_CHECKING:",
        *(
            f"    from campanero_client.resources.{name} import "
            f"{', '.join(sorted((_class(name), f'Async{_class(name)}')))}"
            for name in sorted(api.resources)
        ),
    ]
    for prefix in ("", "Async"):
        kind = "async code" if prefix else "one API key; threads may share it"
        text = f"A client of one service, for {kind}. See {prefix}Transport for the parameters."
        lines += ["", "", f"class {prefix}Campanero({prefix}Transport):", f'    """{text}"""', ""]
        for name, description in api.resources.items():
            lines += [
                "    @cached_property",
                f"    def {name}(self) -> {prefix}{_class(name)}:",
                *_docstring("        ", description),
                f"        from campanero_client.resources.{name} import {prefix}{_class(name)}  # loaded when used",
                "",
                f"        return {prefix}{_class(name)}(self)",
                "",
            ]
    return "\n".join(lines)


def _class(resource: str) -> str:
    return "".join(word.capitalize() for word in resource.split("_"))


# -- types ------------------------------------------------------------------------------------------------------------


def _types(api: Api) -> str:
    lines = [
        '"""The types of requests and responses, which are plain dicts at run time.',
        "",
        MARK,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any, Literal, NotRequired, TypeAlias, TypedDict",
    ]
    for item in api.types.values():
        lines += ["", ""]
        if isinstance(item, Alias):
            lines += [f"{item.name}: TypeAlias = (", *_quote(annotate(item.type)), ")"]
            lines += _docstring("", item.description)
        elif item.is_open:
            known = ", ".join(f"`{entry.name}`" for entry in item.properties)
            text = f"{item.description} Among its keys are {known}."
            lines += [f"{item.name}: TypeAlias = dict[str, Any]", *_docstring("", text)]
        else:
            lines += _typed_dict(item)
    return "\n".join(lines)


def _quote(text: str) -> list[str]:
    """Return the lines of a long text in quotes."""
    lines = textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)
    return [f'    "{line}{"" if number == len(lines) else " "}"' for number, line in enumerate(lines, 1)]


def _typed_dict(item: ObjectType) -> Iterator[str]:
    special = [entry for entry in item.properties if keyword.iskeyword(entry.name) or not entry.name.isidentifier()]
    base = "TypedDict"
    if special:
        base = f"_{item.name}Keywords"
        entries = ", ".join(f'"{entry.name}": "{_entry_type(entry.type, entry.is_required)}"' for entry in special)
        yield f'{base} = TypedDict("{base}", {{{entries}}})'
        yield ""
        yield ""
    yield f"class {item.name}({base}):"
    yield from _docstring("    ", _sentence(item.description) or f"{item.name}.")
    for entry in item.properties:
        if entry not in special:
            yield ""
            yield f"    {entry.name}: {_entry_type(entry.type, entry.is_required)}"
            if entry.description:
                yield from _docstring("    ", _sentence(entry.description))


def _entry_type(kind: Type, is_required: bool) -> str:
    return annotate(kind) if is_required else f"NotRequired[{annotate(kind)}]"


_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "any": "Any"}


def annotate(kind: Type, prefix: str = "") -> str:
    """Return a type as an annotation; `prefix` stands before the names of types."""
    match kind:
        case ("name", name):
            return f"{prefix}{name}"
        case ("literal", values):
            return f"Literal[{', '.join(_literal(value) for value in values)}]"
        case ("array", item):
            return f"list[{annotate(item, prefix)}]"
        case ("map", item):
            return f"dict[str, {annotate(item, prefix)}]"
        case ("union", parts):
            return " | ".join(annotate(part, prefix) for part in parts)
    return _SIMPLE[kind[0]]


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)


# -- resources --------------------------------------------------------------------------------------------------------


def _resource(api: Api, resource: str) -> str:
    operations = api.operations_of(resource)
    kinds = {operation.kind for operation in operations}
    names = ["AsyncTransport", "Transport"]
    names += ["AsyncPaginator", "Paginator"] if "list" in kinds else []
    names += ["AsyncDownload", "Download"] if "file" in kinds else []
    has_text = any(kind == "string" for operation in operations for _, kind in operation.path_parameters)
    has_form = any(operation.form for operation in operations)
    helpers = [*(["form_fields"] if has_form else []), *(["path_segment"] if has_text else [])]
    lines = [
        *_docstring("", api.resources[resource], MARK),
        "",
        "from __future__ import annotations",
        "",
        "from typing import TYPE_CHECKING",
        "",
        *([f"from campanero_client._requests import {', '.join(helpers)}"] if helpers else []),
        f"from campanero_client._transport import {', '.join(sorted(names))}",
        "",
        "if TYPE_CHECKING:",
        *(["    from typing import Unpack", ""] if any(_has_keywords(item) for item in operations) else []),
        "    from campanero_client import types",
        *(["    from campanero_client._requests import File"] if has_form else []),
    ]
    for prefix in ("", "Async"):
        name = f"{prefix}{_class(resource)}"
        lines += ["", "", f"class {name}:", *_docstring("    ", api.resources[resource])]
        lines += ["", f"    def __init__(self, transport: {prefix}Transport) -> None:"]
        lines += ["        self._transport = transport"]
        for operation in operations:
            lines += ["", *_method(operation, prefix)]
    return "\n".join(lines)


def _method(operation: Operation, prefix: str) -> Iterator[str]:
    is_async = prefix == "Async" and operation.kind in ("object", "nothing")
    name = f"{operation.method_name}{'_' if keyword.iskeyword(operation.method_name) else ''}"
    yield (f"    {'async ' if is_async else ''}def {name}({_parameters(operation)}) -> {_result(operation, prefix)}:")
    yield from _docstring("        ", f"{operation.summary}.", operation.description)
    path = _path(operation)
    query = "query" if operation.query else "{}"
    if operation.kind == "list":
        yield f"        return {prefix}Paginator(self._transport, {path}, {query})"
    elif operation.kind == "file":
        yield f"        return {prefix}Download(self._transport, {path}, {query})"
    else:
        call = f'self._transport.call("{operation.http_method}", {path}{"".join(_arguments(operation))})'
        wait = "await " if is_async else ""
        if operation.kind == "nothing":
            yield f"        {wait}{call}"
        else:
            yield f"        result: types.{operation.result} = {wait}{call}"
            yield "        return result"


def _parameters(operation: Operation) -> str:
    positional = [f"{name}: {_SIMPLE[kind]}" for name, kind in operation.path_parameters]
    parts = ["self", *positional]
    parts += ["file: File"] if operation.form else []
    parts += ["/"] if operation.body or operation.query or operation.form else []
    named = []
    if operation.is_idempotent and not operation.has_key_in_body:
        named.append("idempotency_key: str | None = None")
    if _has_query_beside_body(operation):
        named += [f"{item.name}: {annotate(item.type, 'types.')} | None = None" for item in operation.query_properties]
    parts += ["*", *named] if named else []
    rest = operation.body or operation.form or operation.query
    if rest:
        variable = "query" if rest == operation.query else "body"
        parts.append(f"**{variable}: Unpack[types.{rest}]")
    return ", ".join(parts)


def _arguments(operation: Operation) -> Iterable[str]:
    if _has_query_beside_body(operation):
        entries = ", ".join(f'"{item.name}": {item.name}' for item in operation.query_properties)
        yield f", query={{{entries}}}"
    elif operation.query:
        yield ", query=query"
    if operation.body:
        yield ", body=body"
    if operation.form:
        yield ', data=form_fields(body), files={"file": file}'
    if operation.is_idempotent and not operation.has_key_in_body:
        yield ", idempotency_key=idempotency_key"


def _has_keywords(operation: Operation) -> bool:
    return bool(operation.query or operation.body or operation.form)


def _has_query_beside_body(operation: Operation) -> bool:
    return bool(operation.query and (operation.body or operation.form))


def _result(operation: Operation, prefix: str) -> str:
    match operation.kind:
        case "list":
            return f"{prefix}Paginator[types.{operation.result}]"
        case "file":
            return f"{prefix}Download"
        case "nothing":
            return "None"
    return f"types.{operation.result}"


def _path(operation: Operation) -> str:
    path = operation.path
    for name, kind in operation.path_parameters:
        path = path.replace(f"{{{name}}}", f"{{{name}:d}}" if kind == "integer" else f"{{path_segment({name})}}")
    return f'{"f" if operation.path_parameters else ""}"{path}"'
