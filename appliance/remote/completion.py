"""Completion of commands, options and choices in bash, zsh and fish, generated from the tree of argparse parsers.

A completion script contains all words, so that completing does not start the program.
"""

import argparse
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from appliance.remote import output

SHELLS = ("bash", "zsh", "fish")
_FILE_NAMES = {"FILE", "DIR"}


class _Option(NamedTuple):
    """An option: its names, its help, whether it takes a value, the choices of the value, and whether it is a file."""

    names: tuple[str, ...]
    words: str
    takes_value: bool
    choices: tuple[str, ...]
    is_file: bool


class _Command(NamedTuple):
    """A command of the command line.

    `path` is its full name, such as `contacts import`, and empty for the program itself. `commands` are the name and
    help of its subcommands, `choices` the values of its arguments, and `takes_file` says whether an argument is a file
    or directory.
    """

    path: str
    commands: tuple[tuple[str, str], ...]
    options: tuple[_Option, ...]
    choices: tuple[str, ...]
    takes_file: bool


def _list_commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[_Command]:
    """Yield a command and all commands below it."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    children = {name: child for group in groups for name, child in group.choices.items()}
    plain = [action for action in parser._actions if action not in groups]
    options = tuple(
        _Option(
            tuple(action.option_strings), output.clean_line((action.help or "").replace("%%", "%")), action.nargs != 0,
            tuple(map(str, action.choices or ())), action.metavar in _FILE_NAMES,
        )
        for action in plain if action.option_strings
    )  # fmt: skip
    arguments = [action for action in plain if not action.option_strings]
    choices = tuple(str(choice) for action in arguments for choice in action.choices or ())
    commands = tuple((name, (child.description or "").rstrip(".")) for name, child in children.items())
    yield _Command(path, commands, options, choices, any(action.metavar in _FILE_NAMES for action in arguments))
    for name, child in children.items():
        yield from _list_commands(child, f"{path} {name}".strip())


def write_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a program for one of `SHELLS`."""
    commands = list(_list_commands(parser))
    return {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}[shell](commands)


_WALK = """\
  local path="" previous="" word
  for word in {words}; do
    case "$previous" in
{values}
    esac
    previous="$word"
    case "$path $word" in
{steps}
    esac
  done
"""


def _list_steps(commands: list[_Command]) -> str:
    """Return the branches of a `case` that follow the words of the command line to the path of its command."""
    steps = (f'      " {command.path}") path="{command.path}" ;;' for command in commands if " " not in command.path)
    inner = (f'      "{command.path}") path="{command.path}" ;;' for command in commands if " " in command.path)
    return "\n".join([*(step for step in steps if '" "' not in step), *inner])


def _value_options(commands: list[_Command]) -> str:
    names = {name for command in commands for option in command.options if option.takes_value for name in option.names}
    return "|".join(sorted(names))


def _write_bash(commands: list[_Command]) -> str:
    lines = [
        "# bash completion of campanero; load it with: source <(campanero completion bash)",
        "_campanero() {",
        _WALK.format(
            words='"${COMP_WORDS[@]:1:COMP_CWORD-1}"', steps=_list_steps(commands),
            values=f'      {_value_options(commands)}) previous=""; continue ;;',
        ).rstrip("\n"),
        '  local current="${COMP_WORDS[COMP_CWORD]}" words="" files=""',
        '  case "$path:$previous" in',
    ]  # fmt: skip
    for command in commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f'"{command.path}:{name}"' for name in option.names)
                action = "files=yes" if option.is_file else f"words={shlex.quote(' '.join(option.choices))}"
                lines.append(f"    {pattern}) {action} ;;")
    for command in commands:
        words = [
            *(name for name, _ in command.commands), *command.choices,
            *(name for option in command.options for name in option.names),
        ]  # fmt: skip
        action = f"words={shlex.quote(' '.join(words))}" + ("; files=yes" if command.takes_file else "")
        lines.append(f'    "{command.path}:"*) {action} ;;')
    lines += [
        "  esac",
        "  COMPREPLY=()",
        '  [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))',
        '  [ -z "$files" ] || [[ "$current" == -* ]] || COMPREPLY+=($(compgen -f -- "$current"))',
        "}",
        "complete -o filenames -F _campanero campanero",
    ]
    return "\n".join(lines) + "\n"


def _write_zsh(commands: list[_Command]) -> str:
    lines = [
        "#compdef campanero",
        "# zsh completion of campanero; load it with: source <(campanero completion zsh)",
        "_campanero() {",
        _WALK.format(
            words='"${(@)words[2,CURRENT-1]}"', steps=_list_steps(commands),
            values=f'      {_value_options(commands)}) previous=""; continue ;;',
        ).rstrip("\n").replace("path", "place"),
        "  local -a names flags",
        '  case "$place:$previous" in',
    ]  # fmt: skip
    for command in commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f'"{command.path}:{name}"' for name in option.names)
                action = "_files" if option.is_file else f"compadd -- {shlex.join(option.choices)}"
                lines.append(f"    {pattern}) {action if option.is_file or option.choices else ':'}; return ;;")
    for command in commands:
        names = [_describe_zsh(name, words) for name, words in command.commands]
        names += [_describe_zsh(choice, "") for choice in command.choices]
        flags = [_describe_zsh(name, option.words) for option in command.options for name in option.names]
        lines.append(
            f'    "{command.path}:"*) names=({shlex.join(names)}); flags=({shlex.join(flags)})'
            + ("; _files" if command.takes_file else "")
            + " ;;"
        )
    lines += [
        "  esac",
        "  (( $#names )) && _describe command names",
        '  [[ "$PREFIX" == -* ]] && _describe option flags',
        "}",
        "compdef _campanero campanero",
    ]
    return "\n".join(lines) + "\n"


def _describe_zsh(name: str, words: str) -> str:
    return f"{name}:{words}" if words else name


def _write_fish(commands: list[_Command]) -> str:
    lines = [
        "# fish completion of campanero; load it with: campanero completion fish | source",
        "function __campanero_at",
        "  set -l place",
        "  set -l previous",
        "  for word in (commandline -opc)[2..-1]",
        f'    if contains -- "$previous" {_value_options(commands).replace("|", " ")}',
        "      set previous",
        "      continue",
        "    end",
        "    set previous $word",
        '    if not string match -q -- "-*" $word',
        "      set -a place $word",
        "    end",
        "  end",
        '  set -l joined "$place"',
        '  test "$joined" = "$argv[1]"; or begin; test "$argv[2]" = below; '
        'and string match -q -- "$argv[1] *" "$joined"; end',
        "end",
        "complete -c campanero -f",
    ]
    for command in commands:
        exact = shlex.quote(f"__campanero_at '{command.path}'")
        below = shlex.quote(f"__campanero_at '{command.path}' below")
        for name, words in (*command.commands, *((choice, "") for choice in command.choices)):
            lines.append(f"complete -c campanero -n {exact} -a {shlex.quote(name)} -d {_quote_fish(words)}")
        if command.takes_file:
            lines.append(f"complete -c campanero -n {below} -F")
        # Options of a command with subcommands come before the subcommand.
        where = exact if command.commands else below
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = f" -x -a {shlex.quote(' '.join(option.choices))}" if option.choices else ""
            value = value or (" -r -F" if option.is_file else " -x" if option.takes_value else "")
            lines.append(f"complete -c campanero -n {where} {names} -d {_quote_fish(option.words)}{value}")
    return "\n".join(lines) + "\n"


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
