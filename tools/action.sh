#!/usr/bin/env bash
# What action.yml runs: installs reprodb outside the workspace, runs it, and leaves the step's outputs whatever happens.
set -euo pipefail
set -f # profiles may be globs, and they are reprodb's to match

# What ends this before reprodb has answered is no answer: bash's own 1 would say that bits changed.
code=4
leave() {
  # A run that ends before its verdict has an exit code all the same.
  if ! grep -q '^exit-code=' "$GITHUB_OUTPUT" 2>/dev/null; then
    printf 'verdict=no answer, see the log\nexit-code=%s\nreport=\n' "$code" >>"$GITHUB_OUTPUT"
  fi
  exit "$code"
}
trap leave EXIT

here=$(cd "$(dirname "$0")/.." && pwd)
command=${INPUT_COMMAND:-}
if [ -z "$command" ]; then
  environment=$RUNNER_TEMP/reprodb
  extras=cpu
  case "${INPUT_DATABASE:-}" in postgres*) extras=cpu,postgres ;; esac
  # shellcheck disable=SC2046 # the extra is one word, or none
  (
    cd "$here"
    "$(tools/find-python.sh)" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet -c constraints.txt ".[$extras]" $(tools/gpu-extra.sh)
  )
  command=$environment/bin/reprodb
fi

if [ -n "${INPUT_AGAINST:-}" ]; then
  mkdir -p -- "$INPUT_OUT"
  arguments=(check --against "$INPUT_AGAINST" --html "$INPUT_OUT/check.html" --junit "$INPUT_OUT/check.xml")
  # `auto` would let a runner with a GPU answer otherwise than one without.
  [ "$INPUT_DEVICE" = auto ] || arguments+=(--device "$INPUT_DEVICE")
else
  arguments=(nightly --device "$INPUT_DEVICE" --out "$INPUT_OUT" --junit "$INPUT_OUT/junit.xml")
fi
# In the environment and not on the command line, which every process of the machine may read.
[ -z "${INPUT_DATABASE:-}" ] || export REPRODB_DB=$INPUT_DATABASE
[ -z "${INPUT_SUITE:-}" ] || arguments+=(--suite "$INPUT_SUITE")
[ -z "${INPUT_POLICY:-}" ] || arguments+=(--policy "$INPUT_POLICY")
for profile in ${INPUT_PROFILES:-}; do
  arguments+=(--profile "$profile")
done

if "$command" "${arguments[@]}"; then code=0; else code=$?; fi
