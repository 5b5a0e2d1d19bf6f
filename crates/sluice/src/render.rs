//! `sluice render`: the objects of an installation, as YAML.

mod files;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;
use sluice_api::names;
use sluice_manifests::{
    AskedOfPods, InstallOptions, InvalidOption, IssuerRef, KubernetesVersion, NamespaceUse, Naming, Platform,
    PullPolicy, admission_objects, crds, default_aaq, install_objects, operand_objects, rancher_objects,
};

use crate::options::{OptionsArgs, OptionsError};

/// Exit code of clap for arguments that are wrong.
const WRONG_ARGUMENTS: u8 = 2;

/// Flags of `sluice render`.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    #[command(flatten)]
    options: OptionsArgs,
    /// Image of all pods, with a tag, a digest or both
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// When nodes pull the image, if not `IfNotPresent`
    #[arg(long, value_enum, value_name = "WHEN")]
    image_pull_policy: Option<Pulled>,
    /// A Secret in the namespace of the installation that the image is pulled with; repeatable
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// Namespace of the installation
    #[arg(long, value_name = "NAME", default_value = names::INSTALL_NAMESPACE)]
    namespace: String,
    /// Whose namespace that is, if not `created`
    #[arg(long, value_enum, value_name = "USE")]
    namespace_use: Option<Used>,
    /// Version of Kubernetes that the objects are for, from 1.31 to 1.37
    #[arg(long, value_name = "VERSION", default_value = "1.36")]
    kubernetes: KubernetesVersion,
    /// What the cluster asks of pods beyond Kubernetes, if not `generic`
    #[arg(long, value_enum, value_name = "PLATFORM")]
    platform: Option<On>,
    /// Replicas of each Deployment, if not 2
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// Port that the webhook listens on, 1024 or above, if not 8443: where a firewall lets API servers reach few ports
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
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
    /// Priority class of all pods, if not `system-cluster-critical`; empty: none
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// A port of API servers that the NetworkPolicies let pods connect to, if not 443, 6443 and 8443; repeatable
    #[arg(long, value_name = "PORT")]
    api_server_port: Vec<u16>,
    /// Trust an address behind which there are several API servers (a load balancer), and ask it so often for each raise
    #[arg(long, value_name = "N")]
    balancer_proofs: Option<u32>,
    /// The issuer of cert-manager that signs the webhook's certificate, and writes ca.crt: an Issuer, or a ClusterIssuer by
    /// ClusterIssuer/NAME. Without it the operator signs
    #[arg(long, value_name = "[KIND/]NAME", value_parser = issuer)]
    cert_manager: Option<IssuerRef>,
    /// A ServiceMonitor and alerts too, for Prometheus' operator, whose CRDs have to be there
    #[arg(long)]
    monitoring: bool,
    /// By which names other programs find the installation, if not `sluice`
    #[arg(long, value_enum, value_name = "NAMES")]
    names: Option<Named>,
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
    /// Pods are as in `generic`. API servers are behind one address: `--balancer-proofs` is 20, if not given
    Aks,
}

/// How often API servers behind one address are asked for a proof on AKS.
const PROOFS_ON_AKS: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Named {
    /// Sluice's own
    Sluice,
    /// Those of application-aware-quota, for its own test suite
    Aaq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The custom resource definitions
    Crds,
    /// What is applied to install
    Install,
    /// What the operator makes of the same options, to look at
    Operands,
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
    Options(#[from] OptionsError),
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
        Part::Operands => operand_objects(&options, &AskedOfPods::default()),
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
        let base = InstallOptions { namespace: self.namespace.clone(), ..InstallOptions::default() };
        let mut options = self.options.over(base)?;
        let tolerations = self.tolerations.as_deref().map(files::tolerations).transpose()?;
        let resources = self.resources.as_deref().map(files::resources).transpose()?;
        put(&mut options.image, self.image.clone());
        put(&mut options.pull_policy, self.image_pull_policy.map(Into::into));
        put(&mut options.image_pull_secrets, given(&self.image_pull_secret));
        put(&mut options.namespace_use, self.namespace_use.map(Into::into));
        put(&mut options.platform, self.platform.map(Into::into));
        put(&mut options.replicas, self.replicas);
        put(&mut options.webhook_port, self.port);
        put(&mut options.host_network, self.host_network.then_some(true));
        put(&mut options.tolerations, tolerations);
        let labels = given(&self.node_selector).map(|labels| labels.into_iter().collect::<BTreeMap<_, _>>());
        put(&mut options.node_selector, labels);
        put(&mut options.resources, resources);
        let class = self.priority_class.clone();
        put(&mut options.priority_class, class.map(|class| Some(class).filter(|class| !class.is_empty())));
        put(&mut options.api_server_ports, given(&self.api_server_port));
        let of_platform = self.platform.filter(|platform| *platform == On::Aks).map(|_| PROOFS_ON_AKS);
        put(&mut options.balancer_proofs, self.balancer_proofs.or(of_platform));
        put(&mut options.cert_manager, self.cert_manager.clone().map(Some));
        if self.monitoring {
            (options.monitoring.service_monitor, options.monitoring.rules) = (true, true);
        }
        put(&mut options.naming, self.names.map(Into::into));
        Ok(options)
    }
}

fn put<T>(option: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *option = value;
    }
}

/// An issuer of cert-manager's own group.
fn issuer(text: &str) -> Result<IssuerRef, Infallible> {
    let (kind, name) = text.split_once('/').unwrap_or(("Issuer", text));
    Ok(IssuerRef {
        name: name.to_owned(),
        kind: kind.to_owned(),
        group: names::CERT_MANAGER_GROUP.to_owned(),
    })
}

/// A flag that is repeated.
fn given<T: Clone>(flag: &[T]) -> Option<Vec<T>> {
    (!flag.is_empty()).then(|| flag.to_vec())
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
            On::Generic | On::Aks => Self::Generic,
            On::Openshift => Self::Openshift,
        }
    }
}

impl From<Named> for Naming {
    fn from(named: Named) -> Self {
        match named {
            Named::Sluice => Self::Sluice,
            Named::Aaq => Self::Aaq,
        }
    }
}
