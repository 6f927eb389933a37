"""The command line: commands with their options; words after an option that takes a value."""

from tests.rules.contract.rows import lines

_COMMANDS = """
D serve --listen
D setup --email,--name
D user.add --email,--role,--account
D key.create NAME,--scope,--test,--account
D account.add NAME
D doctor
D check
D openapi
D version --json
D backup FILE
D restore FILE,--force
D user.password --email
D user.otp-off --email
O status -- what runs is looked at where it runs, without a browser
O recount -- opens and clicks are judged again when the rules of the judge change
"""
_OPTIONS = """
O backup --with-key -- a move to another machine is one file
O status --watch -- drawn again while one waits for a send
O status --json -- for scripts
O doctor --json -- for scripts that watch
O doctor --seed -- one message through all of it
O doctor --tenant -- without what concerns the installation, for the health page of another account
O version --licences -- whoever passes the file on passes them on
O doctor --account -- an operator looks at one of many
"""
EVERYWHERE = ("--data", "--config")
COMMANDS = {
    line.cells[0]: (line.origin, tuple(line.cells[1].split(",")) if len(line.cells) > 1 else ())
    for line in lines(_COMMANDS)
}
OPTIONS = tuple((line.cells[0], line.cells[1]) for line in lines(_OPTIONS))
DEFAULTS = {"data": "./campanero-data", "role": "owner", "scope": "full", "account": 1}
PASSWORD = (10, 1024)
