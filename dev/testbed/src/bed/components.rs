//! The processes of a bed: which there are and how each is called.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BedOptions, Ports};
use crate::pki::Pki;
use crate::program::ProgramSpec;

/// A process of the bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// Another kube-apiserver on the same etcd (see [`BedOptions::second_api_server`]).
    SecondApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// KWOK: nodes and kubelets.
    Kwok,
    /// KubeVirt's virt-controller.
    VirtController,
}

impl Component {
    /// The program's name, also the name of its log file and kubeconfig.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::SecondApiServer => "kube-apiserver-2",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::VirtController => "virt-controller",
        }
    }

    /// The word by which the program is chosen that all of Kubernetes is built into.
    const fn word(self) -> &'static str {
        match self {
            Self::SecondApiServer => Self::ApiServer.name(),
            other => other.name(),
        }
    }

    /// User and group of the component's client certificate; virt-controller has a token.
    pub(crate) const fn user(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Etcd | Self::ApiServer | Self::SecondApiServer | Self::VirtController => None,
            Self::ControllerManager => Some(("system:kube-controller-manager", "system:components")),
            Self::Scheduler => Some(("system:kube-scheduler", "system:components")),
            Self::Kwok => Some(("kwok", "system:masters")),
        }
    }
}

/// The built programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub kubernetes: std::path::PathBuf,
    pub kwok: Option<std::path::PathBuf>,
    pub kubevirt: Option<std::path::PathBuf>,
}

/// Everything the command lines depend on.
pub(crate) struct Plan<'a> {
    pub dir: &'a Path,
    pub options: &'a BedOptions,
    pub ports: &'a Ports,
    pub pki: &'a Pki,
    pub programs: Programs,
    pub launcher_image: String,
}

impl Plan<'_> {
    /// How to start a component.
    pub(crate) fn spec(&self, component: Component) -> ProgramSpec {
        let (mut args, extra) = match component {
            Component::Etcd => (self.etcd(), None),
            Component::ApiServer => (
                self.api_server(self.ports.server, self.ports.etcd, "audit"),
                Some(&self.options.api_server_args),
            ),
            Component::SecondApiServer => {
                let etcd = if self.options.etcd_relay { self.ports.relay } else { self.ports.etcd };
                let mut args = self.api_server(self.ports.second, etcd, "audit-2");
                args.extend(self.options.api_server_args.iter().cloned());
                (args, Some(&self.options.second_api_server_args))
            }
            Component::ControllerManager => {
                (self.controller_manager(), Some(&self.options.controller_manager_args))
            }
            Component::Scheduler => (self.scheduler(), None),
            Component::Kwok => (self.kwok(), None),
            Component::VirtController => (self.virt_controller(), None),
        };
        args.extend(extra.into_iter().flatten().cloned());
        let mut words: Vec<OsString> = Vec::new();
        if component != Component::Kwok {
            words.push(component.word().into());
        }
        let exe = match component {
            Component::Kwok => self.programs.kwok.as_ref(),
            Component::VirtController => self.programs.kubevirt.as_ref(),
            _ => None,
        };
        let exe = exe.unwrap_or(&self.programs.kubernetes).clone();
        words.extend(args.into_iter().map(OsString::from));
        ProgramSpec {
            name: component.name().into(),
            exe,
            args: words,
            env: vec![("HOME".into(), self.dir.into())],
            log: self.dir.join("logs").join(format!("{}.log", component.name())),
            grace: Duration::from_millis(700),
            hold: Some(self.dir.join("keepers.lock")),
        }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn pki(&self, name: &str) -> String {
        self.pki.path(name).display().to_string()
    }

    fn kubeconfig(&self, component: Component) -> String {
        format!("--kubeconfig={}", super::kubeconfig_path(self.dir, component.name()).display())
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("http://{}", self.options.host(self.ports.etcd));
        let peer = format!("http://{}", self.options.host(self.ports.peer));
        vec![
            "--name=bed".into(),
            format!("--data-dir={}", self.path("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=bed={peer}"),
            // Data that is thrown away need not reach the disk.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
            "--quota-backend-bytes=8589934592".into(),
        ]
    }

    fn api_server(&self, port: u16, etcd: u16, audit: &str) -> Vec<String> {
        let address = self.options.loopback();
        let services = if self.options.ipv6 { "fd00:10:96::/112" } else { "10.96.0.0/16" };
        let mut args = vec![
            format!("--etcd-servers=http://{}", self.options.host(etcd)),
            format!("--bind-address={address}"),
            format!("--secure-port={port}"),
            format!("--advertise-address={address}"),
            // A loopback address is not a legal endpoint of the `kubernetes` Service.
            "--endpoint-reconciler-type=none".into(),
            format!("--tls-cert-file={}", self.pki("server.crt")),
            format!("--tls-private-key-file={}", self.pki("server.key")),
            format!("--client-ca-file={}", self.pki("ca.crt")),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            format!("--service-cluster-ip-range={services}"),
            "--allow-privileged=true".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", self.pki("service-account.pub")),
            format!("--service-account-signing-key-file={}", self.pki("service-account.key")),
        ];
        if self.options.audit {
            args.extend([
                format!("--audit-policy-file={}", self.path("audit-policy.yaml")),
                format!("--audit-log-path={}", self.path(&format!("logs/{audit}.log"))),
                // Tests that count in the log need all of it in one file; without a size a new one begins at 100 MB.
                "--audit-log-maxsize=1000000".into(),
                "--audit-log-mode=batch".into(),
                "--audit-log-batch-max-wait=200ms".into(),
                "--audit-log-batch-buffer-size=100000".into(),
            ]);
        }
        args
    }

    fn controller_manager(&self) -> Vec<String> {
        vec![
            self.kubeconfig(Component::ControllerManager),
            "--secure-port=0".into(),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", self.pki("service-account.key")),
            format!("--root-ca-file={}", self.pki("ca.crt")),
            // The default limits are made for big clusters; tests would wait for them.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=1000".into(),
        ]
    }

    fn scheduler(&self) -> Vec<String> {
        vec![
            self.kubeconfig(Component::Scheduler),
            "--secure-port=0".into(),
            "--leader-elect=false".into(),
            "--kube-api-qps=500".into(),
            "--kube-api-burst=1000".into(),
        ]
    }

    fn kwok(&self) -> Vec<String> {
        vec![
            self.kubeconfig(Component::Kwok),
            format!("--config={}", self.path("stages.yaml")),
            "--manage-all-nodes=false".into(),
            format!("--manage-nodes-with-label-selector={}=true", super::nodes::SIMULATED),
            "--node-lease-duration-seconds=40".into(),
            "--cidr=10.128.0.0/9".into(),
        ]
    }

    fn virt_controller(&self) -> Vec<String> {
        vec![
            self.kubeconfig(Component::VirtController),
            "--listen=127.0.0.1".into(),
            // Any free port: its metrics are not read.
            "--port=0".into(),
            format!("--launcher-image={}", self.launcher_image),
            "--exporter-image=exporter".into(),
            format!("--prom-cert-file={}", self.pki("server.crt")),
            format!("--prom-key-file={}", self.pki("server.key")),
            // It is the only one: a pause or a slow machine must not cost it its lease.
            "--leader-elect-lease-duration=1h".into(),
            "--leader-elect-renew-deadline=50m".into(),
        ]
    }
}
