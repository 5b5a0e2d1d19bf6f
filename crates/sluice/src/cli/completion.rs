//! Completion for shells, and manual pages: made from the definition of the command line itself. A shell asks the program
//! what may come next, so that names of objects can be told too.

mod names;

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Powershell, Zsh};
pub(in crate::cli) use names::NamesOf;

/// The variable with which a shell asks.
const ASKS: &str = "SLUICE_COMPLETE";

/// Flags of `sluice completion`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: ShellName,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

/// Flags of `sluice man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write one page for each command into this folder; without it, that of the program is printed
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Prints what the shell reads.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &CompletionArgs) -> anyhow::Result<()> {
    let shell: &dyn EnvCompleter = match args.shell {
        ShellName::Bash => &Bash,
        ShellName::Zsh => &Zsh,
        ShellName::Fish => &Fish,
        ShellName::Powershell => &Powershell,
    };
    let mut text = Vec::new();
    let name = program_name();
    // The shell finds the program as the user does, also when another version is installed in its place.
    shell.write_registration(ASKS, &name.replace('-', "_"), &name, &name, &mut text)?;
    Ok(super::printed::print_bytes(&text)?)
}

/// Answers a shell that asks what may come next, and ends the program then.
pub fn answer<C: CommandFactory>() {
    CompleteEnv::with_factory(C::command).var(ASKS).complete();
}

/// As it was called: `sluice`, or `kubectl-sluice`.
pub fn program_name() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let called = called.as_ref().and_then(|path| path.file_stem()).and_then(|name| name.to_str());
    called.filter(|name| *name == "kubectl-sluice").unwrap_or("sluice").to_owned()
}

/// Prints or writes manual pages.
///
/// # Errors
/// When they cannot be written.
pub fn man<C: CommandFactory>(args: &ManArgs) -> anyhow::Result<()> {
    let mut command = C::command();
    command.build();
    let Some(folder) = &args.output else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return Ok(super::printed::print_bytes(&page)?);
    };
    std::fs::create_dir_all(folder)?;
    pages(&command, "sluice", &mut |name, page| {
        let mut file = std::fs::File::create(folder.join(format!("{name}.1")))?;
        file.write_all(page)
    })?;
    Ok(())
}

fn pages(
    command: &Command,
    name: &str,
    write: &mut dyn FnMut(&str, &[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut page)?;
    write(name, &page)?;
    for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
        pages(part, &format!("{name}-{}", part.get_name()), write)?;
    }
    Ok(())
}
