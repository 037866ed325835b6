# Every target does its own set-up. Overrides: PYTHON=python3.12, or NO_SETUP=1 to use the current
# environment as it is (a GPU image that already has CuPy, a machine without a network).
PYTHON ?= $(shell tools/find-python.sh)
PROFILES ?=
ARGS ?=
# Workers of `make test`: half as many again as cores, since tests wait for processes of their own.
WORKERS ?= $(shell expr 3 \* $$(nproc) / 2)
# Further extras of pyproject.toml, such as postgres where the database is a server's.
EXTRAS ?=

comma := ,

ifdef NO_SETUP
  PY := $(PYTHON)
  RUNTIME :=
  DEV :=
else
  VENV ?= .venv
  PY := $(VENV)/bin/python
  RUNTIME := $(VENV)/.runtime
  DEV := $(VENV)/.dev
endif
REPRODB := $(PY) -m reprodb

.PHONY: setup nightly test check soak bench bench-gpu test-gpu docs format clean system-packages
.DELETE_ON_ERROR:

# The environment alone, with the command in it.
setup: $(RUNTIME)

# The main job: on the GPU where one works, else on the model.
nightly: $(RUNTIME)
	$(REPRODB) nightly $(foreach p,$(PROFILES),--profile $(p)) $(ARGS)

# A file is one worker's, so that what its tests share is made once; tests/conftest.py says which come first.
# Hundreds of interpreters are started: they read compiled modules, also where the environment says not to keep any.
test soak test-gpu: export PYTHONDONTWRITEBYTECODE :=
test: $(DEV) system-packages
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not gpu and not soak" $(ARGS)

check: $(DEV)
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

# What takes longer than a pull request should wait: fault injection, the whole conformance suite, fuzzing.
soak: $(DEV) system-packages
	$(PY) -m pytest -m soak $(ARGS)

# On a machine with a GPU: what claims something about GPUs.
test-gpu: $(DEV)
	$(PY) -m pytest -m gpu $(ARGS)

bench: $(DEV)
	$(PY) -m benchmarks $(ARGS)

bench-gpu: $(DEV)
	$(PY) -m benchmarks --gpu $(ARGS)

# The commands that README and docs show are run by these tests.
docs: $(DEV)
	$(PY) -m pytest tests/test_docs.py $(ARGS)

format: $(DEV)
	$(PY) -m ruff format
	$(PY) -m ruff check --fix

clean:
	rm -rf .venv builds/store .mypy_cache .ruff_cache .hypothesis dist

# Debian's PostgreSQL, Chromium and gcc for the tests: installed where this user may, else named.
system-packages:
	tools/system-packages.sh

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("reprodb needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --upgrade pip

.venv/.runtime: pyproject.toml constraints.txt | .venv/bin/python
	.venv/bin/python -m pip install --quiet -c constraints.txt -e '.[cpu$(addprefix $(comma),$(EXTRAS))]' $$(tools/gpu-extra.sh)
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	.venv/bin/python -m pip install --quiet -c constraints.txt -e '.[cpu,postgres,dev]' $$(tools/gpu-extra.sh)
	@touch $@ .venv/.runtime
