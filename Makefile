# `make` prints this file's targets. Each one is a thin name for a `millrace` command.
STACK ?= local
INPUT ?=
FORMAT ?=
VERSION ?=
PURGE ?=
YES ?=
KEEP ?=
WHAT ?= service
ARGS ?=
RECORD ?=

VENV := .venv
MILLRACE := MILLRACE_STACK=$(STACK) $(VENV)/bin/millrace
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# A text as the shell's one word; a log's format has $, % and " in it.
quoted = '$(subst ','\'',$(1))'

.DEFAULT_GOAL := help
.PHONY: help demo up deploy upgrade drill status plan down bench test test-all test-fast lint rehearse-aws

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}'
	@echo "  variables: STACK=$(STACK)  INPUT=access.log  PURGE=1  YES=1  KEEP=1  WHAT=$(WHAT)"

demo: $(VENV)/toolkit ## From nothing to live insights (INPUT=access.log replays your own log)
	@$(MILLRACE) demo $(if $(INPUT),--input $(INPUT)) $(if $(value FORMAT),--format $(call quoted,$(value FORMAT)))

up: $(VENV)/toolkit ## Make or heal the cluster: hosts (Pulumi) and services (Ansible)
	@$(MILLRACE) setup
	@$(MILLRACE) up $(if $(YES),--yes)

deploy: $(VENV)/toolkit ## Deploy or upgrade the streaming jobs
	@$(MILLRACE) deploy $(if $(YES),--yes)

upgrade: $(VENV)/toolkit ## Upgrade the jobs by hand-over (VERSION=one of `millrace versions` backs out)
	@$(MILLRACE) upgrade $(VERSION) $(if $(YES),--yes)

status: $(VENV)/toolkit ## The cluster's state at a glance
	@$(MILLRACE) status

drill: $(VENV)/toolkit ## Run every drill, three times each, under load
	@$(MILLRACE) drill all $(if $(YES),--yes)

plan: $(VENV)/toolkit ## What runs where
	@$(MILLRACE) plan

down: $(VENV)/toolkit ## Remove the cluster; data volumes only with PURGE=1
	@$(MILLRACE) down $(if $(PURGE),--purge) $(if $(YES),--yes)

test: $(VENV)/tests $(VENV)/browser ## What a change must pass, on a cluster of its own (KEEP=1 leaves it running)
	@KEEP=$(KEEP) $(VENV)/bin/python tests/run.py $(if $(RECORD),--record)

test-all: $(VENV)/tests $(VENV)/browser ## The same, slower proofs, and the negative controls that spoil the cluster's data
	@KEEP=$(KEEP) $(VENV)/bin/python tests/run.py --all $(if $(RECORD),--record)

test-fast: $(VENV)/tests $(VENV)/browser ## Tests that need neither a cluster nor a JVM, in two minutes
	@$(VENV)/bin/python tests/run.py --fast

bench: $(VENV)/bench-ready $(if $(filter engines modes,$(WHAT)),$(VENV)/flink/ready) ## What the service costs and sustains; other measurements by WHAT=engines, … (bench/README.md)
	@MILLRACE_STACK=$(STACK) $(VENV)/bin/python -m bench.$(WHAT) $(ARGS)
	@$(VENV)/bin/python -m bench.report

lint: $(VENV)/tests ## Formatting, rooms, types, Ansible's production profile
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check .
	@$(VENV)/bin/lint-imports && $(VENV)/bin/mypy
	@cd ansible && ANSIBLE_INVENTORY=localhost, ../$(VENV)/bin/ansible-lint --offline

rehearse-aws: $(VENV)/toolkit $(VENV)/rehearsal/ready ## The AWS environment STACK with the official plugin, against an AWS on loopback
	@$(VENV)/bin/python tests/rehearse_aws.py $(if $(filter local,$(STACK)),dev,$(STACK))

# Python environments. The hashes are checked; a changed requirements file installs again.
$(VENV)/bin/uv:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed as python3"; exit 1; }
	@python3 -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq python3-venv && python3 -m venv $(VENV); }
	@awk '/^uv==/ {on = 1} on {print} on && !/\\$$/ {exit}' requirements/toolkit.txt > $(VENV)/uv.txt
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt

$(VENV)/toolkit: requirements/toolkit.txt pyproject.toml | $(VENV)/bin/uv
	@echo "installing the toolkit's Python packages"
	@$(VENV)/bin/uv pip install --quiet --python $(VENV) --require-hashes -r requirements/toolkit.txt
	@$(VENV)/bin/uv pip install --quiet --python $(VENV) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/tests: requirements/tests.txt | $(VENV)/toolkit
	@echo "installing the tests' Python packages"
	@$(VENV)/bin/uv pip install --quiet --python $(VENV) --require-hashes -r requirements/tests.txt
	@touch $@

# The tests look at pages as people do; Debian's Chromium has all that they need.
$(VENV)/browser:
	@command -v chromium > /dev/null || { echo "installing Chromium"; $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends chromium fonts-liberation > /dev/null; }
	@touch $@

$(VENV)/bench-ready: requirements/bench.txt | $(VENV)/toolkit
	@echo "installing the bench's Python packages"
	@$(VENV)/bin/uv pip install --quiet --python $(VENV) --require-hashes -r requirements/bench.txt
	@touch $@

$(VENV)/flink/ready: requirements/flink.txt | $(VENV)/toolkit
	@echo "installing Flink's Python packages"
	@$(VENV)/bin/uv venv --quiet --clear $(VENV)/flink
	@$(VENV)/bin/uv pip install --quiet --python $(VENV)/flink --require-hashes -r requirements/flink.txt
	@touch $@

$(VENV)/rehearsal/ready: requirements/rehearsal.txt | $(VENV)/toolkit
	@echo "installing the rehearsal's Python packages"
	@$(VENV)/bin/uv venv --quiet --clear $(VENV)/rehearsal
	@$(VENV)/bin/uv pip install --quiet --python $(VENV)/rehearsal --require-hashes -r requirements/rehearsal.txt
	@touch $@
