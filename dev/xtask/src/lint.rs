//! `xtask lint`: everything that is checked without running the project.

use crate::shell::{cargo, run};
use crate::{check, generate};

pub(crate) fn run_all() -> anyhow::Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    // Targets that `cargo test` leaves out are not among all targets.
    for suite in ["headroom_soak", "resize_by_update", "upstream"] {
        run(cargo().args([
            "clippy",
            "--locked",
            "--workspace",
            "--test",
            suite,
            "--",
            "--deny",
            "warnings",
        ]))?;
    }
    generate::run(true)?;
    check::run()
}
