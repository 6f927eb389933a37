"""Starts the command line; the program that the executable carries."""

from appliance.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
