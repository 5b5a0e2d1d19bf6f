//! The API server, with its refusals as values.

use std::collections::BTreeMap;
use std::fmt;

use kube::Client;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::Value;
use sluice_engine::ChargeRules;

/// An answer other than success.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: u16,
    pub message: String,
    /// Field and rule of each cause.
    pub causes: Vec<(String, String)>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// The body of a success, or the refusal.
pub type ApiResult = Result<String, Refusal>;

/// The API server as its administrator sees it.
#[derive(Clone)]
pub struct Server {
    client: Client,
    /// The rules of its version.
    pub rules: ChargeRules,
}

impl Server {
    pub async fn new(client: Client) -> Self {
        let version = client.apiserver_version().await.unwrap();
        let digits: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
        Self { client, rules: ChargeRules::for_minor(digits.parse().unwrap()) }
    }

    pub async fn create(&self, path: &str, body: String, dry_run: bool) -> ApiResult {
        let params = PostParams { dry_run, ..PostParams::default() };
        self.answer(Request::new(path).create(&params, body.into_bytes()).unwrap()).await
    }

    /// Creates what is known to be acceptable.
    pub async fn set_up(&self, path: &str, body: &Value) {
        if let Err(refusal) = self.create(path, body.to_string(), false).await {
            panic!("setting up {body} at {path}: {refusal}");
        }
    }

    pub async fn read(&self, path: &str, name: &str) -> Value {
        let text = self.answer(Request::new(path).get(name, &GetParams::default()).unwrap()).await;
        serde_json::from_str(&text.unwrap_or_else(|refusal| panic!("reading {path}/{name}: {refusal}")))
            .unwrap()
    }

    pub async fn replace(&self, path: &str, name: &str, subresource: &str, object: &Value) -> ApiResult {
        let body = object.to_string().into_bytes();
        let request = Request::new(path).replace_subresource(subresource, name, &PostParams::default(), body);
        self.answer(request.unwrap()).await
    }

    /// Writes a status by hand.
    pub async fn record(&self, path: &str, name: &str, status: Value) -> Value {
        let patch = Patch::Merge(serde_json::json!({ "status": status }));
        let request = Request::new(path).patch_subresource("status", name, &PatchParams::default(), &patch);
        let text = self.answer(request.unwrap()).await;
        serde_json::from_str(&text.unwrap_or_else(|refusal| panic!("status of {path}/{name}: {refusal}")))
            .unwrap()
    }

    async fn answer(&self, request: http::Request<Vec<u8>>) -> ApiResult {
        let what = format!("{} {}", request.method(), request.uri());
        match self.client.request_text(request).await {
            Ok(text) => Ok(text),
            Err(kube::Error::Api(status)) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                Err(Refusal {
                    code: status.code,
                    causes: causes.map(|cause| (cause.field.clone(), cause.message.clone())).collect(),
                    message: status.message,
                })
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// `name=amount,…` as a map.
pub fn amounts(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|part| part.rsplit_once('='))
        .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
        .collect()
}
