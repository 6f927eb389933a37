"""How a file is handed in, and how imports are asked for."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.fields import Id, Line, Name, PageQuery

Column = Annotated[str, Meta(max_length=300)]


class ImportOptions(Struct):
    """What an import does; `map` names where columns go, those it does not name go where their name says.

    `list_names` are lists that everybody joins beside `list_ids`; those that are missing are made.
    """

    map: dict[str, str | None] = field(default_factory=dict)
    list_ids: Annotated[list[Id], Meta(max_length=500)] = field(default_factory=list)
    list_names: Annotated[list[Name], Meta(max_length=20)] = field(default_factory=list)
    on_conflict: Literal["merge", "skip"] = "merge"
    opt_in: bool = True
    consent_source: Annotated[str, Meta(max_length=1000)] | None = None
    trigger_flows: bool = False


class ImportForm(Struct):
    """The texts beside the file; `options` is JSON (see ImportOptions)."""

    resource: Literal["contacts", "suppressions"] = "contacts"
    options: str | UnsetType = UNSET


class DryRunQuery(Struct):
    """Whether a file is only looked at."""

    dry_run: bool = False


class ImportQuery(PageQuery):
    """Filters of the list of imports."""

    resource: Literal["contacts", "suppressions"] | UnsetType = UNSET
    status: Literal["pending", "processing", "complete", "failed", "cancelled"] | UnsetType = UNSET


class Upload(Struct):
    """A file that has come, still where it was received."""

    path: str
    filename: Line
    bytes: int
    resource: Literal["contacts", "suppressions"]
    options: ImportOptions
    dry_run: bool = False
