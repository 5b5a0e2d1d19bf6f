//! Completion for shells, and manual pages: made from the definition of the command line itself. A shell asks the program
//! what may come next, so that names of objects can be told too.

mod live;
mod names;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Powershell, Zsh};
pub(in crate::cli) use names::NamesOf;

/// The variable with which a shell asks.
const ASKS: &str = "SLUICE_COMPLETE";

/// What kubectl asks for the rest of `kubectl sluice …` (`SetupPluginCompletion` in kubectl's
/// `pkg/cmd/plugin/plugin_completion.go`): this program, by a link of that name.
const COMPLETES_PLUGIN: &str = "kubectl_complete-sluice";

/// Tells kubectl to offer nothing else (`ShellCompDirectiveNoFileComp` in cobra's `completions.go`).
const NOTHING_ELSE: &str = ":4";
/// The same, and that a word goes on behind what is offered (`ShellCompDirectiveNoSpace`).
const GOES_ON: &str = ":6";

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
    if called().as_deref() == Some(COMPLETES_PLUGIN) {
        let answered = offered::<C>().and_then(|text| Ok(super::printed::print_bytes(text.as_bytes())?));
        // In the middle of a command line an error is of no use to anybody: kubectl offers nothing then.
        std::process::exit(i32::from(answered.is_err()));
    }
}

/// A line for each word that may stand where the last one is being written, with what it means behind a tabulator.
fn offered<C: CommandFactory>() -> anyhow::Result<String> {
    let words: Vec<_> = std::env::args_os().collect();
    let last = words.len().saturating_sub(1);
    let folder = std::env::current_dir().ok();
    let candidates = complete(&mut C::command(), words, last, folder.as_deref())?;
    let mut text = String::new();
    for candidate in &candidates {
        writeln!(text, "{}", line(candidate))?;
    }
    let goes_on = |it: &CompletionCandidate| it.get_value().to_string_lossy().ends_with(['/', '=']);
    writeln!(text, "{}", if candidates.iter().any(goes_on) { GOES_ON } else { NOTHING_ELSE })?;
    Ok(text)
}

fn line(candidate: &CompletionCandidate) -> String {
    let value = candidate.get_value().to_string_lossy();
    let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
    match help.lines().next() {
        Some(first) => format!("{value}\t{first}"),
        None => value.into_owned(),
    }
}

/// The words of the command line that is being written, without the name of the program.
fn words() -> Vec<String> {
    let all = std::env::args_os().skip(1);
    let words: Vec<_> = match called().as_deref() {
        Some(COMPLETES_PLUGIN) => all.collect(),
        // The name of the program stands behind what a shell says of itself.
        _ => all.skip_while(|word| word != "--").skip(1).collect(),
    };
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The name that the program is called by.
fn called() -> Option<String> {
    let path = PathBuf::from(std::env::args_os().next()?);
    Some(path.file_stem()?.to_str()?.to_owned())
}

/// As it was called: `sluice`, or `kubectl-sluice`.
pub fn program_name() -> String {
    called().filter(|name| name == "kubectl-sluice").unwrap_or_else(|| "sluice".to_owned())
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
