"""Starts the command line; the program that the executable carries, after begin.py."""

import sys

from appliance.core import loader

loader.prepare(sys.argv[1:])

from appliance.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
