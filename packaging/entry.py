"""Starts the command line; the program that the executable carries."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).with_name("zones.zip")))  # read by `zoneinfo`, where the machine has no zone files

from appliance import frozen

frozen.prepare(sys.argv[1:])

from appliance.__main__ import main  # noqa: E402 - the executable is made ready first

if __name__ == "__main__":
    raise SystemExit(main())
