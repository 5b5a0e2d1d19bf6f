//! What the commands of a page find: kubectl, its plug-in, and what a cluster that runs pods would answer.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use sluice_e2e::build;
use sluice_testbed::{Bed, Identity, artifacts};

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of programs, before all others of `PATH`.
pub struct Programs {
    folder: PathBuf,
    kubeconfig: PathBuf,
    /// What a page calls a thing, and what it is here.
    names: Vec<(String, String)>,
}

impl Programs {
    /// For the administrator of the bed.
    pub fn on(bed: &Bed) -> Self {
        Self::of(bed, bed.admin_identity())
    }

    /// For an account of the bed.
    pub fn of(bed: &Bed, identity: &Identity) -> Self {
        let folder = bed.dir().canonicalize().unwrap().join("documented").join(identity.user());
        std::fs::create_dir_all(&folder).unwrap();
        let kubernetes = artifacts::kubernetes().unwrap();
        let (here, logs) = (folder.display(), bed.dir().canonicalize().unwrap().join("logs"));
        // Sluice's programs run beside the cluster: what their pods would log is in files, their probes are at ports of
        // their own. Whether a cluster would know what is asked for: `crates/manifests/tests/docs.rs`.
        let kubectl = format!(
            "case \" $* \" in\n\
             *' logs --selector app.kubernetes.io/component='*)\n\
             exec cat {logs}/\"$(printf %s \"$*\" | sed 's,.*component=\\([a-z-]*\\).*,\\1,')\"-[0-9]*.log;;\n\
             *' port-forward deployment/'*)\n\
             exec cp {here}/\"$(printf %s \"$*\" | sed 's,.*deployment/\\([a-z-]*\\).*,\\1,')\" {here}/forwarded;;\n\
             esac\n\
             KUBECACHEDIR={here}/cache exec {} kubectl \"$@\"",
            kubernetes.display(),
            logs = logs.display(),
        );
        let curl = format!("PATH=${{PATH#*:}} exec curl -s \"http://$(cat {here}/forwarded)/readyz\"");
        for (name, line) in [("kubectl", kubectl), ("curl", curl)] {
            let path = folder.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let sluice = build::sluice().unwrap().canonicalize().unwrap();
        for name in ["kubectl-sluice", "sluice"] {
            let link = folder.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(&sluice, link).unwrap();
            }
        }
        // Commands may change it.
        let kubeconfig = folder.join("kubeconfig");
        std::fs::copy(identity.kubeconfig(), &kubeconfig).unwrap();
        Self { folder, kubeconfig, names: Vec::new() }
    }

    /// What a page calls `shown` is `real` here.
    pub fn call(&mut self, shown: &str, real: &str) {
        self.names.push((shown.to_owned(), real.to_owned()));
    }

    /// Where a program has its probes.
    pub fn forward(&self, program: &str, admin: &str) {
        std::fs::write(self.folder.join(program), admin).unwrap();
    }

    /// Writes a file that commands of the page read.
    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    /// Runs a line of a shell after one with this exit code: its own, and what it prints to both outputs.
    pub async fn run(&self, before: i32, command: &str) -> (i32, String) {
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").unwrap());
        let real =
            self.names.iter().fold(command.to_owned(), |text, (shown, real)| text.replace(shown, real));
        let mut shell = tokio::process::Command::new("sh");
        // What goes on beside is over at once here.
        shell.args(["-c", &format!("exec 2>&1; (exit {before}); {}", real.trim_end_matches('&'))]);
        shell.env("PATH", path).env("KUBECONFIG", &self.kubeconfig).env("TZ", "UTC").env("LC_ALL", "C");
        shell.current_dir(&self.folder).kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, shell.output()).await.expect(command).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let shown = self.names.iter().fold(text, |text, (shown, real)| text.replace(real, shown));
        (output.status.code().unwrap_or(-1), shown)
    }
}
