"""Looks into documents of JSON, and at lists that a statement is given as one parameter."""


def among(given: str) -> str:
    """Say that what stands before is one of a list, which is given as JSON: `id {among('?')}`."""
    return f"IN (SELECT value FROM json_each({given}))"


def each_of(document: str, path: str = "") -> str:
    """Return a table of what is in a list, or in the list of a document: its `value` and its `type`."""
    return f"json_each({document}, '$.{path}')" if path else f"json_each({document})"


def each_at(document: str, path: str) -> str:
    """Return a table of what is in the list at a path that stands in SQL already."""
    return f"json_each({document}, {path})"


def field_of(document: str, path: str) -> str:
    """Return the value at dotted keys of a document, or NULL."""
    return field_at(document, f"'$.{path}'")


def field_at(document: str, path: str) -> str:
    """Return the value at a path that stands in SQL already, or NULL."""
    return f"json_extract({document}, {path})"


def type_of(document: str, path: str) -> str:
    """Return what kind of value stands at dotted keys of a document: 'text', 'array', 'true' ..., or NULL."""
    return type_at(document, f"'$.{path}'")


def type_at(document: str, path: str) -> str:
    """Return what kind of value stands at a path that stands in SQL already."""
    return f"json_type({document}, {path})"


def raw_of(document: str, path: str) -> str:
    """Return the value at dotted keys of a document as JSON, or NULL."""
    return raw_at(document, f"'$.{path}'")


def raw_at(document: str, path: str) -> str:
    """Return the value at a path that stands in SQL already as JSON, or NULL."""
    return f"{document} -> {path}"


def text_of(document: str, path: str) -> str:
    """Return the value at dotted keys of a document as a text or a number: a list or an object as its JSON."""
    return f"{document} ->> '$.{path}'"


def entry_of(row: str, number: int) -> str:
    """Return one entry of a list, counted from 0."""
    return f"{row} ->> {number}"


def length_of(document: str, path: str) -> str:
    """Return how long the list at dotted keys of a document is, or NULL."""
    return f"json_array_length({document}, '$.{path}')"


def quoted(value: str) -> str:
    """Return a value as JSON."""
    return f"json_quote({value})"


def gathered(value: str) -> str:
    """Return the list, as JSON, of the values of a group of rows."""
    return f"json_group_array({value})"


def document_of(**fields: str) -> str:
    """Return a document with these fields, each an expression."""
    return f"json_object({', '.join(f'{name!r}, {value}' for name, value in fields.items())})"


def with_fields(document: str, **fields: str) -> str:
    """Return a document with some fields set, each an expression."""
    inside = ", ".join(f"'$.{name}', {value}" for name, value in fields.items())
    return f"json_set({document}, {inside})"


def without(document: str, *names: str) -> str:
    """Return a document without some of its fields."""
    inside = ", ".join(f"'$.{name}'" for name in names)
    return f"json_remove({document}, {inside})"


# What sets a field to true rather than to 1
TRUE = "json('true')"
