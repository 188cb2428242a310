# The local cluster and the images that run on it. See README.md.

HACK = $(dir $(lastword $(filter %hack/make/cluster.mk,$(MAKEFILE_LIST))))..
# Built as hack/lib.sh has it.
RUN = CGO_ENABLED=0 go -C $(HACK)/$(1) run -trimpath -gcflags=all=-dwarf=false $(2)
CLUSTER = $(call RUN,cluster,.)
IMAGES = $(call RUN,,./images)

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
	@$(IMAGES) tool

.PHONY: load-tools
load-tools: build ## Build the tool image, with and without the runner, and one with bash and a few coreutils, and load them onto the local node.
	@hack/load-tools.sh
