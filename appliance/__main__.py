"""Where the program begins."""

import sys

from appliance import cli


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
