//! `xtask lint`: everything that is checked without running the project.

use crate::shell::{cargo, run};
use crate::{check, generate};

pub(crate) fn run_all() -> anyhow::Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    generate::run(true)?;
    check::run()
}
