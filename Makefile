# `make` lists what there is to do. The work itself is in dev/xtask.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

CARGO ?= cargo
XTASK := $(CARGO) xtask
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Only what is needed, with the features of the whole workspace: the next target finds it built.
BUILD := $(CARGO) build --locked --package workspace-hack --package sluice

# make demo KEEP=1 leaves the cluster up, PAGE=1 shows it in a browser; make demo KUBECONFIG=file uses an existing one. Only
# a KUBECONFIG that is given on the command line counts: a user's current cluster is not touched because a variable happens
# to be set.
demo_kubeconfig := $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig '$(KUBECONFIG)')
demo_keep := $(if $(filter-out 0,$(KEEP)),--keep)
demo_page := $(if $(filter-out 0,$(PAGE)),--page)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## see pods held and released, two namespaces share a quota, VMs counted as VMs, a migration pass a full one (KEEP=1, PAGE=1, KUBECONFIG=file)
	@test -x $(TARGET)/debug/sluice-demo || echo "Building Sluice: the first time about 7 minutes on two cores"
	@$(BUILD) --package sluice-demo
	@SLUICE_BINARY=$(TARGET)/debug/sluice $(TARGET)/debug/sluice-demo $(demo_keep) $(demo_page) $(demo_kubeconfig)

.PHONY: test
test: ## run every test; the last line is the sum
	@$(XTASK) test

# What needs policies that gate, and what has no Sluice in it. Pages show what is printed where policies gate.
SKIPPED := --skip gate_policies:: --skip alerts:: --skip docs:: --skip helm:: --skip kustomize:: --skip case_1_policy --skip differential::the_engine --skip a_wrong_rule_is_refused
# Kubernetes 1.31 has no pods/resize and no DeviceClasses, and checks on a write of the status what is stored in the spec.
SKIPPED_1.31 := $(SKIPPED) --skip growth:: --skip growth_differential:: --skip api::headroom::a_negative_amount --skip a_device_class_names_it --skip ipv6:: --skip a_resize_is_judged
# KubeVirt 1.3 has no migrations from other clusters, plugs in no interfaces where its gate HotplugNICs is not set, makes no
# second claim for the state of a TPM, and sets no limits by itself where a quota asks for them.
SKIPPED_KUBEVIRT_1.3 := --skip a_machine_that_comes_from_elsewhere --skip the_examples_together_say --skip interface:: --skip volumes::a_machine_that_keeps_the_state_of_its_tpm_is_told

.PHONY: soak
soak: ## what `make test` leaves out: 10,000 cases of each simulation, crashes at each write, faults, upgrades, removal, floods, scenarios from the field, the webhook alone, Kubernetes 1.34 and 1.31, KubeVirt 1.3 and 1.8
	@echo "soak 1/10: simulations of the gate, of its queue and of the lease, 10,000 cases each, and 10,000,000 answers of evaluators ($$(date +%T))"
	@PROPTEST_CASES=10000 $(XTASK) test --package workspace-hack --package sluice-gate --lib
	@PROPTEST_CASES=10000 $(XTASK) test --package workspace-hack --package sluice-engine --test release_queue
	@PROPTEST_CASES=10000 $(XTASK) test --package workspace-hack --package sluice-runtime --lib -- lease
	@PROPTEST_CASES=10000000 $(XTASK) test --package workspace-hack --package sluice-engine --test evaluation -- any_answer
	@echo "soak 2/10: crashes at each write, API servers that stand still, ten rotations of certificates at 200 reviews a second ($$(date +%T))"
	@RUST_BACKTRACE=0 $(XTASK) test --workspace --test headroom_soak -- faults::
	@SLUICE_ROTATIONS=10 $(XTASK) test --workspace --test e2e -- rotations_of_both
	@echo "soak 3/10: re-appliers for ten minutes, ten quiet ones, 1,000 pods that a command lets go, every alert and its end, upgrades of Sluice and of Kubernetes, removal under load ($$(date +%T))"
	@SLUICE_REAPPLY_SECONDS=600 SLUICE_QUIET_SECONDS=600 SLUICE_PAUSED_PODS=1000 SLUICE_REMOVED_PODS=3000 SLUICE_ALERTS=all SLUICE_ALERT_WINDOWS=1 $(XTASK) test --workspace --test e2e -- reapply:: nothing_is_written_in_quiet_minutes with_every_process_gone_the_command killed_again_and_again each_alert_fires --nocapture
	@RUST_BACKTRACE=0 $(XTASK) test --workspace --test headroom_soak -- installation:: --nocapture
	@echo "soak 4/10: floods, delays, scenarios from the field, 100 drains that a command foretells ($$(date +%T))"
	@RUST_BACKTRACE=0 $(XTASK) test --workspace --test headroom_soak -- tenants::
	@SLUICE_DRAINS=100 $(XTASK) test --workspace --test machines -- drain_check_agrees --nocapture
	@echo "soak 5/10: the webhook alone gates ($$(date +%T))"
	@SLUICE_GATING=webhook $(XTASK) test --workspace --test e2e -- $(SKIPPED)
	@echo "soak 6/10: Kubernetes 1.34 ($$(date +%T))"
	@SLUICE_KUBERNETES_VERSION=1.34 $(XTASK) test --workspace --test e2e --test headroom -- $(SKIPPED)
	@echo "soak 7/10: Kubernetes 1.31, where updates of pods resize them ($$(date +%T))"
	@SLUICE_KUBERNETES_VERSION=1.31 $(XTASK) test --workspace --test e2e --test headroom --test resize_by_update -- $(SKIPPED_1.31)
	@echo "soak 8/10: KubeVirt 1.3 ($$(date +%T))"
	@SLUICE_KUBEVIRT_VERSION=1.3 $(XTASK) test --workspace --test headroom -- $(SKIPPED_KUBEVIRT_1.3)
	@echo "soak 9/10: KubeVirt 1.8 ($$(date +%T))"
	@SLUICE_KUBEVIRT_VERSION=1.8 $(XTASK) test --workspace --test headroom
	@echo "soak 10/10: every bench, for a few seconds ($$(date +%T))"
	@$(MAKE) bench-quick
	@echo "soak: all ten parts passed ($$(date +%T))"

.PHONY: lint
lint: ## check format, clippy, generated files, dependencies
	@$(XTASK) lint

.PHONY: advisories
advisories: ## fetch the advisories of RustSec and look for those about our dependencies, as CI does each night
	@$(XTASK) advisories

.PHONY: bench
bench: ## measure, print tables, write target/bench/*.json
	@$(CARGO) build --locked --release --package sluice --package sluice-bench
	@SLUICE_BINARY=$(TARGET)/release/sluice $(TARGET)/release/sluice-bench all

.PHONY: bench-quick
bench-quick: ## every bench for a few seconds, to see that it gives all its figures: they mean nothing
	@$(BUILD) --package sluice-bench
	@SLUICE_BINARY=$(TARGET)/debug/sluice $(TARGET)/debug/sluice-bench all --quick --out $(TARGET)/bench-quick

.PHONY: image
image: ## build target/image/sluice.tar, without a container engine
	@$(XTASK) image

.PHONY: plugin
plugin: ## build target/plugin: the program as a plug-in of kubectl, and krew's manifest
	@$(XTASK) plugin

.PHONY: gen
gen: ## write deploy/ from the code
	@$(XTASK) gen
