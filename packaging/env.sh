# Set-up shared by serve, test and build: `ensure run` or `ensure test` leaves .venv holding the locks.
# Needs only Python 3.11+ with pip; python3-venv is not needed. Expects $root, the directory of the clone.

venv="$root/.venv"
missing=

say() { echo "campanero: $*" >&2; }

# Prints the first Python that can do the work. Each is run, because a shim may exist and still fail.
find_python() {
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys, pip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return 0
    fi
  done
  say "Python 3.11 or newer with pip is needed; on Debian: apt-get install python3 python3-pip"
  return 1
}

# Prints MAJOR.MINOR of an interpreter, nothing when it does not run.
version_of() { "$1" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# Is .venv whole, and made for the interpreter it now points to (and for $PYTHON, when that is set)?
venv_is_sound() {
  has=$(version_of "$venv/bin/python") || return 1
  [ -n "$has" ] && [ -d "$venv/lib/python$has/site-packages" ] || return 1
  [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$has" ]
}

# What the stamp of a finished installation of these locks must say.
wanted() { echo "$(cat "$@" | cksum) python $has in $root"; }

# ensure run|test: cheap when nothing changed; otherwise installs, and writes the stamp last of all.
ensure() {
  case $1 in
    run) set -- run "$root/packaging/requirements.lock" ;;
    test) set -- test "$root/packaging/requirements.lock" "$root/packaging/requirements-test.lock" ;;
    *) say "ensure: run or test, not $1"; return 2 ;;
  esac
  stamp="$venv/.stamp-$1"
  shift
  if venv_is_sound && [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted "$@")" ]; then
    return 0
  fi
  (
    # Two scripts started at once must not install into one directory at the same time.
    if command -v flock >/dev/null; then flock 9; fi
    install_locks "$@"
  ) 9<"$root/packaging/env.sh"
}

install_locks() {
  if venv_is_sound && [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted "$@")" ]; then
    return 0 # the other script did it meanwhile
  fi
  python=$(find_python) || return 1
  if ! venv_is_sound; then
    say "making .venv with $("$python" -V)"
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv" || return 1
    venv_is_sound || { say ".venv could not be made"; return 1; }
  fi
  say "installing the locked packages"
  rm -f "$stamp"
  content=$(wanted "$@")
  content_run=$(wanted "$root/packaging/requirements.lock") # the first lock is part of either
  for lock in "$@"; do # each file becomes -r file
    shift
    set -- "$@" -r "$lock"
  done
  if ! "$python" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check "$@" >&2; then
    say "the installation failed; running this again repeats it"
    return 1
  fi
  echo "$content_run" >"$venv/.stamp-run"
  echo "$content" >"$stamp"
}

# needs FILE-PATTERN PACKAGE: remembers a Debian package whose file is not there.
needs() {
  for found in $1; do
    [ -e "$found" ] && return 0
  done
  missing="$missing $2"
}

# Debian packages that PyInstaller needs beside the locks: objdump and strip, and the shared library of the Python,
# which Debian's own interpreter does without.
need_for_build() {
  if ! command -v objdump >/dev/null || ! command -v strip >/dev/null; then missing="$missing binutils"; fi
  missing="$missing$("$venv/bin/python" -c '
import ctypes, sys, sysconfig
library = sysconfig.get_config_var("INSTSONAME") or ""
try:
    ".so" in library and ctypes.CDLL(library)
except OSError:
    print(" libpython%d.%d" % sys.version_info[:2])')"
}

# Installs what is in $missing by apt-get; fails after printing the exact command when it may not or cannot.
install_missing() {
  [ -n "$missing" ] || return 0
  command="apt-get install -y --no-install-recommends$missing"
  if ! command -v apt-get >/dev/null; then
    say "missing:$missing (the names of Debian 12)"
    return 1
  fi
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
  else
    say "some Debian packages are missing; an administrator installs them with:  apt-get update && $command"
    return 1
  fi
  say "installing$missing"
  # shellcheck disable=SC2086 # a list of words on purpose
  $as_root apt-get update -q >&2 && $as_root env DEBIAN_FRONTEND=noninteractive $command -q >&2 && return 0
  say "that failed; by hand:  apt-get update && $command"
  return 1
}
