//! What the API server lets in, told by the real API server that calls the real webhook over TLS.

mod gate;
mod guard;
mod identity;
mod quotas;
mod reviews;

use crate::context::gates;

fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

fn quotas_path(namespace: &str) -> String {
    format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}/applicationawareresourcequotas")
}
