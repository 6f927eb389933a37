"""Write the generated files of the TypeScript client."""

import json
import re
import textwrap
from collections.abc import Iterator

from clients.generator.model import Alias, Api, ObjectType, Operation, Type

SOURCES = "clients/typescript/src"
MARK = "Generated from the OpenAPI document by `python -m clients.generator`; do not edit."
_WIDTH = 116
_SIMPLE = {
    "string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null", "any": "unknown",
}  # fmt: skip


def write(api: Api) -> dict[str, str]:
    """Return the generated files: their text by path from the root of the repository."""
    files = {
        "version.ts": _version(api),
        "client.ts": _client(api),
        "types.ts": _types(api),
        **{f"resources/{to_camel_case(name)}.ts": _resource(api, name) for name in api.resources},
    }
    return {f"{SOURCES}/{name}": f"{text.strip()}\n" for name, text in files.items()}


def to_camel_case(name: str) -> str:
    """Return a name in snake case in camel case."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _class(resource: str) -> str:
    return "".join(word.capitalize() for word in resource.split("_"))


def _comment(indent: str, *paragraphs: str) -> list[str]:
    """Return the lines of a documentation comment with wrapped paragraphs."""
    wrapped = [
        textwrap.wrap(" ".join(text.replace("*/", "* /").split()), _WIDTH - len(indent) - 3, break_long_words=False,
                      break_on_hyphens=False)
        for text in paragraphs if text
    ]  # fmt: skip
    lines = [line for number, part in enumerate(wrapped) for line in ([""] if number else []) + part]
    if not lines:
        return []
    if len(lines) == 1:
        return [f"{indent}/** {lines[0]} */"]
    return [f"{indent}/**", *(f"{indent} * {line}".rstrip() for line in lines), f"{indent} */"]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_$][\w$]*", name) else json.dumps(name)


def _version(api: Api) -> str:
    posts = [
        re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(operation.path)).replace("/", r"\/")
        for operation in api.operations
        if operation.is_idempotent and operation.http_method == "POST"
    ]
    return "\n".join(
        [
            f"// {MARK}",
            "",
            "/** The version of the client: that of the service whose API it was generated from. */",
            f'export const VERSION = "{api.version}";',
            "",
            "/** The POST requests that the service carries out once for an Idempotency-Key. */",
            f"export const IDEMPOTENT_POSTS = /^(?:{'|'.join(posts)})$/;",
        ]
    )


def _client(api: Api) -> str:
    names = {name: to_camel_case(name) for name in api.resources}
    lines = [
        f"// {MARK}",
        "",
        *(f'import {{ {_class(name)} }} from "./resources/{names[name]}.js";' for name in sorted(api.resources)),
        'import { Transport } from "./transport.js";',
        "",
        "/** A client of one service with one API key. See `TransportOptions` for its options. */",
        "export class Campanero extends Transport {",
    ]
    for name, description in api.resources.items():
        lines += [*_comment("  ", description), f"  readonly {names[name]} = new {_class(name)}(this);"]
    return "\n".join([*lines, "}"])


# -- types ------------------------------------------------------------------------------------------------------------


def _types(api: Api) -> str:
    lines = [f"// {MARK}"]
    for item in api.types.values():
        lines.append("")
        if isinstance(item, Alias):
            lines += [*_comment("", item.description), f"export type {item.name} = {annotate(item.type)};"]
        else:
            lines += _interface(item)
    return "\n".join(lines)


def _interface(item: ObjectType) -> Iterator[str]:
    yield from _comment("", item.description)
    if not item.properties:
        yield f"export type {item.name} = Record<string, unknown>;"
        return
    yield f"export interface {item.name} {{"
    for entry in item.properties:
        yield from _comment("  ", entry.description)
        yield f"  {_key(entry.name)}{'' if entry.is_required else '?'}: {annotate(entry.type)};"
    if item.is_open:
        yield "  [key: string]: unknown;"
    yield "}"


def annotate(kind: Type, prefix: str = "") -> str:
    """Return a type as TypeScript; `prefix` stands before the names of types."""
    match kind:
        case ("name", name):
            return f"{prefix}{name}"
        case ("literal", values):
            return " | ".join(json.dumps(value) for value in values)
        case ("array", item):
            text = annotate(item, prefix)
            return f"({text})[]" if " | " in text else f"{text}[]"
        case ("map", item):
            return f"Record<string, {annotate(item, prefix)}>"
        case ("union", parts):
            return " | ".join(annotate(part, prefix) for part in parts)
    return _SIMPLE[kind[0]]


# -- resources --------------------------------------------------------------------------------------------------------


def _resource(api: Api, resource: str) -> str:
    operations = api.operations_of(resource)
    values = [name for name, kind in (("Download", "file"), ("Paginator", "list"))
              if any(operation.kind == kind for operation in operations)]  # fmt: skip
    values += ["segment"] if any(operation.path_parameters for operation in operations) else []
    kinds = ["FileContent"] if any(operation.form for operation in operations) else []
    kinds += ["RequestOptions"] if any(operation.kind in ("object", "nothing") for operation in operations) else []
    imports = [*values, *(f"type {name}" for name in [*kinds, "Transport"])]
    lines = [
        f"// {MARK}",
        "",
        f'import {{ {", ".join(imports)} }} from "../transport.js";',
        'import type * as types from "../types.js";',
        "",
        *_comment("", api.resources[resource]),
        f"export class {_class(resource)} {{",
        "  readonly #transport: Transport;",
        "",
        "  constructor(transport: Transport) {",
        "    this.#transport = transport;",
        "  }",
    ]
    for operation in operations:
        lines += ["", *_method(operation)]
    return "\n".join([*lines, "}"])


def _method(operation: Operation) -> Iterator[str]:
    name = to_camel_case(operation.method_name)
    parameters = [f"{to_camel_case(item)}: {_SIMPLE[kind]}" for item, kind in operation.path_parameters]
    query = "query" if operation.query else "{}"
    needs_query = any(item.is_required for item in operation.query_properties)
    query_parameter = [f"query: types.{operation.query}{'' if needs_query else ' = {}'}"] if operation.query else []
    path = _path(operation)
    yield from _comment("  ", f"{operation.summary}.", operation.description)
    if operation.kind in ("list", "file"):
        kind = f"Paginator<types.{operation.result}>" if operation.kind == "list" else "Download"
        yield f"  {name}({', '.join([*parameters, *query_parameter])}): {kind} {{"
        yield f"    return new {kind}(this.#transport, {path}, {query});"
        yield "  }"
        return
    arguments = []
    if operation.form:
        parameters += ["file: FileContent", f"fields: types.{operation.form} = {{}}"]
        arguments.append("form: { file, fields }")
    if operation.body:
        parameters.append(f"body: types.{operation.body}{'' if operation.is_body_required else ' = {}'}")
        arguments.append("body")
    if operation.query:
        parameters += query_parameter
        arguments.append("query")
    parameters.append("options: RequestOptions = {}")
    arguments.append("...options")
    result = "void" if operation.kind == "nothing" else f"types.{operation.result}"
    yield f"  {name}({', '.join(parameters)}): Promise<{result}> {{"
    yield f'    return this.#transport.call("{operation.http_method}", {path}, {{ {", ".join(arguments)} }});'
    yield "  }"


def _path(operation: Operation) -> str:
    path = operation.path
    for name, _ in operation.path_parameters:
        path = path.replace(f"{{{name}}}", f"${{segment({to_camel_case(name)})}}")
    return f"`{path}`" if operation.path_parameters else f'"{path}"'
