# Two commands matter: `make demo` sets up and runs, `make test` sets up and tests.

PYTHON ?= python3
BIN := .venv/bin
HOT := $(wildcard sources/cassandra/*.pxd)

.PHONY: demo test check coverage clean
.DELETE_ON_ERROR:

demo: .venv/core .venv/native  ## Set up the core and run.
	$(BIN)/headrace-demo

test: .venv/ready .venv/native  ## Set up everything and test.
	HEADRACE_NATIVE=require $(BIN)/pytest

check: .venv/ready .venv/native  ## Lint, types, imports, tests.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/lint-imports
	HEADRACE_NATIVE=require $(BIN)/pytest

coverage: .venv/ready  ## A compiled module hides its lines, so this one leg runs without them.
	rm -f .venv/native $(HOT:.py=.*.so)
	$(BIN)/coverage run $(BIN)/pytest
	$(BIN)/coverage report

clean:
	rm -rf .venv build dist src/*.egg-info
	rm -f $(HOT:.py=.*.so)

.venv/core: setup.cfg setup.py pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	test -x $(BIN)/uv || $(BIN)/pip install -q uv
	$(BIN)/uv pip install -q -p .venv -c constraints.txt -e . cython setuptools
	touch $@

.venv/ready: .venv/core
	$(BIN)/uv pip install -q -p .venv -c constraints.txt -e '.[all,test]'
	touch $@

# An editable install goes on running the old machine code until this rule renews it.
.venv/native: .venv/core $(HOT) $(HOT:.py=.pxd)
	HEADRACE_NATIVE=require $(BIN)/python setup.py -q build_ext --inplace
	touch $@
