"""Words for every property and parameter: what stands beside the name and the type in the document.

Looked up by Struct and name, through the Structs that a Struct extends, and then by the name alone. Words that a
declaration says of itself (`Meta(description=...)`) go before these.
"""

from msgspec import Struct

from appliance.api.document.words import account, delivery, flows, people, queries, reports, sending, shared, team

NAMES: dict[str, str] = shared.NAMES
STRUCTS: dict[str, dict[str, str]] = {
    **account.WORDS, **delivery.WORDS, **flows.WORDS, **people.WORDS, **reports.WORDS, **sending.WORDS,
    **team.WORDS,
}  # fmt: skip
PARAMETERS: dict[str, str] = queries.NAMES
QUERIES: dict[str, dict[str, str]] = queries.WORDS


def of_property(kind: type[Struct] | None, name: str) -> str | None:
    """Return what a property means, None if nobody says."""
    return _found(kind, name, STRUCTS) or NAMES.get(name)


def of_parameter(kind: type[Struct], name: str) -> str | None:
    """Return what a parameter of a query means, None if nobody says."""
    return _found(kind, name, QUERIES) or PARAMETERS.get(name)


def _found(kind: type[Struct] | None, name: str, table: dict[str, dict[str, str]]) -> str | None:
    for one in kind.__mro__ if kind is not None else ():
        if name in table.get(one.__name__, {}):
            return table[one.__name__][name]
    return None
