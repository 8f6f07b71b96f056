# Everyday work. `make run` and `make test` need nothing but Python 3.11+, Java 17+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip prints errors only: its warnings concern how third-party packages are built, and a user cannot act on them.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
SETTINGS ?=
PYTEST ?=
AGAINST ?=
# Number of test workers: one per processor, at least two and at most four. Tests on servers wait for two thirds of their
# time, so they get two workers per processor, as far as the memory allows (2 GB each).
WORKERS ?=
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
ROOMS := $(shell awk '/^MemAvailable/ {print int($$2 / 2000000)}' /proc/meminfo 2>/dev/null || echo 4)
WITHOUT_SERVERS = $(or $(WORKERS),$(shell n=$(PROCESSORS); echo $$((n < 2 ? 2 : n > 4 ? 4 : n))))
WITH_SERVERS = $(or $(WORKERS),$(shell n=$$((2 * $(PROCESSORS))) m=$(ROOMS); n=$$((n > 4 ? 4 : n)) m=$$((m < 2 ? 2 : m)); echo $$((n < m ? n : m))))

# Test workers read compiled modules and rewritten assertions: to collect the unit tests takes each 5 s of processor
# instead of 10. Commands that tests start are compiled once, too.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run demo demo-pulsar test unit lean artifacts system servers again compatibility faults fuzz long thorough walk mutate check lint types layers generated setup generate pictures requirements jars bench dist docker audit clean

help: ## List the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 22

# Ctrl-C ends the loop in order; the hint is printed in any case.
AFTERWARDS = echo "headgate is at $$(cd $(BIN) && pwd)/headgate; to call it by its name: . $(BIN)/activate"

run: $(VENV)/.runtime ## Run the whole loop on a Kafka it starts itself, watching this machine's disks
	@trap : INT; $(BIN)/headgate up $(if $(SETTINGS),--settings $(SETTINGS)); status=$$?; $(AFTERWARDS); exit $$status

demo: $(VENV)/.runtime ## See it in two minutes: a fill, a throttle, a stop and a recovery on brokers of its own
	@trap : INT; $(BIN)/headgate demo; status=$$?; $(AFTERWARDS); exit $$status

# Tests mount small disks. Where Linux allows it, an ordinary user does so as root of a namespace of its own.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || { unshare -rm true 2>/dev/null && echo unshare -rm; })

demo-pulsar: $(VENV)/.dev ## The same with a ZooKeeper, three bookies on small disks, a Pulsar broker and a producer (needs Maven)
	@trap : INT; $(BIN)/python -m tests.system.pulsar_demo

# Each file runs in one worker, so that its tests share servers. The longest files run first.
SERVERS := $(AS_ROOT) $(BIN)/python -m pytest -n $(WITH_SERVERS) --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=10 $(PYTEST)
SYSTEM := $(SERVERS) tests/system

# Tests of what is shipped, generated, written and measured, and of commands in processes of their own, or of wheels.
ARTIFACTS := $(wildcard tests/toy tests/bench tests/docs tests/tools tests/deploy/whatif tests/deploy/demo/test_run.py $(addprefix tests/deploy/test_, \
	chart.py cli.py distributions.py make.py mistakes.py) \
	tests/deploy/commands/test_root.py tests/streaming/test_session.py tests/connectors/exporter/page/test_in_chromium.py)

# `--ignore` saves each worker the collection of these tests. An idle worker takes half of the other's tests.
WITHOUT := -m "not system" --ignore tests/system -n $(WITHOUT_SERVERS) --dist worksteal
UNIT := $(WITHOUT) $(addprefix --ignore ,$(ARTIFACTS))

test: unit lean ## Unit tests, and three on real servers: under 4 minutes on 2 cores

unit: $(VENV)/.dev ## Tests without servers: a minute and a half on 2 cores
	$(BIN)/python -m pytest $(UNIT) $(PYTEST)

artifacts: $(VENV)/.dev ## Tests of wheels, images, chart, generated files, docs and benches: CI runs this
	$(BIN)/python -m pytest $(WITHOUT) $(ARTIFACTS) $(PYTEST)

lean: $(VENV)/.dev ## On real servers: `demo`, `up` with a kill, and one query for bookies, sessions and a switch
	$(SERVERS) $(addprefix tests/system/test_,demo.py one_loop.py up.py) -m lean

system: $(VENV)/.dev ## All other tests on real servers, Spark and Prometheus: 22 minutes on 2 cores
	$(SYSTEM) -m "system and not lean and not long and not compatibility"

servers: $(VENV)/.dev ## `lean` and `system` in one run, in which they share servers: CI runs this
	$(SYSTEM) -m "system and not long and not compatibility"

again: $(VENV)/.dev ## The tests that failed last
	$(AS_ROOT) $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

compatibility: $(VENV)/.dev ## Older Kafkas, Pulsars, ZooKeepers and PySparks (fetched once), and the table in docs/compatibility.md
	HEADGATE_NOTE_COMPATIBILITY=1 $(BIN)/python -m pytest tests/system/test_older_versions.py tests/system/test_older_spark.py $(PYTEST)
	$(BIN)/python -m tests.docs.test_compatibility

# Each of these tests repeats, for longer or in more variants, what a test of `system` shows on real servers.
long: $(VENV)/.dev ## Tests on real servers with every kill, outage and repetition: each night
	$(SYSTEM) -m long

thorough: $(VENV)/.dev ## Unit tests with hundreds of random examples per property
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest $(WITHOUT) --timeout 3600

WALKS = 2000
walk: $(VENV)/.dev ## Random walks over switches of a fleet whose events come late, twice or never: WALKS=20000 for a long one
	$(BIN)/python -m bench.switch_walk $(WALKS) 100

check: lint types layers generated ## Lint, types, layers, generated files fresh

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

generated: $(VENV)/.dev
	$(BIN)/python -m tools.generate --check

generate: $(VENV)/.dev ## Write schemas, AsyncAPI, the reference pages and the dashboards
	$(BIN)/python -m tools.generate

pictures: $(VENV)/.dev ## The pictures of demo and status page in docs/, from a real run (needs Chromium)
	$(BIN)/python -m docs.draw_screens demo docs/demo.svg
	$(BIN)/python -m docs.draw_screens page docs/status-page.png

setup: $(VENV)/.dev ## The virtual environment with all packages for development

COUNT = 100
SEED = 1
faults: $(VENV)/.dev ## Faults on a real loop, compared with an undisturbed run: COUNT=500 SEED=1 for hours
	$(BIN)/python -m bench.faults --count $(COUNT) --seed $(SEED)

mutate: COUNT = 300
mutate: $(VENV)/.dev ## Whether tests notice changed conditions of policies and streaming: COUNT=300 SEED=1 FOLDERS=policies/throttle
	$(BIN)/python -m tools.mutate --count $(COUNT) --seed $(SEED) $(FOLDERS)

TARGET = codec
SECONDS = 300
fuzz: $(VENV)/.dev ## Fuzz the parsers of foreign input, guided by coverage: TARGET=codec|settings|znodes|rest|exporter|steps SECONDS=300
	@$(PIP) install --require-hashes -r requirements-fuzz.txt
	$(BIN)/python -m bench.fuzz $(TARGET) --seconds $(SECONDS)

bench: $(VENV)/.dev ## Idle cost, latency and start on this machine in one table; AGAINST=REF measures that commit in turn
	$(BIN)/python bench/all.py $(if $(AGAINST),--against $(AGAINST))

# The chart's archive is the same on each machine, as hatchling's are. The source archive has what the image is made of.
CHART = tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=a+rX,go-w --transform 's,^docker/helm,headgate,' -czf
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
dist: $(VENV)/.runtime ## Wheel, sources with the image's recipe, Helm chart, an SBOM and checksums: in dist/
	@rm -rf dist
	$(BIN)/python -m hatchling build --directory "$(CURDIR)/dist"
	@$(CHART) dist/headgate-$(VERSION).tgz docker/helm
	@$(PYTHON) -m venv .venv-sbom && .venv-sbom/bin/python -m pip --disable-pip-version-check -qq install cyclonedx-bom==7.5.0
	@PYTHONWARNINGS=ignore .venv-sbom/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o dist/sbom.cdx.json requirements.txt
	@cp requirements.txt deploy/java/jars.sha256 dist/
	@cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

docker: ## The image (needs a Docker engine)
	docker build -f docker/Dockerfile -t headgate .

PIN := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links

IVY := $(VENV)/lib/python3*/site-packages/pyspark/jars/ivy-*.jar
jars: $(VENV)/.dev ## Renew the list of jars and their checksums from tools/ivy.xml (needs Java)
	@rm -rf build/jars
	@for group in $$(sed -n 's/.*<conf name="\([^"]*\)".*/\1/p' tools/ivy.xml); do \
		java -jar $(IVY) -ivy tools/ivy.xml -confs $$group -types jar bundle -cache "$(CURDIR)/build/jars/ivy" \
			-retrieve "build/jars/of/$$group/[orgPath]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"; done
	@cd build/jars/of && find * -name '*.jar' | LC_ALL=C sort | xargs sha256sum > ../../../deploy/java/jars.sha256

requirements: ## Pin the dependencies of pyproject.toml, with hashes (needs uv)
	$(PIN) pyproject.toml --group build -o requirements.txt
	$(PIN) --group dev -c requirements.txt -o requirements-dev.txt
	$(PIN) --group fuzz -c requirements-dev.txt -o requirements-fuzz.txt

audit: $(VENV)/.runtime ## Known vulnerabilities of the pinned packages (needs the network)
	@$(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip --disable-pip-version-check --quiet install pip-audit
	@.venv-audit/bin/pip-audit --require-hashes --disable-pip -r requirements.txt || \
	  { echo "audit: vulnerabilities were found (above), or the database could not be reached and nothing is known" >&2; exit 1; }

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) dist .venv-audit .venv-sbom .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# A stamp per set of packages: a second start installs nothing and asks no network.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed: install it, or name it: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python requirements.txt pyproject.toml
	@echo "installing headgate and its dependencies: 500 MB, most of it PySpark; minutes on a slow machine (once)"
	@$(PIP) install --require-hashes -r requirements.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.txt
	@echo "installing the packages of the tests (once)"
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@
