# One entry point for people and CI. `make demo`, `make test`, `make check` and `make bench` set up .venv by
# themselves: the only needs are make and Python 3.11 or newer. `make PYTHON=/path/to/python …` chooses one.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install demo test check format docs bench lock clean
.DELETE_ON_ERROR:

help:
	@echo 'make install   set up $(VENV) with everything pinned in requirements.lock'
	@echo 'make demo      run the demo: see it work'
	@echo 'make test      run the tests'
	@echo 'make check     formatting, lint, types and layers'
	@echo 'make format    reformat, and apply automatic fixes'
	@echo 'make docs      write the generated parts of docs/, and build the site into site/'
	@echo 'make bench     run the benchmarks'
	@echo 'make lock      pin the newest versions of all dependencies'
	@echo 'make clean     remove $(VENV), caches and builds'

install: $(READY)

demo: $(READY)
	$(BIN)/millstream demo

# Files run in the order of tests/longest_first.py; xdist would begin with those that have the most tests.
test: $(READY)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import-linter --no-logo

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs -d .cache/sphinx . site

bench: $(READY)
	$(BIN)/python -m benchmarks

# The stamp is written last, so that an interrupted set-up starts over.
$(READY): pyproject.toml requirements.lock
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo 'millstream needs Python 3.11 or newer: install it, or run make PYTHON=/path/to/python'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'Python lacks its venv module: install it (on Debian and Ubuntu: apt install python3-venv)'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# uv resolves for all Pythons and platforms at once, which pip-compile cannot. It has an environment of its own.
lock:
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	.cache/lock/bin/uv --no-config pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--extra avro --extra console --extra msk --extra postgres --extra scan --extra spark --group dev --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) site .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find $(wildcard src tests benchmarks examples) -name __pycache__ -type d -prune -exec rm -rf {} +
