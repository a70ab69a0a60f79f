# The chores of this project, each one command. CI runs `make test`, then `make test-rest`.
PYTHON := .venv/bin/python
BIN := .venv/bin
PIN := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11
# Where bytecode is not kept, each process of pytest compiles all tests, and each program of a lab its modules.
unexport PYTHONDONTWRITEBYTECODE
# Debian keeps nft and nftlb where only root's PATH looks.
export PATH := $(CURDIR)/$(BIN):$(PATH):/usr/sbin:/sbin

.PHONY: help demo test test-rest test-all unit lint e2e image release publish format crds reference chart docs bystanders faults conformance-upstream conformance-gateway bench bench-full lock checksums clean

help: ## Show this list
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## Install what is missing, start a cluster, load-balance a Service, and show it
	@.ci/demo

test: lint ## Lint, types, and what must never break, proven on real clusters with both engines (root; minutes)
	@$(PYTHON) -m kube_nftlb lab binaries
	@$(PYTHON) .ci/test

test-rest: .venv/ready ## What `make test` leaves out: features, depth, image, real nodes, all pages and examples (root)
	@$(PYTHON) -m kube_nftlb lab binaries
	@$(PYTHON) -m kube_nftlb lab binaries --proxy kube-proxy-nftables --runtime containerd
	@$(PYTHON) .ci/test --rest

test-all: lint ## Everything: `make test` and what it leaves out (root; before a release)
	@$(PYTHON) -m kube_nftlb lab binaries
	@$(PYTHON) -m kube_nftlb lab binaries --proxy kube-proxy-nftables --runtime containerd
	@$(PYTHON) .ci/test --all

unit: .venv/ready ## The unit tests alone: no root, no network, a minute
	$(BIN)/pytest --numprocesses auto -m "not long" tests/unit

lint: .venv/ready ## Lint, types, import rules, purity, words, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTHON) -m tools.lint
	$(PYTHON) -m tools.generate --check

e2e: .venv/ready ## Of `make test-rest`, the installation on real nodes alone: kubelet, containerd, runc (root; minutes)
	@$(PYTHON) -m kube_nftlb lab binaries --proxy kube-proxy-nftables --runtime containerd
	$(BIN)/pytest tests/e2e

conformance-upstream: .venv/ready ## Run Kubernetes' own tests of Services, with kube-proxy and with both engines (root; hours)
	$(BIN)/python -m tests.upstream

conformance-gateway: export KUBE_NFTLB_LAB_KUBERNETES ?= 1.35
conformance-gateway: .venv/ready ## Run the Gateway API's own tests of TCP and UDP on real nodes, with both engines (root; minutes, and some more to build them)
	@$(PYTHON) -m kube_nftlb lab binaries --proxy none --runtime containerd
	$(BIN)/python -m tests.upstream.gateway

image: ## Build the image kube-nftlb with docker, podman or buildah, whichever works here
	@.ci/image

release: .venv/ready ## Build image, SBOM, chart, manifest, kubectl plugin and checksums into dist/release; publishes nothing
	@$(PYTHON) .ci/release

publish: .venv/ready ## Push image and chart of dist/release to the OCI registry that REGISTRY names, such as ghcr.io/owner
	@$(PYTHON) .ci/publish

format: .venv/ready ## Put the code in its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

crds: .venv/ready ## Write the CustomResourceDefinitions anew from the models
	$(PYTHON) -m tools.generate crds

reference: .venv/ready ## Write the pages of fields, settings and metrics anew from the code
	$(PYTHON) -m tools.generate reference

chart: .venv/ready ## Write the chart's comments and table of values, and the plain manifest, anew from the code and the chart
	$(PYTHON) -m tools.generate chart
	$(BIN)/python -m tests.chart.manifest

docs: .venv/ready ## Do what the documents say, and write down what came out
	KUBE_NFTLB_RENEW_DOCS=1 $(BIN)/pytest tests/docs/test_pages.py

bystanders: export KUBE_NFTLB_BYSTANDER_FARMS ?= 200 1000
bystanders: .venv/ready ## Try Services that nobody touches while others change, among 200 and 1,000 farms, with both engines (root; minutes)
	$(BIN)/pytest -s tests/functional/test_bystanders.py

faults: .venv/ready ## Break everything that can break, for hours, and count what clients notice (root)
	@$(PYTHON) -m kube_nftlb lab binaries
	$(BIN)/python -m tests.functional.faults

bench: .venv/ready ## Measure this beside kube-proxy and others, in under 15 minutes (root)
	$(BIN)/python -m benchmarks

bench-full: .venv/ready ## The same with everything, which takes hours
	$(BIN)/python -m benchmarks --full

lock: .venv/ready ## Pin the newest versions of all packages
	$(PIN) --group dev --group bench --upgrade pyproject.toml -o requirements.lock
	$(PIN) --constraint requirements.lock pyproject.toml -o requirements-image.lock
	$(PIN) --constraint requirements.lock --upgrade .ci/venv.in -o .ci/venv.lock
	$(PIN) --upgrade .ci/sbom.in -o .ci/sbom.lock
	$(PIN) --upgrade lab/go/toolchain.in -o lab/go/toolchain.lock

checksums: .venv/demo ## Pin the programs that Kubernetes publishes, for labs that then need not build them
	$(PYTHON) -m lab.published

clean: ## Remove what was made here (not the cache of programs in ~/.cache/kube-nftlb)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist

# What a lab needs; and with it what tests and benchmarks need.
.venv/demo: requirements-image.lock .ci/venv.lock pyproject.toml
	@.ci/python-venv $<
	@touch $@

.venv/ready: requirements.lock requirements-image.lock .ci/venv.lock pyproject.toml
	@.ci/python-venv $<
	@touch .venv/demo $@
