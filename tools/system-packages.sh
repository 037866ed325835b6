#!/bin/sh
# Makes sure that the Debian packages the tests need are there: installs them as root, else names them.
set -eu
missing=
have() { command -v "$1" >/dev/null 2>&1; }
have gcc && have g++ || missing="$missing gcc g++"
have git || missing="$missing git"
have chromium || missing="$missing chromium"
have initdb || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -eq 0 ] && have apt-get; then
  echo "installing$missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  # shellcheck disable=SC2086 # the list is meant to be split
  apt-get -qq install -y --no-install-recommends $missing >/dev/null
  exit 0
fi
echo "the tests need$missing; install them: sudo apt-get install$missing" >&2
exit 1
