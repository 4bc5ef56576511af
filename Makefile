# Needs Python 3.10 or later with venv, make, bash and the package registries; the rest is installed by the verbs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.SECONDARY:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JAR := sparkcrypt/_jar/sparkcrypt.jar
JAR_SOURCES := $(shell find jars sparkcrypt -name '*.java' -o -name '*.py' -not -path '*/__pycache__/*' 2>/dev/null)
# The last release of each series that is served.
SPARKS := 3.5.9 4.0.5 4.1.4 4.2.1 4.3.0
# Airflows besides that of the suite, which tests/airflow/constraints.txt names.
AIRFLOWS := 2.10.5 2.11.2
PYTEST := $(BIN)/python -m pytest
# Tests of Spark wait now and then, so two cores serve three processes; files go in their order, the longest folders first.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder
ARGS ?=
SECONDS ?= 600
SEED ?= 1
NIGHTS ?= 10
STATEMENTS ?= 300

# Every verb that runs Spark runs on this JDK; installs one where it can, else ends with 69 and the command to run.
WITH_JAVA = JAVA_HOME="$$(tools/ensure_jdk.sh)" && export JAVA_HOME PATH="$$JAVA_HOME/bin:$$PATH"
# Vault's test server is built once, with Go; without either its tests skip with the reason (or fail, where
# SPARKCRYPT_REQUIRE_SERVICES=1).
WITH_VAULT = if GO="$$(tools/ensure_go.sh $(BIN)/python)"; then export PATH="$$GO:$$PATH"; fi; \
	echo "Vault's test server (its first build takes some minutes):" >&2; \
	$(BIN)/python -m tests.services.vault_server >&2 || echo "Vault cannot be had; the line above says why" >&2

# Pages are looked at in a real browser; without one these tests skip with the reason, or fail likewise.
WITH_CHROMIUM = if CHROMIUM="$$(tools/ensure_chromium.sh)"; then export CHROMIUM; \
	else echo "Chromium cannot be had; the lines above say why" >&2; fi

.PHONY: help house demo demo-access demo-cluster demo-estate demo-backfill demo-orc demo-retention demo-skipping test test-fast test-sparks test-airflows lint docs audit sbom release-check jar bench chaos attacks nights clean

help:  ## this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(JAR)  ## tag columns of a real Hive table, encrypt it with one job, and show the footers before and after
	@$(WITH_JAVA) && $(BIN)/python demo/run_demo.py
	@echo "make demo: the table is encrypted, and read with and without its keys"

demo-access: $(JAR)  ## three users of one Thrift server read one table: each gets what his keys allow, and the log says who read
	@$(WITH_JAVA) && $(BIN)/python demo/run_access_demo.py
	@echo "make demo-access: each user got what his keys allow, by every route"

demo-cluster: $(JAR)  ## the same on a two-worker cluster with a Hive metastore and Vault
	@$(WITH_JAVA) && { $(WITH_VAULT); } && $(BIN)/python demo/run_cluster_demo.py
	@echo "make demo-cluster: the table is encrypted on two workers, with keys that never left Vault"

demo-estate: $(JAR)  ## 30 tables of every state, and their status as text, page and metrics (ARGS=12 for fewer)
	@$(WITH_JAVA) && $(BIN)/python demo/run_estate_demo.py $(ARGS)
	@echo "make demo-estate: open demo/work-estate/status.html in a browser"

demo-backfill: $(JAR)  ## a tag changes under readers and a writer: the history follows, though its driver is killed three times
	@$(WITH_JAVA) && { $(WITH_VAULT); } && $(BIN)/python demo/run_backfill_demo.py
	@echo "make demo-backfill: no row was lost, doubled or misread, and every file is as its tags say"

demo-skipping: $(JAR)  ## one value in an encrypted table of 400 files, with a data-skipping index and without, for two readers
	@$(WITH_JAVA) && $(BIN)/python demo/run_skipping_demo.py
	@echo "make demo-skipping: one file was opened, and what a reader may not see stayed refused"

demo-orc: $(JAR)  ## an ORC table is tagged, encrypted by one run, and read with and without its key
	@$(WITH_JAVA) && $(BIN)/python demo/run_orc_demo.py
	@echo "make demo-orc: what was there and what came is encrypted, and each reader got what his keys allow"

demo-retention: $(JAR)  ## 14 months, a key each: rotate, shred the oldest, and show what every route gives before and after
	@$(WITH_JAVA) && $(BIN)/python demo/run_retention_demo.py
	@echo "make demo-retention: the oldest month is dark by every route, and the others are as they were"

test: $(JAR)  ## the whole test suite, in three processes (ARGS="-k word" to choose, in one)
	@$(WITH_JAVA) && { $(WITH_VAULT); } && { $(WITH_CHROMIUM); } && $(PYTEST) $(if $(ARGS),$(ARGS),$(SIDE_BY_SIDE))
	@echo "make test: every test passed, or was skipped with its reason above"

test-fast: $(JAR)  ## the tests that need no service and no Spark, and are not marked as slow
	@$(WITH_JAVA) && $(PYTEST) $(SIDE_BY_SIDE) $(addprefix --ignore=tests/,airflow cluster demo spark traps) \
		-m "not slow and not cluster and not services and not spark" $(ARGS)
	@echo "make test-fast: every fast test passed"

test-sparks: $(addprefix test-spark-,$(SPARKS))  ## smoke tests on each Spark that is served, in environments of their own
	@echo "make test-sparks: the smoke tests passed on Spark $(SPARKS)"

# One of them: make test-spark-3.5.9
test-spark-%: $(JAR) .venv-spark-%/.installed
	@$(WITH_JAVA) && .venv-spark-$*/bin/python -m pytest tests/spark tests/interop/test_arrow_tables.py \
		-m "sparks and not newest" $(if $(ARGS),$(ARGS),$(SIDE_BY_SIDE))

test-airflows: $(addprefix test-airflow-,$(AIRFLOWS))  ## operators, example DAGs and one run of a DAG on older Airflows, in environments of their own
	@echo "make test-airflows: operators and examples work on Airflow $(AIRFLOWS)"

# One of them: make test-airflow-2.10.5
test-airflow-%: .venv-airflow-%/.installed
	@export AIRFLOW_HOME="$$PWD/.venv-airflow-$*/home" AIRFLOW__CORE__LOAD_EXAMPLES=False PYTHONPATH="$$PWD" PYTHONWARNINGS=ignore && \
		rm -rf "$$AIRFLOW_HOME" && .venv-airflow-$*/bin/airflow db migrate >/dev/null && \
		.venv-airflow-$*/bin/python -m pytest -q -p no:cacheprovider tests/airflow/inside $(ARGS)

lint: $(INSTALLED)  ## style, types, the import contract, licences of what this stands on, and pages that the code writes
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/list_dependencies.py --check
	@$(BIN)/python -m tools.write_reference_pages --check
	@echo "make lint: style, types, imports, licences and written pages are as they should be"

docs: $(VENV)/.docs  ## build the site of docs/ into build/site/; a link or an anchor that is broken fails
	@$(BIN)/python tools/list_dependencies.py --check
	@mkdir -p build && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict >build/mkdocs.log 2>&1 || \
		{ grep -v '^INFO' build/mkdocs.log >&2; exit 1; }  # with --quiet no warning would count
	@echo "make docs: build/site/index.html is the site"

house: $(INSTALLED)  ## count what makes the code easy or hard to carry on: lines, modules, parameters, holders; ARGS=--list names them
	@$(BIN)/python tools/measure_house.py $(ARGS)

audit: $(INSTALLED)  ## known vulnerabilities of what this stands on; ends with 69 where no advisory service can be asked
	@[ -x .venv-audit/bin/pip-audit ] || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip install -q pip-audit; } \
		|| { echo "make audit: pip-audit cannot be installed here, so nothing was looked up" >&2; exit 69; }
	@$(BIN)/python -m tools.find_vulnerabilities .venv-audit/bin/pip-audit

sbom: $(INSTALLED)  ## write a bill of materials of the package's dependencies to dist/
	@$(BIN)/python tools/list_dependencies.py --sbom dist/sparkcrypt.cdx.json

# An exact version: what twine accepts of a package's metadata changes with its releases, so one is checked with knowingly.
release-check: $(JAR)  ## build sdist and wheel into dist/, check their metadata, and run the wheel from a new environment
	@rm -rf dist build/release && mkdir -p dist build/release
	@$(WITH_JAVA) && $(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >build/release/sdist.log
	@$(WITH_JAVA) && $(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist dist/sparkcrypt-*.tar.gz
	@[ -x .venv-twine/bin/twine ] || { $(PYTHON) -m venv .venv-twine && .venv-twine/bin/python -m pip install -q twine==7.0.0; }
	@.venv-twine/bin/twine check --strict dist/*.tar.gz dist/*.whl
	@$(PYTHON) -m venv build/release/venv && build/release/venv/bin/python -m pip install -q -c constraints.txt dist/*.whl
	@version=$$($(BIN)/python setup.py --version) && cd build/release && \
		[ "$$(venv/bin/sparkcrypt --version)" = "sparkcrypt, version $$version" ] || \
		{ echo "make release-check: sparkcrypt --version does not say $$version, which setup.cfg has" >&2; exit 1; }
	@echo "make release-check: dist/ has an sdist and a wheel that can be published"

jar: $(JAR)  ## build the jar that goes into the wheel
	@echo "make jar: $(JAR) is built from these sources"

bench: $(JAR)  ## run the benchmarks and record their results
	@$(WITH_JAVA) && $(BIN)/python -m bench $(ARGS)
	@echo "make bench: done, the results are under bench/"

chaos: $(JAR)  ## rounds of writers, passes, kills and faults, judged by a model (SECONDS=600 SEED=1)
	@$(WITH_JAVA) && { $(WITH_VAULT); } && $(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED) $(ARGS)
	@echo "make chaos: no row was lost, doubled or left in clear"

attacks: $(JAR)  ## all attacks: every property in every place, and a day of statements (SEED=1 STATEMENTS=300)
	@$(WITH_JAVA) && SPARKCRYPT_ALL_CELLS=1 SPARKCRYPT_SEED=$(SEED) SPARKCRYPT_STATEMENTS=$(STATEMENTS) $(PYTEST) tests/attacks $(ARGS)
	@echo "make attacks: no value came out in clear, but where the documents say so, and no forged row came in"

nights: $(JAR)  ## nights of people, killed passes, expires and rotations on an estate of tables (SEED=1 NIGHTS=10)
	@$(WITH_JAVA) && $(BIN)/python -m tests.everyday --seed $(SEED) --nights $(NIGHTS) $(ARGS)
	@echo "make nights: no row was lost, doubled or left in clear, and no command was stuck"

clean:  ## remove everything that the verbs made here, environments included
	@rm -rf $(VENV) .venv-airflow-* .venv-audit .venv-spark-* .venv-twine sparkcrypt/_jar build dist *.egg-info .cache .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache .hypothesis .coverage .coverage.* metastore_db derby.log spark-warehouse demo/work*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "make clean: environments, jar and caches are removed"

$(JAR): $(INSTALLED) $(JAR_SOURCES)
	@$(WITH_JAVA) && $(BIN)/python jars/build.py && touch $@

$(INSTALLED): setup.cfg setup.py pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.10 or later with venv is needed. On Debian or Ubuntu: apt-get install -y python3 python3-venv" >&2; exit 69; fi
	@echo "Installing into $(VENV) (about 1.1 GB, Spark included)" >&2
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q -c constraints.txt pip setuptools
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --no-build-isolation -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(INSTALLED)
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --no-build-isolation -c constraints.txt -e '.[docs]'
	@touch $@

# Each Spark on a Python that it runs on: 3.5 knows 3.8 to 3.11 (and its worker imports distutils, which setuptools brings),
# 4.3 begins with 3.11. pandas 2.3, NumPy 2 and what pyarrow needs it are newer than Spark 3.5.
.venv-spark-%/.installed: setup.cfg setup.py pyproject.toml constraints.txt
	@python=$$(for name in python3.11 $(if $(filter 3.5.%,$*),python3.10) $(PYTHON); do \
		$$name -c 'import venv, ensurepip' 2>/dev/null && echo $$name && break; done) && $$python -m venv $(@D)
	@grep -vE '^(pyspark|py4j|pandas|numpy|pyarrow)\b' constraints.txt > $(@D)/constraints.txt
	@$(@D)/bin/python -m pip install -q -c $(@D)/constraints.txt pip setuptools
	@PYTHONWARNINGS=ignore $(@D)/bin/python -m pip install -q --no-build-isolation -c $(@D)/constraints.txt \
		-e . 'pyspark[connect]==$*' $(if $(filter 3.5.%,$*),'pandas<2.3' 'numpy<2' 'pyarrow<18','pandas<3' pyarrow) \
		pytest pytest-timeout pytest-xdist hypothesis chispa 'moto[s3]' flask flask-cors fsspec polars duckdb
	@touch $@

# Constraints were resolved by pip from the package index: Airflow's own are kept elsewhere.
.venv-airflow-%/.installed: tests/airflow/constraints-%.txt setup.cfg
	@$$(for name in python3.11 python3.12 python3.10; do \
		$$name -c 'import venv, ensurepip' 2>/dev/null && echo $$name && break; done) -m venv $(@D)
	@$(@D)/bin/python -m pip install -q -c $< apache-airflow apache-airflow-providers-apache-spark pytest pytest-timeout
	@touch $@
