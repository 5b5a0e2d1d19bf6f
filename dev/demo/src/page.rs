//! The page of `sluice dashboard` beside the story.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use sluice_e2e::build;
use sluice_testbed::{Program, wait};
use tempfile::{NamedTempFile, TempPath};

use crate::arguments::Arguments;
use crate::screen::Screen;

/// How long the command may take to look at the cluster and to print the address.
const SOON: Duration = Duration::from_secs(60);

/// The running command. Its keeper ends it with this value, and with this process however that ends.
pub struct Page {
    entrance: String,
    _program: Program,
    _log: TempPath,
}

impl Page {
    /// Starts it where that is asked for, and says where it is. Who may not look at all namespaces is shown `namespace`.
    ///
    /// # Errors
    /// When the command ends, or does not say its address in time, and when the output is closed.
    pub async fn offered(
        arguments: &Arguments,
        kubeconfig: &Path,
        namespace: &str,
        screen: &mut Screen,
    ) -> anyhow::Result<Option<Self>> {
        if !arguments.page {
            return Ok(None);
        }
        let page = Self::open(kubeconfig, namespace).await?;
        let end = if arguments.keep { "" } else { ", until the demo ends" };
        screen.say(&format!("All of it on a page, for one browser{end}:\n  {}", page.entrance))?;
        Ok(Some(page))
    }

    async fn open(kubeconfig: &Path, namespace: &str) -> anyhow::Result<Self> {
        let log = NamedTempFile::with_prefix("sluice-demo-page-")
            .context("making a file for the page's address")?;
        let log = log.into_temp_path();
        let args: [OsString; 5] =
            ["dashboard".into(), "--kubeconfig".into(), kubeconfig.into(), "-n".into(), namespace.into()];
        let program = Program::start("page", build::sluice()?, args, None::<(OsString, OsString)>, &*log)?;
        let said = || async {
            // What has ended has said all.
            let is_running = program.is_running();
            let log = program.log();
            match entrance(&log) {
                None if is_running => None,
                found => Some(
                    found.map(str::to_owned).ok_or_else(|| anyhow!("the page did not start: {}", log.trim())),
                ),
            }
        };
        let entrance = wait::eventually(SOON, said, "the page to say its address").await??;
        Ok(Self { entrance, _program: program, _log: log })
    }
}

/// The address in what the command prints.
fn entrance(printed: &str) -> Option<&str> {
    // The line may be half written.
    let (line, _) = printed.split_once("Open ")?.1.split_once('\n')?;
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::entrance;

    #[test]
    fn an_address_that_is_half_written_is_none() {
        assert_eq!(entrance(""), None);
        assert_eq!(entrance("could not ask the cluster\n"), None);
        assert_eq!(entrance("Open http://127.0.0.1:4"), None);
        assert_eq!(
            entrance("Open http://127.0.0.1:41/a/enter/b\nThe addr"),
            Some("http://127.0.0.1:41/a/enter/b")
        );
    }
}
