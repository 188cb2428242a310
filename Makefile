# `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CLUSTER = source hack/lib.sh; cluster

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z][a-z0-9-]*:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build the project's programs into bin/.
	@hack/build.sh

.PHONY: generate
generate: ## Generate deep copies, CRDs, RBAC and docs/reference from the Go sources.
	@hack/generate.sh

.PHONY: verify
verify: ## Check generated files, format and modules, and lint.
	@hack/verify.sh

.PHONY: cluster-up
cluster-up: ## Start the local Kubernetes node, after building its missing programs.
	@$(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## Stop the local node and remove everything but the build cache.
	@$(CLUSTER) down

.PHONY: cluster-status
cluster-status: ## List what runs on the local node.
	@$(CLUSTER) status

.PHONY: kubeconfig
kubeconfig: ## Print the path of the local cluster's kubeconfig.
	@$(CLUSTER) kubeconfig

.PHONY: cluster-build
cluster-build: ## Build the local node's programs into the cache.
	@$(CLUSTER) build

.PHONY: envtest-assets
envtest-assets: ## Build etcd, kube-apiserver and kubectl, and print their folder (KUBEBUILDER_ASSETS).
	@$(CLUSTER) assets

.PHONY: image-tools
image-tools: ## Build the tool image toolcall.dev/tools:dev, and print its tarball's path.
	@source hack/lib.sh; go -C hack run ./images tool

.PHONY: load-tools
load-tools: build ## Build the tool image, with and without the runner, and one with bash and a few coreutils, and load them onto the local node.
	@hack/load-tools.sh

.PHONY: deploy
deploy: build ## Build the images, load them onto the current cluster, and install the operator.
	@hack/deploy.sh

.PHONY: deploy-mcp
deploy-mcp: build ## Build the MCP server's image, load it onto the current cluster, and install the server.
	@hack/deploy_server.sh mcp "the MCP server"

.PHONY: deploy-console
deploy-console: build ## Build the console's image, load it onto the current cluster, and install the console.
	@hack/deploy_server.sh console "the console"

.PHONY: undeploy
undeploy: ## Uninstall the operator, its kinds and all their objects from the current cluster.
	@hack/undeploy.sh

.PHONY: release
release: ## Build a release in dist/: images, manifests, chart, plugin (VERSION=v1.2.3 REGISTRY=registry.example.com/team).
	@VERSION='$(VERSION)' REGISTRY='$(REGISTRY)' hack/release.sh

.PHONY: push
push: ## Push the images of the release in dist/ to its REGISTRY.
	@VERSION='$(VERSION)' REGISTRY='$(REGISTRY)' hack/push.sh

.PHONY: demo
demo: ## Start the local cluster, install the operator, run sample calls and show their results.
	@hack/demo.sh

.PHONY: test
test: ## Run the tests: each promise at its lowest level, and once on the local cluster. What passed and has not changed comes from the cache.
	@hack/test.sh

.PHONY: test-full
test-full: ## Run everything there is, shuffled, with the race detector and nothing from Go's test cache. It takes hours.
	@hack/test.sh full

.PHONY: test-unit
test-unit: ## Run the tests that need no cluster.
	@hack/test.sh unit

.PHONY: test-one
test-one: ## Run tests of one package, those of test/e2e on the current cluster (PACKAGE=./test/e2e TEST=TestName).
	@hack/test_one.sh '$(PACKAGE)' '$(TEST)'

.PHONY: test-programs
test-programs: ## Build the programs and install the packages that end-to-end tests start.
	@hack/test-programs.sh

.PHONY: test-kernels
test-kernels: ## Run the tests of kernel isolation under other kernels, in virtual machines (KERNELS='5.10 6.1 6.12 newest').
	@hack/kernels.sh $(KERNELS)

.PHONY: test-node-v2
test-node-v2: ## Run end-to-end tests on a node with cgroup v2 and another kernel, in a virtual machine (KERNEL=6.12).
	@hack/node_vm.sh $(KERNEL)

.PHONY: test-arm64
test-arm64: ## Run the tests of kernel isolation on arm64, in a virtual machine.
	@hack/arm64.sh

.PHONY: test-gvisor
test-gvisor: ## Run the tests of kernel isolation under gVisor, on this machine and on a local cluster whose node has it.
	@hack/gvisor.sh

.PHONY: test-faults
test-faults: ## Inject faults on the local cluster while calls are in flight, and report the results.
	@hack/faults.sh

.PHONY: bench
bench: build ## Measure calls, cold and warm, beside bare Pods and Jobs on the current cluster, in one run.
	@hack/bench.sh calls

.PHONY: bench-operator
bench-operator: build ## Measure the operator alone: throughput, CPU, API writes, memory; needs no cluster.
	@hack/bench.sh operator

.PHONY: bench-footprint
bench-footprint: build ## Measure the operator's and a runner's memory and processor time; needs no cluster.
	@hack/bench.sh operator -only rest,runner -json bin/bench-footprint.json
