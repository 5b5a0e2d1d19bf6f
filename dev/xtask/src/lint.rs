//! `xtask lint`: everything that is checked without running the project.

use crate::shell::{cargo, run};
use crate::{check, generate};

pub(crate) fn run_all() -> anyhow::Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    // Targets that `cargo test` leaves out are not among all targets.
    let soak = ["clippy", "--locked", "--workspace", "--test", "headroom_soak", "--", "--deny", "warnings"];
    run(cargo().args(soak))?;
    generate::run(true)?;
    check::run()
}
