"""The commands that talk to a Campanero over HTTP, for scripts: `campanero login`, `api`, `contacts import` and more.

They import nothing of the service, so that they start in a fraction of a second: `appliance.__main__` runs them before
it imports the command line of the service. `cli.py` declares the commands and their options; the other modules run
them.
"""

import sys
from pathlib import Path

# The client of the API is a separate package (clients/python). The executable contains it; when run from the sources,
# it is imported from its directory.
if not getattr(sys, "frozen", False):
    sys.path.append(str(Path(__file__).resolve().parents[2] / "clients" / "python"))

# The commands and their purpose, in the order of `campanero --help`.
COMMANDS = {
    "login": "sign in to a Campanero with an API key, and keep both in a profile",
    "logout": "delete a profile with its key",
    "profiles": "list the profiles",
    "api": "send a request to the API and print the response",
    "contacts": "import and export contacts",
    "campaigns": "list, check, send and pause campaigns",
    "messages": "send single messages, and follow what is sent",
    "events": "record events of contacts",
    "flows": "simulate flows",
    "content": "export lists, segments, templates, forms and flows as files, and import them",
}
