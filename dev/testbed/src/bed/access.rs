//! Identities and namespaces.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::{Bed, START, kubeconfig_path};
use crate::kubeconfig::{self, Credential};
use crate::wait;

/// Life of tokens, seconds: longer than any bed's.
pub(super) const TOKEN_LIFE: u32 = 30 * 24 * 3600;

/// An account that talks to the API server: a kubeconfig file and the same as a client.
#[derive(Clone)]
pub struct Identity {
    user: String,
    kubeconfig: PathBuf,
    config: kube::Config,
}

impl Identity {
    pub(crate) fn new(
        dir: &Path,
        server: &str,
        ca_pem: &str,
        name: &str,
        credential: &Credential,
        namespace: &str,
    ) -> anyhow::Result<Self> {
        let path = kubeconfig_path(dir, &name.replace(['/', ':'], "-"));
        kubeconfig::write(&path, server, ca_pem, credential.auth_info(), Some(namespace))?;
        let config = kubeconfig::client_config(server, ca_pem, credential.auth_info(), namespace)?;
        Ok(Self { user: name.to_owned(), kubeconfig: path, config })
    }

    /// User name as the API server sees it.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Client configuration.
    #[must_use]
    pub fn config(&self) -> kube::Config {
        self.config.clone()
    }

    /// A new client; belongs to the calling tokio runtime.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub fn client(&self) -> anyhow::Result<kube::Client> {
        kube::Client::try_from(self.config()).with_context(|| format!("making a client for {}", self.user))
    }
}

#[derive(Clone, Debug)]
pub struct TestNamespace {
    /// Its name, unique in the bed.
    pub name: String,
}

impl std::fmt::Display for TestNamespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Bed {
    /// Creates a namespace with a fresh name; with a controller-manager, its default service
    /// account exists when this returns.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, prefix: &str, labels: &[(&str, &str)]) -> anyhow::Result<TestNamespace> {
        let name = self.fresh_name(prefix);
        let labels: serde_json::Map<_, _> = labels.iter().map(|&(k, v)| (k.to_owned(), json!(v))).collect();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        let client = self.admin()?;
        let created = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await;
        created.with_context(|| format!("creating namespace {name}"))?;
        if self.options.controller_manager {
            let accounts: Api<ServiceAccount> = Api::namespaced(client, &name);
            let what = "the namespace's default service account";
            wait::wait_for(&accounts, "default", START, what, |a| a.is_some()).await?;
        }
        Ok(TestNamespace { name })
    }

    /// An account with ClusterRole `edit` in one namespace and no other rights (group `tenants`).
    ///
    /// # Errors
    /// When the API server refuses the RoleBinding.
    pub async fn tenant(&self, namespace: &TestNamespace) -> anyhow::Result<Identity> {
        let user = self.fresh_name("tenant");
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }))?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.admin()?, &namespace.name);
        let created = bindings.create(&PostParams::default(), &binding).await;
        created.with_context(|| format!("binding {user} to edit in {namespace}"))?;
        let credential = Credential::Certificate(self.pki.client(&user, &["tenants"])?);
        let tenant = self.identity(&user, &credential, &namespace.name)?;
        self.until_allowed(&tenant, &namespace.name).await?;
        Ok(tenant)
    }

    /// The authorizer learns of a binding by watch: waits until it did.
    async fn until_allowed(&self, tenant: &Identity, namespace: &str) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(tenant.client()?, namespace);
        let probe =
            || async { accounts.list_metadata(&kube::api::ListParams::default().limit(1)).await.ok() };
        wait::eventually(START, probe, "the tenant's RoleBinding to take effect").await.map(drop)
    }

    /// An account with this name and these groups: by client certificate, or, with more than one
    /// group, by impersonation (the audit log then names the administrator as well).
    ///
    /// # Errors
    /// When the kubeconfig cannot be written.
    pub fn client_as_user(&self, user: &str, groups: &[&str]) -> anyhow::Result<Identity> {
        let credential = if groups.len() <= 1 {
            Credential::Certificate(self.pki.client(user, groups)?)
        } else {
            let groups = groups.iter().map(|&group| group.to_owned()).collect();
            let admin = Box::new(self.admin.config.auth_info.clone());
            Credential::Impersonation { admin, user: user.to_owned(), groups }
        };
        self.identity(user, &credential, "default")
    }

    /// A service account's token with exactly the rights that were bound to it.
    ///
    /// # Errors
    /// When the service account does not exist.
    pub async fn service_account(&self, namespace: &str, name: &str) -> anyhow::Result<Identity> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin()?, namespace);
        let request: TokenRequest =
            serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_LIFE}}))?;
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer =
            answer.with_context(|| format!("requesting a token of service account {namespace}/{name}"))?;
        let token = answer.status.and_then(|status| status.token).context("the answer carries no token")?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.identity(&user, &Credential::Token(token), namespace)
    }

    /// The same person, who speaks with the second API server.
    ///
    /// # Errors
    /// When there is none, or the kubeconfig cannot be written.
    pub fn at_second_server(&self, identity: &Identity) -> anyhow::Result<Identity> {
        ensure!(self.options.second_api_server, "this bed has one API server: see BedOptions");
        let mut config = identity.config();
        config.cluster_url = self.second_server_url().parse()?;
        let path = kubeconfig_path(&self.dir, &format!("{}-2", identity.user.replace(['/', ':'], "-")));
        let (auth, namespace) = (config.auth_info.clone(), config.default_namespace.clone());
        kubeconfig::write(&path, &self.second_server_url(), self.ca_pem(), auth, Some(&namespace))?;
        Ok(Identity { user: identity.user.clone(), kubeconfig: path, config })
    }

    fn identity(&self, user: &str, credential: &Credential, namespace: &str) -> anyhow::Result<Identity> {
        Identity::new(&self.dir, &self.server_url(), self.ca_pem(), user, credential, namespace)
    }
}
