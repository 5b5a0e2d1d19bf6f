//! What the API server lets in, told by the real API server that calls the real webhook over TLS.

mod gate;
mod guard;
mod identity;
mod quotas;
mod reviews;

fn quotas_path(namespace: &str) -> String {
    format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}/applicationawareresourcequotas")
}
