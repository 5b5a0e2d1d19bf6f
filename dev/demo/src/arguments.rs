//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::screen::Size;

/// Watch pods being held by a quota and released when there is room, two namespaces sharing a quota, and a VM migrating
/// under a full quota.
///
/// Without --kubeconfig the story plays on a Kubernetes control plane of its own: etcd, API server,
/// controller-manager, scheduler and simulated nodes are started on loopback ports (the first time they are built,
/// which takes minutes), with Sluice's controller and webhook beside them, and KubeVirt's virt-controller for the
/// last act. Everything is gone at the end.
///
/// With --kubeconfig it plays on that cluster, on which Sluice must be installed (deploy/install.yaml). It says what
/// it will create, asks, and removes it at the end. Where nodes are real, pods really run. The migration is left out,
/// and the shared quota where no AAQ allows cluster quotas.
///
/// On a terminal you see a table that changes; anywhere else you get a line for each change. Ctrl-C ends it at any
/// time and leaves nothing behind.
#[derive(Debug, Parser)]
#[command(
    name = "sluice-demo",
    version,
    after_help = "\
The same by make:
  make demo                     the story
  make demo KEEP=1              … and the cluster stays up, with hints what to try
  make demo PAGE=1              … with the page of `sluice dashboard` beside it
  make demo KUBECONFIG=file     … on your cluster

Exit status: 0 if all came true, 1 if something was not released (or too much was) in time, 130 after Ctrl-C.
The environment variable NO_COLOR turns colours off."
)]
pub struct Arguments {
    /// Play on the cluster that this file names, instead of one of its own
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Leave the cluster up (with --kubeconfig: the namespace) and print how to use it and how to remove it
    #[arg(long)]
    pub keep: bool,

    /// Show the cluster on a page in your browser too, by `sluice dashboard`; its address is printed at the beginning
    #[arg(long)]
    pub page: bool,

    /// Do not ask before something is created on the cluster of --kubeconfig
    #[arg(long, requires = "kubeconfig")]
    pub yes: bool,

    /// Seconds to look at each step
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub pace: Duration,

    /// Internal: this is the process that holds a kept cluster
    #[arg(long, hide = true, requires = "keep", conflicts_with = "kubeconfig")]
    pub in_background: bool,

    /// Internal: the size of the terminal to which the output is relayed
    #[arg(long, hide = true, requires = "in_background")]
    pub terminal: Option<Size>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=60.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is not a number of seconds from 0 to 60"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Arguments;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [&["--yes"][..], &["--pace", "-1"], &["--pace", "NaN"], &["--in-background"], &["more"]]
        {
            let all = ["sluice-demo"].iter().chain(words);
            assert!(Arguments::try_parse_from(all).is_err(), "{words:?}");
        }
        for words in [&["--kubeconfig", "f", "--yes", "--pace", "0.5", "--page"][..], &["--page", "--keep"]] {
            let all = ["sluice-demo"].iter().chain(words);
            assert!(Arguments::try_parse_from(all).unwrap().page, "{words:?}");
        }
    }
}
