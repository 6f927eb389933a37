"""`campanero content`: an account's content as files, and back into the same and into another account."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.test_remote_commands import environment
from tests.kit.client import Client
from tests.kit.fork_server import fork_server
from tests.kit.pictures import encode_image, photo
from tests.kit.server import Completed, Server
from tests.kit.uploads import upload_image

Run = Callable[..., Completed]


@pytest.fixture(scope="module")
def keys(server: Server) -> Iterator[tuple[str, str]]:
    """The keys of two accounts of a service."""
    number = server.cli("account", "add", "Other").stdout.strip()
    yield server.new_key("content"), server.new_key("content", "--account", number)


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Run:
    """A function that runs `campanero content` with a key; its exit code must be `expect`."""

    def run_command(key: str, *arguments: str | Path, expect: int = 0) -> Completed:
        variables = environment(tmp_path, CAMPANERO_URL=server.url, CAMPANERO_KEY=key)
        done = fork_server().run(["content", *map(str, arguments)], variables, tmp_path, "", 120)
        assert done.returncode == expect, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return run_command


def read_files(directory: Path) -> dict[str, Any]:
    """Return the content of all files by name, without the file of ids."""
    return {
        str(path.relative_to(directory)): json.loads(path.read_text())
        for path in sorted(directory.rglob("*.json"))
        if not path.name.startswith(".")
    }


def create_content(api: Client) -> dict[str, int]:
    """Create an object of each kind that refers to the others, and return the ids."""
    address = upload_image(api, encode_image(photo(), "PNG"), "logo.png").expect(201)["url"]
    list_id = api.post("/lists", {"name": "Grüße & news", "public": True}).expect(201)["id"]
    filters = [{"name": "list_id", "predicate": "in", "value": [list_id]}]
    segment_id = api.post("/segments", {"name": "Readers", "filters": filters}).expect(201)["id"]
    design = {
        "sections": [
            {"id": "s1", "type": "image", "props": {"src": address, "alt": "logo"}},
            {"id": "s2", "type": "text", "props": {"content": "<p>Hello</p>", "show_if": [
                {"name": "segment_id", "predicate": "in", "value": [segment_id]}]}},
        ]
    }  # fmt: skip
    template = {"name": "Letter", "subject": "Hello", "design": design, "from_name": "Ana"}
    template_id = api.post("/templates", template).expect(201)["id"]
    texts = {"subject": "Hallo"}
    api.put(f"/templates/{template_id}/translations/de", {"texts": texts}).expect(200)
    form = {"name": "Sign up", "list_ids": [list_id], "topic_ids": [list_id], "intro": "Twice a month."}
    form_id = api.post("/forms", form).expect(201)["id"]
    steps = [
        {"id": 1, "type": "wait", "duration": 3600},
        {"id": 2, "type": "email", "subject": "Welcome", "design": {"sections": design["sections"][:1]}},
        {"id": 3, "type": "split", "filters": filters,
         "yes": [{"id": 4, "type": "list_add", "contact_list_id": list_id}],
         "no": [{"id": 5, "type": "wait", "duration": 60}, {"id": 6, "type": "go_to", "step_id": 1}]},
    ]  # fmt: skip
    flow = {"name": "Welcome", "trigger": {"event": "list_add", "contact_list_id": list_id}, "steps": steps}
    created = api.post("/flows", flow).expect(201)
    message_id = created["templates"][0]["id"]
    welcome = {"texts": {"subject": "Willkommen"}}
    api.put(f"/templates/{message_id}/translations/de", welcome).expect(200)
    return {"list": list_id, "segment": segment_id, "template": template_id, "form": form_id, "flow": created["id"]}


def test_content_moves_to_another_account(server: Server, keys: tuple[str, str], run: Run, tmp_path: Path) -> None:
    """What another account exports after an import is the same; ids, names of files and references stay."""
    first, second = (server.client(key) for key in keys)
    ids = create_content(first)
    out, back = tmp_path / "content", tmp_path / "back"
    assert "5 new" in run(keys[0], "export", out).stdout
    exported = read_files(out)
    assert exported["flows/welcome.json"]["trigger"] == {
        "event": "list_add", "contact_list_id": {"$ref": "lists/grusse-news"}
    }  # fmt: skip
    assert exported["segments/readers.json"]["filters"][0]["value"] == [{"$ref": "lists/grusse-news"}]
    assert exported["templates/letter.json"]["translations"] == {"de": {"subject": "Hallo"}}
    assert exported["flows/welcome.json"]["translations"] == {"2": {"de": {"subject": "Willkommen"}}}
    assert json.dumps(exported).count("campanero-picture:") == 2
    assert "5 unchanged" in run(keys[0], "export", out).stdout

    # The other account has objects of its own, so that its ids differ.
    for number in range(3):
        second.post("/lists", {"name": f"List {number}"}).expect(201)
    second.post("/flows", {"name": "Own", "steps": [{"type": "wait", "duration": 60}]}).expect(201)
    planned = json.loads(run(keys[1], "import", out, "--dry-run", "--json").stdout)
    assert {row["action"] for row in planned} == {"create"} and len(planned) == 5
    assert len(second.get("/flows").json) == 1
    done = json.loads(run(keys[1], "import", out, "--json").stdout)
    assert {row["file"] for row in done if row["action"] == "create"} == {row["file"] for row in planned}
    assert "5 unchanged" in run(keys[1], "import", out).stdout
    flow = next(row for row in second.get("/flows").json if row["name"] == "Welcome")
    assert flow["status"] == "draft" and flow["id"] != ids["flow"]
    assert json.dumps(flow).count(server.url + "/m/") == 2

    run(keys[1], "export", back)
    own = {"flows/own.json", *(f"lists/list-{number}.json" for number in range(3))}
    again = {name: value for name, value in read_files(back).items() if name not in own}
    assert strip_pictures(again) == strip_pictures(exported)


def strip_pictures(files: dict[str, Any]) -> Any:
    """Return files without the names of pictures, which differ by account."""
    return json.loads(re.sub(r"campanero-picture:[\w.-]+", "picture", json.dumps(files)))


def test_changed_files_change_their_objects(server: Server, keys: tuple[str, str], run: Run, tmp_path: Path) -> None:
    """A step added in a file gets an id of its own, a renamed object keeps its file, a deleted one loses it."""
    api, out = server.client(keys[0]), tmp_path / "content"
    steps = [{"type": "wait", "duration": 60}, {"type": "email", "subject": "One", "design": {"sections": []}}]
    flow_id = api.post("/flows", {"name": "Series", "steps": steps}).expect(201)["id"]
    list_id = api.post("/lists", {"name": "Temporary"}).expect(201)["id"]
    run(keys[0], "export", out)
    path = out / "flows/series.json"
    flow = json.loads(path.read_text())
    flow["steps"].insert(0, {"id": 3, "type": "email", "subject": "Zero", "from_name": "Ana"})
    path.write_text(json.dumps(flow))
    assert "change  flows/series" in run(keys[0], "import", out).stdout
    stored = api.get(f"/flows/{flow_id}").json
    assert [(step["id"], step["type"]) for step in stored["steps"]] == [(3, "email"), (1, "wait"), (2, "email")]
    assert [template["from_name"] for template in stored["templates"] if template["action_id"] == 3] == ["Ana"]
    assert "0 imported" in run(keys[0], "import", out).stdout
    api.patch(f"/flows/{flow_id}", {"name": "../../Another name"}).expect(200)
    api.delete(f"/lists/{list_id}").expect(200)
    assert "0 new, 1 changed" in run(keys[0], "export", out).stdout
    assert json.loads(path.read_text())["name"] == "../../Another name"
    assert not (out / "lists/temporary.json").exists()
    first, second = (api.post("/flows", {"name": name}).expect(201)["id"] for name in ("First", "Second"))
    for number, other in ((first, second), (second, first)):
        split = {"type": "split", "filters": [{"name": "flow_id", "predicate": "in", "value": [other]}]}
        api.patch(f"/flows/{number}", {"steps": [split]}).expect(200)
    run(keys[0], "export", out)
    run(keys[1], "import", out)
    names = {flow["id"]: flow["name"] for flow in server.client(keys[1]).all("/flows")}
    by_name = {flow["name"]: flow for flow in server.client(keys[1]).all("/flows")}
    [other] = by_name["First"]["steps"][0]["filters"][0]["value"]
    assert names[other] == "Second"


def test_wrong_files_and_refused_objects(server: Server, keys: tuple[str, str], run: Run, tmp_path: Path) -> None:
    """Every wrong file is told before anything is changed; after a refused object, the next import goes on there."""
    api, out = server.client(keys[1]), tmp_path / "content"
    for directory in ("lists", "segments", "flows", "templates"):
        (out / directory).mkdir(parents=True)
    assert "contains no content" in run(keys[1], "import", out, expect=2).stderr
    (out / "lists/good.json").write_text('{"name": "Good list"}')
    (out / "lists/UPPER.json").write_text("{}")
    (out / "segments/broken.json").write_text("{")
    (out / "segments/other.json").write_text('{"name": "x", "colour": 1}')
    picture = {"sections": [{"type": "image", "props": {"src": "campanero-picture:../../etc/passwd"}}]}
    (out / "templates/picture.json").write_text(json.dumps({"design": picture}))
    (out / "flows/lost.json").write_text('{"trigger": {"segment_id": {"$ref": "segments/nowhere"}}}')
    before = len(api.all("/lists"))
    error = run(keys[1], "import", out, expect=2).stderr
    for words in ("UPPER.json", "broken.json", "unknown colour", "segments/nowhere does not exist", "the picture .."):
        assert words in error, words
    assert len(api.all("/lists")) == before
    for name in ("lists/UPPER", "segments/broken", "flows/lost", "templates/picture"):
        (out / f"{name}.json").unlink()
    (out / "segments/other.json").write_text(
        '{"name": "x", "filters": [{"name": "shoe", "predicate": "is", "value": 1}]}'
    )
    refused = run(keys[1], "import", out, expect=1).stderr
    assert "segments/other was refused; 1 of 2 files were imported" in refused and "filters[0]" in refused
    (out / "segments/other.json").write_text('{"name": "x", "filters": []}')
    assert "create  segments/other\nfiles: 2; 1 imported" in run(keys[1], "import", out).stdout
    assert len(api.all("/lists")) == before + 1


def test_a_directory_of_others_reaches_no_other_files(
    server: Server, keys: tuple[str, str], run: Run, tmp_path: Path
) -> None:
    """Neither the names in the state nor links lead out of a directory, such as a clone of somebody's repository."""
    out, victim = tmp_path / "content", tmp_path / "victim.json"
    api = server.client(keys[1])
    api.post("/lists", {"name": "Of others"}).expect(201)
    run(keys[1], "export", out)
    state = json.loads((out / ".campanero.json").read_text())
    account = next(iter(state["accounts"]))
    name = next(path.stem for path in (out / "lists").glob("*.json"))
    victim.write_text("{}")
    for wrong in (str(victim.with_suffix("")), "lists/../../victim"):
        changed = {"format": 1, "accounts": {account: state["accounts"][account] | {wrong: 999}}}
        (out / ".campanero.json").write_text(json.dumps(changed))
        assert "is damaged" in run(keys[1], "export", out, expect=2).stderr
        assert victim.read_text() == "{}"
    (out / ".campanero.json").write_text(json.dumps(state))

    part, file = out / f"lists/.{name}.json.part", out / f"lists/{name}.json"
    file.unlink()
    part.symlink_to(victim)
    run(keys[1], "export", out)
    assert victim.read_text() == "{}" and file.is_file()
    for target in ("/dev/zero", str(victim)):
        file.unlink()
        file.symlink_to(target)
        assert f"{name}.json" in run(keys[1], "import", out, "--dry-run", expect=2).stderr
    file.unlink()
    (out / "lists").rename(tmp_path / "elsewhere")
    (out / "lists").symlink_to(tmp_path / "elsewhere")
    assert "lists is a link" in run(keys[1], "export", out, expect=2).stderr
