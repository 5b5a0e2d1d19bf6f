//! Runs what is built of the sources on a bed that stays, until it is ended: `cargo xtask bed` starts it.
//!
//! `sluice-on-bed BED [virt-handler]`: Sluice, and where the bed has KubeVirt the simulated node agents, or those alone.
//! It prints one line when all of it is ready.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, State};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, with_sluice) = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [name] => ((*name).to_owned(), true),
        [name, "virt-handler"] => ((*name).to_owned(), false),
        _ => bail!("usage: sluice-on-bed BED [virt-handler]"),
    };
    let state = State::load(&State::dir_of(&name)?).with_context(|| format!("bed {name} is not up"))?;
    let bed = Bed::attach(&state).await?;
    if state.has_kubevirt() {
        bed.start_virt_handler()?;
    }
    let _running = if with_sluice { Some(Running::on(&bed, Setup::default()).await?) } else { None };
    writeln!(std::io::stdout(), "ready").context("writing to standard output")?;
    std::future::pending().await
}
