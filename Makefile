# Two commands matter: `make demo` sets up and runs, `make test` sets up and tests.

PYTHON ?= python3
BIN := .venv/bin
UV := .ci/twice $(BIN)/uv pip install -q --compile-bytecode -p .venv -c constraints.txt
# A machine behind a proxy knows the proxy's certificate; uv looks for it only when asked to.
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/*.pem /etc/ssl/cert.pem),true,false)
# Tests start hundreds of processes: without kept bytecode each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
SECONDS ?= 600
SEEDS ?= 1..10
# A new one each time; the commands below print it, so that a failure can be repeated.
ifndef SEED
SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif
FUZZ := HEADRACE_FUZZ_SECONDS=$(SECONDS) HEADRACE_FUZZ_SEED=$(SEED)
CORES := $(shell nproc 2>/dev/null || echo 1)
# Tests wait for processes and for one another nearly half of their time: four workers keep two cores
# busy. More would cost more, because each collects all tests, which takes seconds.
SHARED_OUT := -n $(shell expr $(CORES) \* 3 / 2 + 1) --dist worksteal
HOT := $(wildcard $(foreach room,connector/history/store connector/rows connector/serde/transcode sources/cassandra/*,$(room)/*.py $(room)/*.pxd) sources/cassandra/native/c/*.h sinks/kafka/clients/*.pyx)
# Found before what .venv has, by PYTHONPATH: all else is that of .venv.
OLDER_SPARK := PYTHONPATH=$(CURDIR)/.venv/spark42 HEADRACE_SPARK=4.2.1 HEADRACE_NATIVE=require $(BIN)/pytest -v --timeout 1200

.PHONY: help demo test test-real real-node real-ring test-newest test-older-spark test-older-spark-few ring fuzz fuzz-compiled fuzz-interpreted soak effects check alerts constraints docs bench bench-debezium bench-history bench-kafka bench-live bench-once bench-verify simulate coverage wheel newcomer clean
.DELETE_ON_ERROR:

help:  ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: .venv/core  ## Set up the core, run a recorded three-node cluster into an embedded Kafka, then compile.
	@# Compiling takes longer than all before it, and the result is the same.
	@test -e .venv/native || echo 'headrace: not compiled yet, so this run is interpreted and more than ten times slower'
	$(BIN)/headrace demo
	@test -e .venv/native || echo 'headrace: compiling, which takes some minutes; what is installed works meanwhile'
	@$(MAKE) -s .venv/native || echo 'headrace: not compiled: it stays interpreted, slower, with the same results'

# Tests of what is interpreted wait for nothing: a worker for each core is enough.
test: .venv/ready .venv/native  ## Set up everything and run the unit tests, those of compiled modules also interpreted; needs no Java.
	HEADRACE_NATIVE=off $(BIN)/pytest -n $(CORES) --dist worksteal -m "hot and not long" tests/connector/history/store tests/connector/rows tests/connector/serde tests/sources/cassandra
	HEADRACE_NATIVE=require $(BIN)/pytest $(SHARED_OUT)

test-real: .venv/ready .venv/native  ## Test against a real Cassandra and a real Kafka; needs Java and Maven.
	@.ci/machine $(PYTHON) java
	@$(MAKE) -s -j 2 real-node real-ring

# In parallel: while one waits the other uses its core.
real-node:  ## Run that part of test-real which needs one node, on three of them.
	@# Two thirds of the time tests wait for servers, and a third of it where Spark computes.
	HEADRACE_NATIVE=require $(BIN)/pytest -v --durations 40 -n 3 --dist loadfile --timeout 2400 -m "real and not ring" tests/real

real-ring:  ## Run that part of test-real which needs a ring, or a node of its own.
	HEADRACE_NATIVE=require $(BIN)/pytest -v --durations 40 -n 1 --timeout 2400 -m "real and ring" tests/real

test-newest: .venv/newest/ready  ## Run those unit tests that a version of Python may decide with the newest Python here, interpreted; skipped if none is newer.
	@if [ ! -e $< ]; then echo "headrace: no Python here is newer than that of .venv: test-newest is skipped"; exit 0; fi; \
	set -x; \
	HEADRACE_NATIVE=off .venv/newest/bin/pytest tests/connector/control tests/connector/foundation

test-older-spark: .venv/ready .venv/native .venv/spark42  ## Run those tests of Spark that a version decides with Spark 4.2; test-real has the newest. Needs Java and Maven.
	@.ci/machine $(PYTHON) java
	$(OLDER_SPARK) -m "real and spark" tests/real/spark tests/real/kafka/test_spark_once.py

test-older-spark-few: .venv/ready .venv/native .venv/spark42  ## Run the few of them that show what Spark does with our sources, in a minute or two. Needs Java.
	@.ci/machine $(PYTHON) java
	$(OLDER_SPARK) -m spark_few tests/real/spark

ring: .venv/ready .venv/native  ## Run three Cassandra nodes, agents, Kafka and two workers until Ctrl-C; needs Java and Maven.
	@.ci/machine $(PYTHON) java
	@PYTHONPATH=tests exec $(BIN)/python tests/real/ring/topology.py

fuzz: .venv/ready .venv/native  ## Read random bytes for SECONDS (600) and use new examples, unless SEED is given.
	HEADRACE_FUZZ_SEED=$(SEED) HEADRACE_NATIVE=require $(BIN)/pytest $(SHARED_OUT) -m "hypothesis and not real" --hypothesis-seed=$(SEED)
	@$(MAKE) --no-print-directory -j 2 SECONDS=$(SECONDS) SEED=$(SEED) fuzz-compiled fuzz-interpreted

fuzz-compiled:  ## That part of fuzz which reads random bytes with compiled modules.
	$(FUZZ) HEADRACE_NATIVE=require $(BIN)/pytest tests/sources/cassandra/test_fuzz.py

fuzz-interpreted:  ## The same with interpreted modules.
	$(FUZZ) HEADRACE_NATIVE=off $(BIN)/pytest tests/sources/cassandra/test_fuzz.py

effects: .venv/ready .venv/native  ## Run the test of each option while the option has no effect: each must fail.
	@# An option without effect keeps tests waiting: of four minutes of two workers, 75 s are CPU.
	HEADRACE_EFFECTS=1 HEADRACE_NATIVE=require $(BIN)/pytest -n 8 --dist worksteal tests/test_effects.py

soak: .venv/ready .venv/native  ## Run the tests of rings, schedules and kills for many SEEDS (1..10), an hour; with MINUTES then a worker for so long, with Java.
	HEADRACE_SEEDS=$(SEEDS) HEADRACE_MODEL_EXAMPLES=100 HEADRACE_KILLS=1000 HEADRACE_NATIVE=require \
		$(BIN)/pytest $(SHARED_OUT) -m "soak and not real"
	$(if $(MINUTES),PYTHONPATH=tests $(BIN)/python -m bench.soak --minutes $(MINUTES))

check: .venv/ready  ## Lint, format, words, types, imports, known vulnerabilities.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests bench
	$(BIN)/lint-imports
	$(BIN)/python .ci/words
	$(BIN)/python .ci/audit

alerts:  ## Check the alert rules and run their tests with promtool, which Go builds once; skipped without both.
	@.ci/alerts

# With UPGRADE=--upgrade the newest versions that fit, otherwise those that are there.
constraints: .venv/core  ## Renew constraints.txt, the versions and hashes of all that is installed.
	HEADRACE_NATIVE=off .ci/twice $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --all-extras $(UPGRADE) setup.cfg .ci/tools.txt -o constraints.txt

docs: .venv/docs  ## Make the pages into a site with search, build/site/; what is broken in them is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/ready .venv/native  ## Measure, each figure beside its bound; raw results go to bench/results/.
	$(BIN)/python -m bench

bench-debezium: .venv/ready .venv/native  ## Compare the CPU of a change with Debezium's, with a real Cassandra and Kafka; needs Java and Maven.
	@.ci/machine $(PYTHON) java
	PYTHONPATH=tests $(BIN)/python -m bench.debezium

bench-history: .venv/ready .venv/native  ## Measure what a change costs on its way into a history, and queries of it.
	PYTHONPATH=tests $(BIN)/python -m bench.history

bench-kafka: .venv/ready .venv/native  ## Measure what a change costs on its way into a real Kafka; needs Java and Maven.
	@.ci/machine $(PYTHON) java
	PYTHONPATH=tests $(BIN)/python -m bench.kafka

bench-live: .venv/ready .venv/native  ## Measure the cost and the delay of changes while a real Cassandra is written to; needs Java and Maven.
	@.ci/machine $(PYTHON) java
	PYTHONPATH=tests $(BIN)/python -m bench.live

bench-once: .venv/ready .venv/native  ## Measure what exactly once costs, with a real Kafka; needs Java and Maven.
	@.ci/machine $(PYTHON) java
	PYTHONPATH=tests $(BIN)/python -m bench.once

bench-verify: .venv/ready .venv/native  ## Measure how fast verify --sink reads a topic, with a real Kafka; needs Java and Maven.
	@.ci/machine $(PYTHON) java
	PYTHONPATH=tests $(BIN)/python -m bench.sink_reading

simulate: .venv/ready  ## What 500 workers on a ring of 1,000 nodes ask of each other and of the store.
	$(BIN)/python -m bench.ring

coverage: .venv/ready  ## Run the unit tests interpreted, because compiled modules hide their lines.
	HEADRACE_NATIVE=off $(BIN)/coverage run $(BIN)/pytest
	$(BIN)/coverage report

wheel: .venv/ready  ## Build a wheel for this machine into dist/.
	HEADRACE_NATIVE=require $(BIN)/uv build -q --wheel -p $(BIN)/python

newcomer:  ## Follow README and tutorial in a new clone with an empty home, and from a wheel; print how long each step takes.
	@.ci/newcomer

clean:  ## Remove the environment and everything built.
	rm -rf .venv build dist src/*.egg-info
	find connector sinks sources -name '*.so' -delete

.venv/core: setup.cfg setup.py pyproject.toml constraints.txt
	@.ci/machine $(PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@# uv verifies the hashes of constraints, pip those of requirements only.
	sed -n '/^uv==/,/[^\\]$$/p' constraints.txt > .venv/uv.txt
	test -x $(BIN)/uv || .ci/twice $(BIN)/pip install -q --no-deps --require-hashes -r .venv/uv.txt
	$(UV) cython setuptools
	HEADRACE_NATIVE=off $(UV) --no-build-isolation -e .
	@# No start parses source, even where Python may not write bytecode.
	$(BIN)/python -m compileall -q connector plugins sinks sources
	@touch $@

.venv/ready: .venv/core
	HEADRACE_NATIVE=off $(UV) --no-build-isolation -e '.[test]'
	@touch $@

.venv/spark42: .venv/core .ci/spark42.txt
	rm -rf $@
	.ci/twice $(BIN)/uv pip install -q --compile-bytecode -p .venv --no-deps --require-hashes --target $@ -r .ci/spark42.txt
	@touch $@

# Not made, and so looked for again, if no Python here is newer than that of .venv.
.venv/newest/ready: .venv/core
	@newest=$$(.ci/newest); \
	if [ -z "$$newest" ]; then exit 0; fi; \
	set -ex; \
	test -x .venv/newest/bin/python || "$$newest" -m venv .venv/newest; \
	HEADRACE_NATIVE=off .ci/twice $(BIN)/uv pip install -q -p .venv/newest -c constraints.txt cython setuptools; \
	HEADRACE_NATIVE=off .ci/twice $(BIN)/uv pip install -q -p .venv/newest -c constraints.txt --no-build-isolation -e '.[test]'; \
	touch $@

.venv/docs: .venv/core
	HEADRACE_NATIVE=off $(UV) --no-build-isolation -e '.[docs]'
	@touch $@

# An editable install runs the old machine code until this rule renews it.
.venv/native: .venv/core $(HOT)
	@.ci/machine $(BIN)/python compiler
	HEADRACE_NATIVE=require $(BIN)/python setup.py -q build_ext --inplace -j $(CORES)
	@touch $@
