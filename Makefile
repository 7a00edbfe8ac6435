# One word per task; `make` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV   := .venv
PYTHON := $(VENV)/bin/python
# Makes the environment. On Debian its own Python, whose headers install-deps brings, not one that shadows it; it is
# built with profile and link-time optimisation, too: simulated lives take 14 % less CPU than with a plain build.
PYTHON3 := $(if $(wildcard /etc/debian_version),/usr/bin/python3,python3)
STAMP  := $(VENV)/setup.stamp
# Developers' tools are ten times the rest, and so is PySpark: only what needs them installs them.
DEV_STAMP   := $(VENV)/dev.stamp
FIRST_STAMP := $(VENV)/first.stamp
SPARK_STAMP := $(VENV)/spark.stamp
BENCH_STAMP := $(VENV)/bench.stamp
SITE_STAMP  := $(VENV)/site.stamp
# JVMs of tests take Spark's classes from here and parse no jars.
SPARK_CLASSES := $(VENV)/spark-classes/classes.jsa
# Jars of a real HDFS for tests, where Maven is there to fetch them.
HDFS_JARS := $(VENV)/hdfs/done
# Jars of Pulsar's admin client for tests, from Maven too.
PULSAR_JARS := $(VENV)/pulsar-admin/done
# Iceberg's library for tests, which Spark fetches.
ICEBERG_JAR := $(VENV)/iceberg/done
# A second S3 server for tests, where Go is there to build it.
VERSITY := $(VENV)/go/done
# An emulator of Azure's blobs for tests, where npm is there.
AZURITE := $(VENV)/azurite/done
# What drives a browser and audits pages in tests, where npm is there.
BROWSER := $(VENV)/browser/done
# Prefix of a command that finds the environment's tools first.
INSIDE := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"

# Four processes for two cores: tests of mounts and servers wait half of their time. Those that share a JVM of Spark
# share a process (tests/conftest.py). When one dies the run ends and names its test: with a new one in its place
# xdist may wait for ever.
IN_PARALLEL := --numprocesses $(shell echo $$(($$(nproc) * 2))) --dist loadgroup --max-worker-restart 0
# pytest rewrites the assertions of each module, two thirds of what collecting costs, and keeps the result as bytecode.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PYTHON) -m pytest
# Tests that need no server, no Spark and no patience.
PLAIN := -m "not slow and not s3 and not spark and not whole"
# The folder of `make first`: the room that every byte passes.
ROOM := tests/engine/segments
# Imported by the tests of such a room, and ruff for the hooks: a tenth of what dev.txt lists.
FIRST := pytest pytest-trio pytest-timeout pytest-xdist hypothesis boto3 fsspec ruff
# What the rest stands on; mounts, servers and commands take minutes.
QUICK := tests/engine/metadata tests/engine/segments tests/engine/journal tests/engine/ledger tests/tiering tests/safety

PROTO     := tierfs/engine/metadata/records.proto tierfs/engine/ledger/ledger.proto tierfs/engine/ledger/pulsar_api.proto
PROTO_OUT := .

# Every version and the hashes of its files, one list for each set of extras: `make locks` writes them.
LOCKED := mount_helpers/locked
PIP    := $(PYTHON) -m pip --quiet --disable-pip-version-check
# The tools first: the pip that a venv brings is old, and the others build what has no wheel, for which pip would
# otherwise fetch others, unchecked.
define install
$(PIP) install --require-hashes -r $(LOCKED)/tools.txt
$(PIP) install --require-hashes --no-build-isolation -r $(LOCKED)/$(1).txt
$(PIP) --quiet install --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
endef

# Manual pages of a wheel. Not below build/, which setuptools keeps out of an sdist.
MAN_PAGES := man

# Where `man` looks for the pages of commands that a PATH with .venv/bin finds.
MAN := $(VENV)/share/man

.PHONY: help setup man install-system wheel deb release site site-deps hooks first demo demo-s3 demo-spark test test-quick test-all mutants put-back world soak test-deps spark-deps dev-deps locks lint format proto bench bench-reading clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 14

setup: ## install what is missing: system packages (as root) and .venv
	@mount_helpers/install-deps runtime
	@$(MAKE) --no-print-directory $(STAMP)

$(STAMP): setup.py $(LOCKED)/tools.txt $(LOCKED)/runtime.txt
	@$(PYTHON) -m pip --version > /dev/null 2>&1 || $(PYTHON3) -m venv --clear $(VENV)
	$(call install,runtime)
	@$(PYTHON) -m tierfs.faces.cli.commands.man $(MAN)
	@touch $@

man: setup ## make the manual pages of .venv/bin/tierfs: `man tierfs`, `man tierfs-append`, `man mount.tierfs`
	@$(PYTHON) -m tierfs.faces.cli.commands.man $(MAN)

install-system: man ## as root: let mount(8), systemd, man and the shell of this machine find tierfs of .venv
	@mount_helpers/install-system

wheel: setup ## build dist/tierfs-*.whl, manual pages included
	@rm -rf build $(MAN_PAGES)
	@$(PYTHON) -m tierfs.faces.cli.commands.man $(MAN_PAGES)
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

deb: setup ## build dist/tierfs_*.deb of HEAD, with all that it needs in it
	@mount_helpers/install-deps package
	$(INSIDE) mount_helpers/package/build

release: test-deps site ## build dist/tierfs-*.whl and .tar.gz of HEAD, and check each in an environment of its own
	$(INSIDE) mount_helpers/release

site-deps: setup
	@$(MAKE) --no-print-directory $(SITE_STAMP)

site: site-deps ## build the documents as a site in build/site: search without a server, every link checked
	$(PYTHON) mount_helpers/site/build.py build/site

hooks: ## let git check formatting and titles of commits in this clone
	git config core.hooksPath .ci/hooks

# The tools alone: dev.txt gives their versions and hashes.
$(FIRST_STAMP): setup.py $(LOCKED)/tools.txt $(LOCKED)/dev.txt
	$(PIP) install --require-hashes --no-build-isolation -c $(LOCKED)/dev.txt $(FIRST)
	@touch $@

$(DEV_STAMP): setup.py $(LOCKED)/tools.txt $(LOCKED)/dev.txt
	$(call install,dev)
	@touch $@

$(SPARK_STAMP): setup.py $(LOCKED)/tools.txt $(LOCKED)/spark.txt
	$(call install,spark)
	@touch $@

$(BENCH_STAMP): setup.py $(LOCKED)/tools.txt $(LOCKED)/bench.txt
	$(call install,bench)
	@touch $@

$(SITE_STAMP): setup.py $(LOCKED)/tools.txt $(LOCKED)/site.txt
	$(call install,site)
	@touch $@

# All extras are resolved together first, so that the lists agree. uv has settings of its own for the index.
locks: dev-deps ## resolve the newest versions of all dependencies again, with their hashes
	$(INSIDE) mount_helpers/lock-deps $(LOCKED)

spark-deps: setup
	@mount_helpers/install-deps spark
	@$(MAKE) --no-print-directory $(SPARK_STAMP)

dev-deps: setup
	@$(MAKE) --no-print-directory $(DEV_STAMP)

test-deps: dev-deps spark-deps
	@mount_helpers/install-deps tests
	@$(MAKE) --no-print-directory $(SPARK_CLASSES) $(HDFS_JARS) $(PULSAR_JARS) $(ICEBERG_JAR) $(VERSITY) $(AZURITE) $(BROWSER)

$(AZURITE): tests/servers/azurite/package.json
	@mkdir -p $(@D) && cp $< $(@D)
	@if command -v npm > /dev/null; then (cd $(@D) && npm install --silent --no-audit --no-fund) || echo 'azurite cannot be had: its tests are skipped'; fi
	@touch $@

$(BROWSER): tests/servers/browser/package.json
	@mkdir -p $(@D) && cp $< $(@D)
	@if command -v npm > /dev/null; then (cd $(@D) && npm install --silent --no-audit --no-fund) || echo 'axe-core cannot be had: the tests of the browser are skipped'; fi
	@touch $@

$(VERSITY): tests/servers/versity.py
	@mkdir -p $(@D)
	@$(PYTHON) -m tests.servers.versity || echo 'versitygw cannot be built: its tests are skipped'
	@touch $@

$(HDFS_JARS): $(wildcard tests/servers/hdfs/*)
	@$(PYTHON) -m tests.servers.hdfs_server || echo 'the jars of HDFS cannot be had: its tests are skipped'

$(PULSAR_JARS): $(wildcard tests/faces/admin/pulsar/*)
	@$(PYTHON) -m tests.faces.admin.pulsar_admin || echo 'the jars of pulsar-admin cannot be had: its tests are skipped'

$(ICEBERG_JAR): $(SPARK_STAMP) tests/servers/iceberg_jar.py
	@timeout 600 $(PYTHON) -m tests.servers.iceberg_jar 2> $(VENV)/iceberg.log || echo 'the jar of Iceberg cannot be had ($(VENV)/iceberg.log): its tests are skipped'

$(SPARK_CLASSES): $(SPARK_STAMP) tests/servers/quick_java.py
	$(PYTHON) -m tests.servers.quick_java

demo: setup ## a store, a mount and what it can do, without S3
	$(INSIDE) mount_helpers/demo

demo-s3: test-deps ## the same with Ceph RGW as the cold tier
	$(INSIDE) mount_helpers/demo --s3

demo-spark: spark-deps ## words counted by Spark over a mount and by Unix tools over the originals
	$(INSIDE) mount_helpers/demo-spark

# Bytecode first: where Python may not write it, each of the commands that tests start would compile all modules again.
test: test-deps ## every behaviour; starts a real S3 server (Ceph RGW)
	@$(PYTHON) -m compileall -q tierfs tests
	$(INSIDE) $(PYTEST) $(IN_PARALLEL) -m "not whole" $(ARGS)

first: setup ## the first hour: a small environment, and the tests of one room (ROOM=tests/reading: another)
	@$(MAKE) --no-print-directory $(FIRST_STAMP)
	@$(PYTHON) -m compileall -q tierfs tests
	$(INSIDE) $(PYTEST) $(IN_PARALLEL) $(PLAIN) $(ROOM) $(ARGS)

test-quick: dev-deps ## the engine's own tests, formats and tables
	@$(PYTHON) -m compileall -q tierfs tests
	$(INSIDE) $(PYTEST) $(IN_PARALLEL) $(PLAIN) $(QUICK) $(ARGS)

# Limits of time of single tests are for a run of minutes: here they have many times the inputs.
MORE := TIERFS_TEST_MUTATIONS=$(or $(TIERFS_TEST_MUTATIONS),100)

test-all: test-deps site-deps ## for hours, on the disk: every case on every server, 100 times the fuzzed inputs, a million steps
	@$(PYTHON) -m compileall -q tierfs tests
	$(INSIDE) PYTEST_DEBUG_TEMPROOT=$${TMPDIR:-/tmp} $(MORE) $(PYTEST) $(IN_PARALLEL) --timeout 7200 $(ARGS)
	$(INSIDE) $(PYTHON) -m tests.simulation --steps 1000000

lint: dev-deps ## ruff, mypy, the import contracts and the rules of the house that judge source text
	$(INSIDE) ruff check .
	$(INSIDE) ruff format --check .
	$(INSIDE) mypy
	$(INSIDE) lint-imports
	$(INSIDE) $(PYTEST) -q tests/structure

format: dev-deps ## let ruff fix and format the code
	$(INSIDE) ruff check --fix .
	$(INSIDE) ruff format .

# Included from the project's root, so that the descriptor and the classes carry the package's full name.
proto: dev-deps ## regenerate what protoc makes of the .proto files: _pb2.py and .pyi
	$(PYTHON) -m grpc_tools.protoc -I . --python_out=$(PROTO_OUT) --pyi_out=$(PROTO_OUT) $(PROTO)

mutants: test-deps ## take each safety line away, one at a time, and see its test fail
	$(INSIDE) $(PYTHON) -m tests.mutants $(ARGS)

put-back: test-deps ## put defects back that the code once had, one at a time, and see a simulated life fail
	$(INSIDE) $(PYTHON) -m tests.simulation --put-back

world: test-deps ## 60,000 steps of simulated lives, four times those of `make test`; TIERFS_TEST_STEPS takes another number
	$(INSIDE) TIERFS_TEST_STEPS=$(or $(TIERFS_TEST_STEPS),60000) $(PYTEST) $(IN_PARALLEL) tests/simulation/test_world.py $(ARGS)

soak: test-deps ## 30 minutes of a busy mount over a cold tier that fails: every byte compared, nothing may grow
	$(INSIDE) $(PYTHON) -m tests.reality soak $(ARGS)

bench: test-deps ## run the benchmarks, their own checks first
	$(INSIDE) $(PYTEST) -q tests/benchmarks
	$(INSIDE) $(PYTHON) -m tests.benchmarks $(ARGS)

bench-reading: test-deps ## compare reading with raw GETs and with other mounts of S3; writes docs/benchmarks.md
	@mount_helpers/install-deps bench
	@$(MAKE) --no-print-directory $(BENCH_STAMP)
	$(INSIDE) $(PYTHON) -m tests.benchmarks reading $(ARGS)

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist $(MAN_PAGES) ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
