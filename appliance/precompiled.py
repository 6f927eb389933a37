"""Templates that were compiled when the executable was built: to compile them is half of what follows a start.

One file beside the program holds them, which packaging/campanero.spec makes. From the sources there is none, and each
is compiled when it is first used or after the start.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from appliance import assets

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment
    from jinja2.bccache import Bucket

FILE = "compiled-templates"


def of(kind: str) -> "BytecodeCache | None":
    """Return where an environment finds its templates compiled; None where they are not."""
    held = _held().get(kind)
    return None if held is None else _finding(held)


def compiled(environment: "Environment") -> dict[str, bytes]:
    """Compile all templates of an environment, with their names in the place of this machine's paths."""
    made, loader, finding = {}, environment.loader, _finding({})
    assert loader is not None, "the templates were found by it"
    for name in environment.list_templates(("html", "mjml")):
        source, _, _ = loader.get_source(environment, name)
        bucket = finding.get_bucket(environment, name, name, source)
        bucket.code = environment.compile(source, name, name)
        made[name] = bucket.bytecode_to_string()
    return made


def _finding(held: Mapping[str, bytes]) -> "BytecodeCache":
    from jinja2 import BytecodeCache

    class Finding(BytecodeCache):
        def get_cache_key(self, name: str, filename: str | None = None) -> str:
            """Return the name alone: the file lies in another place at each start."""
            return name

        def load_bytecode(self, bucket: "Bucket") -> None:
            """Take what is held; the library leaves it if it is of other words or another Python."""
            if data := held.get(bucket.key):
                bucket.bytecode_from_string(data)

        def dump_bytecode(self, bucket: "Bucket") -> None:
            """Hold nothing: the environment does."""

    return Finding()


@cache
def _held() -> dict[str, dict[str, bytes]]:
    return assets.written(FILE) or {}
