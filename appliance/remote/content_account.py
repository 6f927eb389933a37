"""The content of an account as files: its export to a directory, and the import of a directory.

`campanero content` uses this module with a connection over HTTP; the page of content files uses it in process.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from appliance.remote import content_files as files
from appliance.remote.content_files import KINDS, KINDS_BY_NAME, PICTURES, Directory, Kind
from appliance.remote.errors import CommandError, ServiceError

# Default values of the fields of steps. They are left out of the files, which makes these a third as long.
_EMPTY_STEP = {
    "subject": "", "body": "", "preheader": "", "duration": 0, "filters": [], "yes": [], "no": [], "event_name": "",
    "forward_event_data": False,
}  # fmt: skip
_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
# Added to the id of a step that a flow does not have yet, so that it differs from the ids of its stored steps.
_NEW_STEP = 1_000_000_000

# Called with the name of the current file and the share of files that are done, from 0 to 1.
ShowProgress = Callable[[str, float], None]


class ContentResponse(Protocol):
    """A response of the API, with the attributes of `httpx.Response` that are needed here."""

    @property
    def headers(self) -> Any:
        """Return the headers, by lower-case name."""

    @property
    def content(self) -> bytes:
        """Return the body."""

    def json(self) -> Any:
        """Return the JSON of the body."""


class ContentPage(Protocol):
    """A page of a list."""

    @property
    def items(self) -> Any:
        """Return the objects of the page."""


class ContentConnection(Protocol):
    """The methods of a connection to an account's API that export and import use."""

    @property
    def url(self) -> str:
        """Return the URL of the service."""

    def request(
        self, method: str, path: str, *, files: dict[str, tuple[str, bytes]] | None = None
    ) -> ContentResponse:  # fmt: skip
        """Return a response; raises ServiceError or CommandError."""

    def call(self, method: str, path: str, *, body: Any = None) -> Any:
        """Return the JSON of a response; raises ServiceError or CommandError."""

    def pages(self, path: str, query: dict[str, Any]) -> Iterator[ContentPage]:
        """Yield the pages of a list; raises ServiceError or CommandError."""


class PlannedFile(NamedTuple):
    """A file that an import uses to `create` or `change` an object."""

    file: str
    action: str


class ImportResult(NamedTuple):
    """The number of files of an import, and the files among them that create or change an object."""

    file_count: int
    plan: list[PlannedFile]


def export_content(connection: ContentConnection, path: Path, show: ShowProgress) -> dict[str, int]:
    """Write a file for each object of the account, and return the number of files by what happened to them.

    The keys are `new`, `changed`, `unchanged` and `deleted`: files of objects that no longer exist are deleted.
    """
    account = ContentAccount(connection, path)
    rows = {kind.name: list(_list_rows(connection, kind)) for kind in KINDS}
    directory = account.directory
    objects = {
        directory.choose_name(kind, row["id"], row["name"] or ""): (KINDS_BY_NAME[kind], row)
        for kind, kind_rows in rows.items()
        for row in kind_rows
    }
    counts: Counter[str] = Counter()
    for number, (name, (kind, row)) in enumerate(objects.items()):
        show(name, number / len(objects))
        value = account.describe(kind, row, name)
        file_path = directory.path / f"{name}.json"
        is_new = not file_path.exists()
        is_written = files.write_json(file_path, value)
        counts["new" if is_new else "changed" if is_written else "unchanged"] += 1
    for name in [name for name in directory.ids if name not in objects]:
        (directory.path / f"{name}.json").unlink(missing_ok=True)
        del directory.ids[name]
        directory.steps.pop(name, None)
        counts["deleted"] += 1
    directory.save_state()
    return {state: counts[state] for state in ("new", "changed", "unchanged", "deleted")}


def import_content(
    connection: ContentConnection, path: Path, show: ShowProgress, is_dry_run: bool, by_name: bool = False
) -> ImportResult:
    """Create or change the objects of all files. Nothing is sent.

    New flows are drafts. Changes of a live flow are published; if the account requires an approval, they pause the
    flow. With `by_name`, a file without a known object belongs to the object with its name, if there is exactly one.
    Raises UsageError with all errors of the files before anything is changed. If the service refuses an object, raises
    CommandError; importing again continues with that file.
    """
    account = ContentAccount(connection, path)
    objects = account.directory.read_objects()
    plan: list[PlannedFile] = []
    order = files.sort_by_references(objects)
    account.find_existing(objects, by_name)
    if not is_dry_run:
        account.create_missing_flows(objects, plan)
        account.upload_pictures(objects)
    for number, name in enumerate(order):
        show(name, number / len(order))
        try:
            action = account.apply(name, objects[name], is_dry_run)
        except ServiceError as error:
            raise CommandError(f"{name} was refused; {number} of {len(order)} files were imported\n{error}",
                               error.exit_code) from None  # fmt: skip
        if action != "unchanged" and not any(row.file == name for row in plan):
            plan.append(PlannedFile(name, action))
    return ImportResult(len(order), plan)


def _list_rows(connection: ContentConnection, kind: Kind) -> Iterator[Any]:
    """Yield the objects of a kind. Raises CommandError if the list repeats a page."""
    ids: set[str] = set()
    for page in connection.pages(f"/{kind.name}", {**kind.query, "limit": 100}):
        new_rows = [row for row in page.items if str(row["id"]) not in ids]
        if page.items and not new_rows:
            raise CommandError(f"{connection.url} gave an invalid response: the list of {kind.name} repeats itself")
        ids |= {str(row["id"]) for row in new_rows}
        yield from new_rows


class ContentAccount:
    """An account of a service, and the directory of its content files."""

    def __init__(self, connection: ContentConnection, path: Path) -> None:
        account = connection.call("GET", "/account")
        self._connection = connection
        self.directory = Directory(path, f"{connection.url}#{account['id']}")
        self._filter_fields = files.read_filter_fields(connection.call("GET", "/segments/spec"))
        hosts = {connection.url.rstrip("/"), str(account["base_url"]).rstrip("/")}
        addresses = "|".join(re.escape(host) for host in sorted(hosts))
        self._picture_address = re.compile(rf"(?:{addresses})/m/([A-Za-z0-9_-]{{16,80}})")

    def describe(self, kind: Kind, row: dict[str, Any], name: str) -> dict[str, Any]:
        """Return the content of the file of an object, and download the pictures in it. `name` is the file's name."""
        value: dict[str, Any] = {field: row[field] for field in kind.fields if row.get(field) is not None}
        if kind.name == "flows":
            value["steps"] = [_describe_step(step) for step in value["steps"]]
            numbers = {number: int(key) for key, number in self.directory.steps.get(name, {}).items()}
            by_step = {template["action_id"]: self._read_translations(template) for template in row["templates"]}
            value["translations"] = {str(numbers.get(key, key)): texts for key, texts in by_step.items() if texts}
            value = files.renumber_steps(value, numbers) if numbers else value
            value["trigger"] = {key: part for key, part in value["trigger"].items() if part not in (None, {})}
        if kind.name == "templates":
            value["translations"] = self._read_translations(row)
        if not value.get("translations"):
            value.pop("translations", None)
        custom = value.pop("data", None) if kind.name == "flows" else None
        value = files.with_references(value, self._name_of, self._filter_fields)
        if custom:
            value["data"] = custom
        described: dict[str, Any] = files.replace_pictures(value, self._keep_picture, self._picture_address)
        return described

    def _name_of(self, kind: str, object_id: int) -> str | None:
        for name, number in self.directory.ids.items():
            if number == object_id and name.startswith(f"{kind}/"):
                return name
        return None

    def _read_translations(self, template: dict[str, Any]) -> dict[str, dict[str, str]]:
        """Return the translated texts of a template by language and id of the text."""
        translations = {}
        for language in template["languages"]:
            path = f"/templates/{template['id']}/translations/{language}"
            texts = self._connection.call("GET", path)["texts"]
            translations[language] = {text["id"]: text["text"] for text in texts if text["text"] is not None}
        return translations

    def _keep_picture(self, match: "re.Match[str]") -> str:
        """Download a picture unless its file exists, and return the reference to the file.

        The address is returned unchanged if the response is not a picture of a known format.
        """
        for name, address in self.directory.pictures.items():
            if address == match[0] and (self.directory.path / name).exists():
                return f"campanero-picture:{name.removeprefix(f'{PICTURES}/')}"
        response = self._connection.request("GET", urlsplit(match[0]).path)
        extension = _EXTENSIONS.get(response.headers.get("content-type", "").partition(";")[0])
        if extension is None:
            return match[0]
        name = f"{match[1]}.{extension}"
        files.write_file(self.directory.path / PICTURES / name, response.content)
        self.directory.pictures[f"{PICTURES}/{name}"] = match[0]
        return f"campanero-picture:{name}"

    def find_existing(self, objects: dict[str, dict[str, Any]], by_name: bool = False) -> None:
        """Look up the ids of the files' objects in the account: of objects imported before, and of lists by name.

        With `by_name`, objects of other kinds are found by name, too, if only one object and one file have the name.
        Ids of objects that were deleted in the account are removed, so that the objects are created again.
        """
        for kind in KINDS:
            existing = {row["id"]: row["name"] for row in _list_rows(self._connection, kind)}
            for name in [name for name in objects if name.startswith(f"{kind.name}/")]:
                if self.directory.ids.get(name) not in existing:
                    self.directory.ids.pop(name, None)
                    self.directory.steps.pop(name, None)
            if by_name or kind.name == "lists":  # The names of lists are unique.
                self._find_by_name(kind, objects, existing)

    def _find_by_name(self, kind: Kind, objects: dict[str, dict[str, Any]], existing: dict[int, str]) -> None:
        """Look up the objects of a kind by the names in their files; a name that occurs twice is skipped."""
        known = {number for name, number in self.directory.ids.items() if name.startswith(f"{kind.name}/")}
        titles = Counter(title for number, title in existing.items() if number not in known)
        ids = {title: number for number, title in existing.items() if number not in known and titles[title] == 1}
        names = [name for name in objects if name.startswith(f"{kind.name}/") and name not in self.directory.ids]
        files_by_title = Counter(str(objects[name].get("name")) for name in names)
        for name in names:
            title = objects[name].get("name")
            if isinstance(title, str) and title in ids and files_by_title[title] == 1:
                self.directory.ids[name] = ids[title]

    def create_missing_flows(self, objects: dict[str, dict[str, Any]], plan: list[PlannedFile]) -> None:
        """Create the flows of new files, at first without steps, because flows may refer to each other."""
        for name, value in objects.items():
            if name.startswith("flows/") and name not in self.directory.ids:
                flow = self._connection.call("POST", "/flows", body={"name": value.get("name") or "Untitled flow"})
                self._remember(name, flow["id"])
                plan.append(PlannedFile(name, "create"))

    def upload_pictures(self, objects: dict[str, dict[str, Any]]) -> None:
        """Upload the pictures of the files that were not uploaded to this account yet."""
        for value in objects.values():
            for picture in files.find_pictures(value):
                name = f"{PICTURES}/{picture}"
                if name in self.directory.pictures:
                    continue
                content = files.read_file(self.directory.path / name)
                upload = self._connection.request("POST", "/uploads", files={"file": (picture, content)}).json()
                self.directory.pictures[name] = upload["url"]
                self.directory.save_state()

    def _remember(self, name: str, object_id: int) -> None:
        self.directory.ids[name] = object_id
        self.directory.save_state()

    def apply(self, name: str, value: dict[str, Any], is_dry_run: bool) -> str:
        """Create the object of a file or change it, and return `create`, `change` or `unchanged`.

        With `is_dry_run`, only return what would be done.
        """
        kind = KINDS_BY_NAME[name.partition("/")[0]]
        object_id = self.directory.ids.get(name)
        if object_id is not None:
            current = self.describe(kind, self._connection.call("GET", f"/{kind.name}/{object_id}"), name)
            if all(current.get(key) == part for key, part in _without_empty(value).items()):
                return "unchanged"
        if is_dry_run:
            return "create" if object_id is None else "change"
        body = files.with_addresses(files.without_references(value, self.directory.ids), self.directory.pictures)
        if kind.name == "flows":
            assert object_id is not None  # `create_missing_flows` created it
            self._write_flow(name, object_id, body)
            return "change"
        translations = body.pop("translations", None) or {}
        if object_id is None:
            object_id = self._connection.call("POST", f"/{kind.name}", body=body)["id"]
            self._remember(name, object_id)
            action = "create"
        else:
            body.pop("channel", None)  # It cannot be changed.
            self._connection.call("PATCH", f"/{kind.name}/{object_id}", body=body)
            action = "change"
        self._write_translations(object_id, translations)
        return action

    def _write_flow(self, name: str, flow_id: int, body: dict[str, Any]) -> None:
        """Change a flow, then its test scripts and translations.

        Both refer to steps by ids, which differ between the file and the stored flow; `directory.steps` maps them.
        Raises CommandError for a translation of a step that is not an email or SMS.
        """
        known = {int(key): number for key, number in self.directory.steps.get(name, {}).items()}
        if not known:
            # The file was exported from this account: its steps have the ids of the flow.
            stored = self._connection.call("GET", f"/flows/{flow_id}")["steps"]
            known = {step["id"]: step["id"] for step in files.iter_steps(stored)}
        steps = body.get("steps", [])
        sent_ids = [step.get("id") for step in files.iter_steps(steps)]
        numbers = {key: known.get(key, _NEW_STEP + key) for key in sent_ids if isinstance(key, int)}
        changes = {key: part for key, part in body.items() if key in ("name", "goal", "trigger")}
        changes["steps"] = files.renumber_steps(steps, numbers)
        flow = self._connection.call("PATCH", f"/flows/{flow_id}", body=changes)
        stored_ids = [step["id"] for step in files.iter_steps(flow["steps"])]
        if len(stored_ids) == len(sent_ids):
            numbers = {key: number for key, number in zip(sent_ids, stored_ids, strict=True) if isinstance(key, int)}
            self.directory.steps[name] = {str(key): number for key, number in numbers.items()}
            self.directory.save_state()
        if body.get("data"):
            data = files.renumber_steps(body["data"], numbers)
            flow = self._connection.call("PATCH", f"/flows/{flow_id}", body={"data": data})
        templates = {template["action_id"]: template for template in flow["templates"]}
        for key, translations in (body.get("translations") or {}).items():
            template = templates.get(numbers.get(int(key), int(key)))
            if template is None:
                raise CommandError(f"{name}: translations has {key}, which is not an email or SMS of the flow")
            self._write_translations(template["id"], translations)

    def _write_translations(self, template_id: int, translations: dict[str, dict[str, str]]) -> None:
        for language, texts in translations.items():
            self._connection.call("PUT", f"/templates/{template_id}/translations/{language}", body={"texts": texts})


def _describe_step(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step without `template_id`, which differs between accounts, and without fields with default values."""
    described = {}
    for key, part in step.items():
        if key == "template_id" or (key in _EMPTY_STEP and part == _EMPTY_STEP[key]):
            continue
        described[key] = _describe_nested(part) if key != "design" else part
    return described


def _describe_nested(value: Any) -> Any:
    if isinstance(value, list):
        return [_describe_nested(item) for item in value]
    if isinstance(value, dict):
        is_step = isinstance(value.get("type"), str) and isinstance(value.get("id"), int)
        return _describe_step(value) if is_step else {key: _describe_nested(part) for key, part in value.items()}
    return value


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if part is not None}
