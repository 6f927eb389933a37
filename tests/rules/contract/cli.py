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
D restore SOURCE,--force
D user.password --email
D user.otp-off --email
O user.allow-password --email -- the way back when a provider fails
O agents.stop --account -- one switch stops all agents, also without a browser
O agents.resume --account -- and lets them go on
O account.list -- what each account holds, also without a browser
O account.close ID -- an operator shuts an account whose people are gone or harm others
O account.reopen ID -- ends that
O account.address ID,--url,--remove -- the host of what its recipients get
O account.limits ID,--contacts,--messages-per-day,--messages-per-month,--picture-megabytes -- fair shares
O status -- what runs is looked at where it runs, without a browser
O agents.stop --account -- all agents at once, also while nobody can sign in
O agents.resume --account -- ends that
O support-bundle FILE -- whoever helps sees the installation without its people
O follow SOURCE -- a second machine keeps a copy that is seconds old
O promote -- a person makes the second machine the one that sends
O copies.list URL -- what is in another place, and what others have deleted there
O copies.verify URL,--all -- each byte, without a private key
O copies.prune URL -- what the settings no longer keep
O copies.passphrase -- the first line of stdin, so that no other user sees it
O copies.key -- a recovery key, printed once and stored nowhere
O recount -- opens and clicks are judged again when the rules of the judge change
"""
_OPTIONS = """
O backup --with-key -- a move to another machine is one file
O backup --to -- an encrypted copy in another place
O follow --litestream -- where Litestream is not in the path
O promote --old-machine-is-off -- without a lease a person answers for it
O promote --lease-only -- back to a machine that has the current data
O restore --at -- a copy by its time
O restore --identity -- the recovery key, or an identity file of age
O restore --signer -- whose copies are trusted, if the recovery key does not say it
O restore --skip-lost-files -- a store that lost an attachment does not cost the database
O status --watch -- drawn again while one waits for a send
O status --json -- for scripts
O doctor --json -- for scripts that watch
O doctor --seed -- one message through all of it
O doctor --tenant -- without what concerns the installation, for the health page of another account
O account.limits --requests-per-minute -- the requests of all its keys
O account.limits --imports-at-once -- an import takes the writer from the others
O account.add --owner -- somebody who has a user becomes the first owner
O key.create --agent -- a key that drafts and proposes
O version --licences -- whoever passes the file on passes them on
O key.create --agent -- an assistant drafts and proposes, and people decide
O doctor --account -- an operator looks at one of many
"""
# Commands for scripts, which talk to a service over HTTP; those with a `*` need no service
_REMOTE = """
O login* URL -- the key is kept in a profile, and is not an argument that other users could see
O logout* -- deletes the profile
O profiles* --json -- without the keys
O api METHOD,PATH,--raw-field,--field,--input,--header,--include,--paginate,--count,--silent -- as `gh api`
D contacts.import FILE,--list,--map,--consent-source,--no-opt-in,--suppressions,--options,--dry-run,--results
D contacts.import --rejected -- what a nightly import mails to those who correct the file
D contacts.import --no-wait,--json
D contacts.export FILE,--format,--list,--segment,--tag,--search,--status,--json
D campaigns.list --status,--search,--limit,--json
D campaigns.show ID,--wait,--json
D campaigns.preflight ID,--json
D campaigns.send ID,--yes,--all,--at,--wait,--json
D campaigns.pause ID,--json
D campaigns.resume ID,--json
D messages.send --to,--subject,--text,--html,--template,--raw-field,--field,--attach,--from,--reply-to,--cc,--bcc
D messages.send --sms,--marketing,--at,--idempotency-key,--json
D messages.tail --lines,--follow,--interval,--campaign,--flow,--status,--to,--since,--json
D events.send EVENT,--email,--contact,--create-contact,--amount,--at,--idempotency-key,--raw-field,--field,--json
O content.export DIR,--json -- content lives in version control, and moves between accounts
O content.import DIR,--dry-run,--json -- and comes back
D flows.simulate ID,--contact,--email,--start,--raw-field,--field,--json
"""
EVERYWHERE = ("--data", "--config")
COMMANDS = {
    line.cells[0]: (line.origin, tuple(line.cells[1].split(",")) if len(line.cells) > 1 else ())
    for line in lines(_COMMANDS)
}
OPTIONS = tuple((line.cells[0], line.cells[1]) for line in lines(_OPTIONS))
# Without a scope a key has `full`, and that of an agent `draft`
DEFAULTS = {"data": "./campanero-data", "role": "owner", "scope": "full", "account": 1}
# The options of each command for scripts
REMOTE_COMMANDS: dict[str, set[str]] = {}
for _line in lines(_REMOTE):
    _name, *_options = _line.cells
    _common = {"--profile"} if _name.endswith("*") else {"--profile", "--retries", "--jq"}
    REMOTE_COMMANDS.setdefault(_name.rstrip("*"), _common).update(",".join(_options).split(",") if _options else ())
PASSWORD = (10, 1024)
