//! Suites against a real control plane: one file per capability.
//!
//! Tests share one control plane with one controller and one webhook ([`context::shared`]) and have a namespace
//! each; those that stop, slow or break something start their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod admission;
mod alerts;
mod api;
mod best_effort;
mod bundle;
mod certificates;
mod check;
mod cluster_quotas;
mod completion;
mod conformance;
mod context;
mod differential;
mod docs;
mod documented;
mod evaluator_containers;
mod evaluator_rules;
mod evaluators;
mod exec_plugins;
mod existence;
mod first_screen;
mod gate;
mod gate_policies;
mod growth;
mod growth_differential;
mod helm;
mod install;
mod ipv6;
mod kustomize;
mod managed_cluster_quota;
mod managed_quota;
mod metrics;
mod monitoring_live;
mod operands;
mod operator_cr;
mod packaging;
mod pages;
mod pause;
mod pods;
mod prometheus;
mod proxies;
mod rbac;
mod reapply;
mod restore;
mod review;
mod schema;
mod survive;
mod targeting;
mod team;
mod vm_size;
mod vmi_status;
mod why;
