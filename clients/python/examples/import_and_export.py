"""Import contacts from a file, and export all contacts: `import_and_export.py URL KEY IN.csv OUT.csv` (async)."""

import asyncio
import sys
from pathlib import Path

from campanero_client import AsyncCampanero


async def main(url: str, key: str, source: str, target: str) -> None:
    """Import, wait until the import is complete, and export."""
    async with AsyncCampanero(url, key, user_agent="nightly-import") as client:
        with Path(source).open("rb") as file:
            job = await client.imports.create(file)
        while job["status"] in ("pending", "processing"):
            await asyncio.sleep(0.2)
            job = await client.imports.get(job["id"])
        print(job["created"], "created,", job["updated"], "updated,", job["failed"], "failed")
        await client.exports.contacts_csv().save(target)
        page = await client.contacts.list().page()
        print(page.total, "contacts")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
