"""Write the table of the operations with their methods in both clients."""

from clients.generator.model import Api
from clients.generator.python_files import MARK
from clients.generator.typescript_files import to_camel_case

PATH = "clients/operations.md"


def write(api: Api) -> dict[str, str]:
    """Return the generated file: its text by its path from the root of the repository."""
    lines = [
        "# Operations of the API and their methods",
        "",
        f"<!-- {MARK} -->",
        "",
        "`/docs/api` of the service describes the operations.",
        "",
        "| Operation | Python | TypeScript |",
        "|-|-|-|",
    ]
    for operation in sorted(api.operations, key=lambda operation: (operation.resource, operation.path)):
        python = f"{operation.resource}.{operation.method_name}"
        typescript = f"{to_camel_case(operation.resource)}.{to_camel_case(operation.method_name)}"
        path = operation.path.removeprefix("/v1/my")
        lines.append(f"| {operation.http_method.upper()} {path} | `{python}` | `{typescript}` |")
    return {PATH: "\n".join(lines) + "\n"}
