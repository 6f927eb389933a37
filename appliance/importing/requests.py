"""How a file is handed in, and how imports are asked for."""

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.fields import Country, Id, Line, Name, PageQuery
from appliance.refused_keys import RefusedKeys, use, use_within

Column = Annotated[str, Meta(max_length=300)]


class ImportOptions(Struct):
    """What an import does; `map` names where columns go, those it does not name go where their name says.

    `list_names` are lists that everybody joins beside `list_ids`; those that are missing are made. `default_country` is
    that of phone numbers without country code: the account's where nothing is said, none with null. `date_order` is how
    dates are written where no value of a column tells.
    """

    REFUSED: ClassVar[RefusedKeys] = {
        **use("the form field `resource` beside `options`", "resource"),
        **use("the query parameter `dry_run`", "dry_run"),
        **use("`opt_in`", "subscribed", "subscribe", "subscribed_email", "opted_in"),
    }

    map: dict[str, str | None] = field(default_factory=dict)
    list_ids: Annotated[list[Id], Meta(max_length=500)] = field(default_factory=list)
    list_names: Annotated[list[Name], Meta(max_length=20)] = field(default_factory=list)
    on_conflict: Literal["merge", "skip"] = "merge"
    opt_in: bool = True
    consent_source: Annotated[str, Meta(max_length=1000)] | None = None
    trigger_flows: bool = False
    default_country: Country | None | UnsetType = UNSET
    date_order: Literal["dmy", "mdy"] | None = None


class ImportForm(Struct):
    """The texts beside the file; `options` is JSON (see ImportOptions)."""

    REFUSED: ClassVar[RefusedKeys] = {
        **use("the query parameter `dry_run`", "dry_run"),
        **use_within("options", *ImportOptions.__struct_fields__),
    }

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
