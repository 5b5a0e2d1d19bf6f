//! `sluice`: the server binary. Wiring only; what it does is in the crates.

mod alarm;
mod cli;
mod controller;
mod crds;
mod evaluator;
mod evaluators;
mod existence;
mod explain;
mod gate_events;
mod gating;
mod growth;
mod headroom;
mod held_pods;
mod lease;
mod logging;
mod metrics;
#[cfg(test)]
mod monitoring_tests;
mod mtq_leftovers;
mod operator;
mod options;
mod output;
mod pause;
mod platform;
mod progress;
mod question;
mod render;
mod requests;
mod rules;
mod schemas;
mod secrets;
mod server_version;
mod shadow_asker;
mod sidecars;
#[cfg(test)]
mod tests;
mod tls_profile;
mod uninstall;
mod watches;
mod webhook;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

#[cfg(panic = "abort")]
compile_error!("a panic in a request must not end the process: build with panic = \"unwind\"");

// Fast under fragmentation, and it gives memory back: a relist of a large cluster allocates a lot for a moment.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Quotas for Kubernetes clusters that run virtual machines.
///
/// Pods wait behind a scheduling gate until every ApplicationAwareResourceQuota of their namespace has room.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    logging: logging::LoggingArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say why a pod, a VM, a migration or a quota waits
    ///
    /// It asks the controller that leads. Where that does not answer, it reads lists with the rights of the kubeconfig and
    /// decides as the controller does, so no process of Sluice has to be alive. What only a running controller knows is left
    /// out then: room that is kept in turn, requests under way. The last line of the answer says where it comes from.
    ///
    /// Exit code: 0: nothing is held; 1: an error; 2: wrong arguments; 3: it is held; 4: not known: there is no such object,
    /// or a right is missing.
    Why(Box<cli::why::WhyArgs>),
    /// List what waits
    #[command(subcommand)]
    List(cli::list::ListCommand),
    /// Show who takes how much of quotas
    ///
    /// Exit code: 0: shown; 1: an error; 2: wrong arguments; 4: a right is missing, and it is named.
    Top(Box<cli::top::TopArgs>),
    /// Say which VMs of a node can leave it, by their quotas
    ///
    /// Exit code: 0: all can; 1: an error; 2: wrong arguments; 3: some cannot; 4: not known.
    DrainCheck(Box<cli::drain_check::DrainCheckArgs>),
    /// Show quotas, what waits and why on a page in the browser of this machine
    ///
    /// The page follows the cluster. It listens on 127.0.0.1, reads with the rights of the kubeconfig, changes nothing, and
    /// lets in the browser that opens the printed address; no process of Sluice has to be alive. Ctrl-C ends it.
    ///
    /// Exit code: 0: it was ended; 1: an error; 2: wrong arguments.
    Dashboard(Box<cli::dashboard::DashboardArgs>),
    /// Check whether an installation works
    ///
    /// Exit code: 0: nothing fails; 1: an error; 2: wrong arguments; 3: a check failed; 4: some could not be looked at.
    Check(Box<cli::check::CheckArgs>),
    /// Collect what a maintainer needs to help you, in one archive
    ///
    /// Take it, look through it, and attach it to an issue: index.md in it says what is where, and what is missing. It has
    /// versions, the objects of the installation, what `sluice check` says, quotas, pods that wait, virtual machines, live
    /// migrations, events, and logs of Sluice's pods; at most 20 MiB. It reads with the rights of the kubeconfig, and no
    /// process of Sluice has to be alive. Take it while the trouble is there: API servers forget events after an hour.
    ///
    /// Secrets are not read. Environment variables, arguments and commands of containers, contents of volumes, cloud-init
    /// data of virtual machines, annotations of others and the secret path of the webhook are left out. Names, labels and
    /// amounts of tenants stay. -n NAMESPACE keeps objects of other namespaces out; what cluster quotas, logs and metrics
    /// say of those stays.
    ///
    /// What may not be read is named in the index, with the rules of RBAC that would allow it.
    ///
    /// Examples: `sluice bundle`; `sluice bundle -n team-a --file /tmp/team-a.tar.gz`; `sluice bundle --file - | tar tz`
    ///
    /// Exit code: 0: all was read; 1: an error; 2: wrong arguments; 4: something could not be read. The archive is there
    /// then, and its index says what is missing.
    Bundle(Box<cli::bundle::BundleArgs>),
    /// Let pods go without room in their quotas, for a time
    ///
    /// Until the end no pod waits for quota in the namespaces: those that wait go in order, and updates may give pods more.
    /// Usage is counted and may exceed the limits. The pause ends by itself; then new pods wait again, and none is evicted.
    /// Run it as an administrator who may update the AAQ.
    ///
    /// With --offline no process of Sluice has to be alive: this command takes the gates off itself, until no pod waits or
    /// the pause ends. What was released is counted when the controller runs again.
    ///
    /// Exit code: 0: done; 1: an error; 2: wrong arguments; 3: pods wait still, and the output says why.
    Pause(pause::PauseArgs),
    /// End a pause: pods wait for quota again
    ///
    /// Exit code: 0: done; 1: an error; 2: wrong arguments.
    Resume(pause::ResumeArgs),
    /// Print the custom resource definitions as YAML
    Crds,
    /// Print the objects of an installation as YAML, for `kubectl apply --server-side --filename -`
    ///
    /// What gates pods is not among them: the operator writes it.
    ///
    /// Exit code: 0: all was printed; 2: an option is wrong, or standard output cannot be written.
    #[command(args_override_self = true)]
    Render(Box<render::RenderArgs>),
    /// Remove an installation: let go all pods that wait, then delete what is Sluice's
    ///
    /// Run it with a kubeconfig of an administrator; no process of Sluice has to be alive. It stops the operator, deletes
    /// what gates pods, takes the gate off all pods that wait, in the order of the queue, puts back ResourceQuotas that
    /// are raised for migrations, and deletes the objects of the installation. No pod is refused meanwhile. When it was
    /// interrupted, run it again: it goes on. Only objects with the label app.kubernetes.io/part-of=sluice are deleted, and
    /// what the controller makes of quotas: ResourceQuotas and mirrors with the label aaq.kubevirt.io=true, and charges.
    ///
    /// Quotas, an AAQ and CRDs stay. An installation that comes later enforces the quotas again. With Helm run it with
    /// --keep-objects before `helm uninstall`.
    ///
    /// Exit code: 0: done; 1: an error; 2: wrong arguments; 3: something is left, and the output says what to do about it.
    Uninstall(Box<uninstall::UninstallArgs>),
    /// List what a managed-tenant-quota that crashed left behind, with the commands that repair it
    ///
    /// It only reads. Stop managed-tenant-quota's operator and controller before: a migration that they handle looks the
    /// same.
    ///
    /// Exit code: 0: nothing is left; 3: something is left; 1: an error; 2: wrong arguments.
    MtqLeftovers(mtq_leftovers::MtqLeftoversArgs),
    /// Help to write evaluators, which say what a pod takes
    Evaluator(evaluator::EvaluatorArgs),
    /// Release pods that fit their quotas and keep the quotas' status
    ///
    /// Run two replicas: both keep their caches warm, the one that holds the lease writes.
    #[command(args_override_self = true)]
    Controller(Box<controller::ControllerArgs>),
    /// Answer the API server's admission requests: gate new pods, validate quotas, make room for migrations
    #[command(args_override_self = true)]
    Webhook(Box<webhook::WebhookArgs>),
    /// Make and keep controller, webhook, certificates and what gates pods
    ///
    /// As the AAQ asks. Nothing waits for it: what it keeps is in force while it does not run.
    #[command(args_override_self = true)]
    Operator(Box<operator::OperatorArgs>),
    /// Print the script that completes commands in a shell
    ///
    /// bash: `source <(sluice completion bash)`, for all shells to come in ~/.bashrc. zsh: the same in ~/.zshrc, after
    /// compinit. fish: `sluice completion fish | source`. Names of objects are asked for with the rights of the kubeconfig.
    Completion(cli::completion::CompletionArgs),
    /// Print the manual page, or write one for each command
    ///
    /// To read it: `sluice man | man -l -`
    Man(cli::completion::ManArgs),
}

impl Command {
    const fn is_server(&self) -> bool {
        matches!(self, Self::Controller(_) | Self::Webhook(_) | Self::Operator(_))
    }
}

/// As `kubectl-sluice` it is a plug-in of kubectl.
fn parse() -> Cli {
    let command = match cli::completion::program_name().as_str() {
        "kubectl-sluice" => Cli::command().bin_name("kubectl sluice"),
        _ => Cli::command(),
    };
    let read = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    read.unwrap_or_else(|error| match error.exit_code() {
        code if code != 0 && asks_for_server() => {
            logging::init_for_error();
            logging::fatal(error.to_string().trim_end());
            std::process::exit(code)
        }
        _ => error.exit(),
    })
}

/// Whether a server is asked for, also where the rest of the arguments cannot be read.
fn asks_for_server() -> bool {
    let all = Cli::command();
    let mut words = std::env::args().skip(1);
    let command = words.find(|word| all.find_subcommand(word).is_some());
    command.is_some_and(|command| matches!(&*command, "controller" | "webhook" | "operator"))
}

/// What ends a server is told in the format of its logs, so that who collects them can read it.
fn main() -> ExitCode {
    cli::completion::answer::<Cli>();
    let asked = parse();
    let is_server = asked.command.is_server();
    if let Err(error) = asked.logging.init(is_server) {
        if is_server {
            logging::init_for_error();
            logging::fatal(&format!("{error:#}"));
        } else {
            tell(&error);
        }
        return ExitCode::FAILURE;
    }
    if is_server {
        logging::log_panics();
    }
    sluice_runtime::panics::end_process_on_panic();
    match run(asked.command) {
        Ok(exit) => exit,
        Err(error) if is_server => {
            logging::fatal(&format!("{error:#}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            tell(&error);
            ExitCode::FAILURE
        }
    }
}

/// What ends a command is told by all in this form.
fn tell(error: &anyhow::Error) {
    eprintln!("error: {}", told(error));
}

/// An error for people: each cause once, and of what an API server answers its words alone.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let of_server = cause.downcast_ref::<kube::Error>();
        let words = of_server.map_or_else(|| cause.to_string(), sluice_runtime::retry::words_and_causes);
        if !text.contains(&words) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&words);
        }
        if of_server.is_some() {
            break;
        }
    }
    sluice_gate::plain(&text)
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    sluice_runtime::client::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Controller(args) => controller::run(*args).await?,
            Command::Webhook(args) => webhook::run(*args).await?,
            Command::Operator(args) => operator::run(*args).await?,
            Command::MtqLeftovers(args) => return mtq_leftovers::run(args).await,
            Command::Crds => crds::print()?,
            Command::Render(args) => return Ok(render::run(&args)),
            Command::Evaluator(args) => return evaluator::run(args).await,
            Command::Pause(args) => return pause::run(args).await,
            Command::Resume(args) => return pause::resume(args).await,
            Command::Uninstall(args) => return uninstall::run(*args).await,
            Command::Why(args) => return cli::why::run(*args).await,
            Command::List(command) => return cli::list::run(command).await,
            Command::Top(args) => return cli::top::run(*args).await,
            Command::DrainCheck(args) => return cli::drain_check::run(*args).await,
            Command::Dashboard(args) => return cli::dashboard::run(*args).await,
            Command::Check(args) => return cli::check::run(*args).await,
            Command::Bundle(args) => return cli::bundle::run(*args).await,
            Command::Completion(args) => cli::completion::run(&args)?,
            Command::Man(args) => cli::completion::man::<Cli>(&args)?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
