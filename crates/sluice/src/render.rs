//! `sluice render`: the objects of an installation, as YAML.

mod files;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;
use sluice_api::names;
use sluice_operator::{
    InstallOptions, InvalidOption, KubernetesVersion, NamespaceUse, Platform, PullPolicy, admission_objects,
    crds, default_aaq, install_objects, rancher_objects,
};

use crate::existence::InstallationArgs;
use crate::gating::GatingArgs;
use crate::platform::PlatformAccountsArgs;

/// Exit code of clap for arguments that are wrong.
const WRONG_ARGUMENTS: u8 = 2;

/// Flags of `sluice render`.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    /// Image of all Deployments, with a tag, a digest or both
    #[arg(long, value_name = "REF", default_value_t = InstallOptions::default().image)]
    image: String,
    /// When nodes pull the image
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Pulled::IfNotPresent)]
    image_pull_policy: Pulled,
    /// A Secret in the namespace of the installation that the image is pulled with; repeatable
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// Namespace of the installation
    #[arg(long, value_name = "NAME", default_value = names::INSTALL_NAMESPACE)]
    namespace: String,
    /// Whose namespace that is
    #[arg(long, value_enum, value_name = "USE", default_value_t = Used::Created)]
    namespace_use: Used,
    /// Version of Kubernetes that the objects are for, from 1.31 to 1.37
    #[arg(long, value_name = "VERSION", default_value = "1.36")]
    kubernetes: KubernetesVersion,
    /// What the cluster asks of pods beyond Kubernetes
    #[arg(long, value_enum, value_name = "PLATFORM", default_value_t = On::Generic)]
    platform: On,
    /// Replicas of controller and webhook
    #[arg(long, value_name = "N", default_value_t = InstallOptions::default().replicas)]
    replicas: u32,
    /// Port that the webhook listens on, 1024 or above: where a firewall lets API servers reach few ports
    #[arg(long, value_name = "PORT", default_value_t = names::WEBHOOK_PORT)]
    port: u16,
    /// Give the webhook's pods the network of their nodes: where API servers reach no pods. The namespace then permits
    /// privileged pods, and nodes need the ports of `--port`, 8081 and 8444 free
    #[arg(long)]
    host_network: bool,
    /// File with a list of tolerations of all pods, as in `spec.tolerations` of a pod
    #[arg(long, value_name = "FILE")]
    tolerations: Option<PathBuf>,
    /// A label of the nodes that all pods run on; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = files::label)]
    node_selector: Vec<(String, String)>,
    /// File with `cpu` and `memory` of `controller`, `webhook` and `operator`. What it does not name keeps its default
    #[arg(long, value_name = "FILE")]
    resources: Option<PathBuf>,
    /// Priority class of all pods; empty: none
    #[arg(long, value_name = "NAME", default_value = "system-cluster-critical")]
    priority_class: String,
    /// A port of API servers that the NetworkPolicies let pods connect to; repeatable
    #[arg(long, value_name = "PORT", default_values_t = InstallOptions::default().api_server_ports)]
    api_server_port: Vec<u16>,
    /// Trust an address behind which there are several API servers (a load balancer), and ask it so often for each raise
    #[arg(long, value_name = "N", default_value_t = 0)]
    balancer_proofs: u32,
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    gating: GatingArgs,
    #[command(flatten)]
    accounts: PlatformAccountsArgs,
    /// Which objects
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',', default_values_t = [Part::Crds, Part::Install])]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pulled {
    /// Where they have none of this name
    #[value(name = "IfNotPresent")]
    IfNotPresent,
    /// Before each start
    #[value(name = "Always")]
    Always,
    /// Never: they have it
    #[value(name = "Never")]
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Used {
    /// Sluice's own, rendered with the rest
    Created,
    /// Sluice's own, but made by others
    Own,
    /// Others run there too: no ResourceQuota permits Sluice's priority class
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// Nothing
    Generic,
    /// User and groups are left to the range of the namespace, as restricted-v2 asks
    Openshift,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The custom resource definitions
    Crds,
    /// What is applied to install
    Install,
    /// An AAQ that says what holds without one
    AaqCr,
    /// What the operator writes, to look at: applied by hand, it is taken over by the operator
    Admission,
    /// What is needed beside Rancher's webhook, on Kubernetes 1.36 and later
    Rancher,
}

/// Why nothing was rendered.
#[derive(Debug, thiserror::Error)]
enum RenderError {
    #[error(transparent)]
    Option(#[from] InvalidOption),
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error("could not write an object as YAML: {0}: report it")]
    Yaml(String),
    #[error("stdout: could not write all objects: {0}: redirect the output to a file that can be written")]
    Output(#[from] std::io::Error),
}

/// Prints the objects, or one sentence that says which option is wrong.
pub fn run(args: &RenderArgs) -> ExitCode {
    // Nothing is written before everything is known to be right.
    match text(args).and_then(|text| write(&mut std::io::stdout().lock(), &text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(WRONG_ARGUMENTS)
        }
    }
}

fn write(out: &mut impl Write, text: &str) -> Result<(), RenderError> {
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn text(args: &RenderArgs) -> Result<String, RenderError> {
    let mut text = String::new();
    for object in objects(args)? {
        let document =
            serde_saphyr::to_string(&object).map_err(|error| RenderError::Yaml(error.to_string()))?;
        text.push_str("---\n");
        text.push_str(document.trim_end());
        text.push('\n');
    }
    Ok(text)
}

fn objects(args: &RenderArgs) -> Result<Vec<Value>, RenderError> {
    let options = args.install_options()?;
    options.validate()?;
    let part = |part: &Part| match part {
        Part::Crds => crds(),
        Part::Install => install_objects(&options),
        Part::AaqCr => vec![default_aaq(&options)],
        Part::Admission => {
            let gating = args.kubernetes.gating(options.gating);
            admission_objects(&InstallOptions { gating, ..options.clone() })
        }
        Part::Rancher => rancher_objects(&options),
    };
    Ok(args.only.iter().flat_map(part).collect())
}

impl RenderArgs {
    fn install_options(&self) -> Result<InstallOptions, RenderError> {
        let tolerations = self.tolerations.as_deref().map(files::tolerations).transpose()?;
        let resources = self.resources.as_deref().map(files::resources).transpose()?;
        let node_selector: BTreeMap<_, _> = self.node_selector.iter().cloned().collect();
        Ok(InstallOptions {
            image: self.image.clone(),
            pull_policy: self.image_pull_policy.into(),
            image_pull_secrets: self.image_pull_secret.clone(),
            namespace: self.namespace.clone(),
            namespace_use: self.namespace_use.into(),
            platform: self.platform.into(),
            replicas: self.replicas,
            webhook_port: self.port,
            host_network: self.host_network,
            tolerations: tolerations.unwrap_or_default(),
            node_selector,
            resources: resources.unwrap_or_default(),
            priority_class: Some(self.priority_class.clone()).filter(|class| !class.is_empty()),
            api_server_ports: self.api_server_port.clone(),
            balancer_proofs: self.balancer_proofs,
            installation: self.installation.wanted(),
            gating: self.gating.wanted(),
            exempt_namespaces: self.gating.exempt().to_vec(),
            platform_accounts: self.accounts.platform_accounts.clone(),
            ..InstallOptions::default()
        })
    }
}

impl From<Pulled> for PullPolicy {
    fn from(pulled: Pulled) -> Self {
        match pulled {
            Pulled::IfNotPresent => Self::IfNotPresent,
            Pulled::Always => Self::Always,
            Pulled::Never => Self::Never,
        }
    }
}

impl From<Used> for NamespaceUse {
    fn from(used: Used) -> Self {
        match used {
            Used::Created => Self::Created,
            Used::Own => Self::Own,
            Used::Shared => Self::Shared,
        }
    }
}

impl From<On> for Platform {
    fn from(on: On) -> Self {
        match on {
            On::Generic => Self::Generic,
            On::Openshift => Self::Openshift,
        }
    }
}
