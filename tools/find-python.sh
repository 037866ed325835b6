#!/bin/sh
# Prints the first Python of version 3.11 or newer that really runs (a version manager's shim may not).
for name in python3 python3.13 python3.12 python3.11 python; do
  if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    command -v "$name"
    exit 0
  fi
done
echo python3
