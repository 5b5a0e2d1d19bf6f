//! The Kubernetes client: one place for connection settings, deadlines and the server's version.

mod tls;
mod version;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{AuthInfo, ExecInteractiveMode, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::util::MapResponseLayer;
use tower::{BoxError, Service, ServiceBuilder};

use crate::clock::ServerClock;
use crate::date_header::date_of;
use crate::proxy::{Environment, UnknownProxy, Way, way};
pub use tls::TlsOptions;
pub use version::ServerVersion;

/// How to reach the API server.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Kubeconfig file. `None`: the in-cluster environment when there is one, else `KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig; `None` is its current context.
    pub context: Option<String>,
    /// Cluster in the kubeconfig, in place of that of the context (`--cluster`).
    pub cluster: Option<String>,
    /// User in the kubeconfig, in place of that of the context (`--user`).
    pub user: Option<String>,
    /// Bearer token, in place of the credentials of the kubeconfig (`--token`).
    pub token: Option<String>,
    /// `User-Agent` of every request; API Priority and Fairness and audit logs show it.
    pub user_agent: String,
    /// Limit for establishing a TCP connection.
    pub connect_timeout: Duration,
    /// User to impersonate (`--as`).
    pub impersonate: Option<String>,
    /// Groups to impersonate beside it (`--as-group`).
    pub impersonate_groups: Vec<String>,
    /// Uid to impersonate beside it (`--as-uid`).
    pub impersonate_uid: Option<String>,
    /// One API server, instead of the address that stands for all of them.
    pub server: Option<Server>,
    /// The process has no user to ask: a plug-in of the kubeconfig gets no input and no terminal.
    pub is_unattended: bool,
    /// How TLS is done, in place of what the kubeconfig says.
    pub tls: TlsOptions,
    /// Limit for each request until its answer begins; `None`: what each call has.
    pub request_timeout: Option<Duration>,
    /// Told of the date of each answer.
    pub clock: Option<Arc<ServerClock>>,
}

/// One of the API servers of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// Its own address.
    pub url: http::Uri,
    /// The name that its certificate is for, if that is not the host of the address.
    pub tls_name: Option<String>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            cluster: None,
            user: None,
            token: None,
            user_agent: concat!("sluice/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(5),
            impersonate: None,
            impersonate_groups: Vec::new(),
            impersonate_uid: None,
            server: None,
            is_unattended: false,
            tls: TlsOptions::default(),
            request_timeout: None,
            clock: None,
        }
    }
}

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file is missing or wrong.
    #[error("cannot load kubeconfig {path}: {source}")]
    Kubeconfig {
        /// Where it was looked for.
        path: String,
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// Neither a kubeconfig nor an in-cluster environment.
    #[error("found no way to the API server (tried in-cluster, KUBECONFIG, ~/.kube/config): {0}")]
    Infer(#[source] kube::config::InferConfigError),
    /// The user agent has characters that a header cannot carry.
    #[error("user agent {0:?} is not a valid header value; use printable ASCII")]
    UserAgent(String),
    /// The uid has characters that a header cannot carry.
    #[error("--as-uid {0:?} is not a valid header value; use printable ASCII")]
    ImpersonatedUid(String),
    /// The proxy of the kubeconfig or of `HTTPS_PROXY` is of a kind that is not known.
    #[error("cannot use proxy {0}: use one of http://host:port and socks5://host:port")]
    Proxy(String),
    /// TLS material or credentials cannot be used.
    #[error("cannot build the client: {}", crate::retry::words_and_causes(.0))]
    Build(kube::Error),
    /// The server did not answer or its version cannot be read.
    #[error("cannot read the API server's version: {}", crate::retry::words_and_causes(.0))]
    Version(kube::Error),
}

/// Makes aws-lc-rs the process-wide TLS provider. Call it first in `main`; a second call changes nothing.
pub fn install_crypto_provider() {
    // The only failure is that a provider is already there, which is what the caller wants.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Connects as `options` say. No request is sent yet.
///
/// Differs from kube's default stack in two points: `TCP_NODELAY` is on (small writes such as a lease renewal must not
/// wait for a delayed ACK), and nothing is retried behind the caller's back, because each loop decides for itself
/// whether a write may be repeated ([`crate::retry`]).
///
/// # Errors
/// When the configuration is missing or cannot be used; an API server that does not answer is no error yet.
pub async fn connect(options: &ClientOptions) -> Result<Client, ClientError> {
    install_crypto_provider();
    client_from(load(options).await?, options)
}

/// As [`connect`], from a configuration that the caller made (tests, several contexts).
///
/// # Errors
/// When the user agent is no header value, the proxy is of an unknown kind, or the TLS material or credentials cannot be
/// used.
pub fn client_from(mut config: Config, options: &ClientOptions) -> Result<Client, ClientError> {
    let agent = HeaderValue::from_str(&options.user_agent)
        .map_err(|_| ClientError::UserAgent(options.user_agent.clone()))?;
    config.headers.push((header::USER_AGENT, agent));
    config.default_retry = false;
    if let Some(user) = &options.impersonate {
        config.auth_info.impersonate = Some(user.clone());
    }
    if !options.impersonate_groups.is_empty() {
        config.auth_info.impersonate_groups = Some(options.impersonate_groups.clone());
    }
    if let Some(uid) = &options.impersonate_uid {
        let value = HeaderValue::from_str(uid).map_err(|_| ClientError::ImpersonatedUid(uid.clone()))?;
        config.headers.push((HeaderName::from_static("impersonate-uid"), value));
    }
    if let Some(token) = &options.token {
        config.auth_info = AuthInfo {
            token: Some(token.clone().into()),
            impersonate: config.auth_info.impersonate.take(),
            impersonate_groups: config.auth_info.impersonate_groups.take(),
            ..AuthInfo::default()
        };
    }
    if let Some(plug_in) = config.auth_info.exec.as_mut().filter(|_| options.is_unattended) {
        plug_in.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    if let Some(server) = &options.server {
        config.cluster_url = server.url.clone();
        config.tls_server_name = server.tls_name.clone();
    }
    options.tls.apply(&mut config);
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(options.connect_timeout));
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    let environment = Environment::of_process();
    let way = way(config.proxy_url.as_ref(), &config.cluster_url, &environment, tcp);
    match way.map_err(|UnknownProxy(address)| ClientError::Proxy(address))? {
        Way::Direct(way) => client_by(way, &config, options),
        Way::Http(way) => client_by(way, &config, options),
        Way::Socks(way) => client_by(way, &config, options),
    }
}

/// A client whose connections begin with `way`.
fn client_by<W>(way: W, config: &Config, options: &ClientOptions) -> Result<Client, ClientError>
where
    W: Service<http::Uri> + Clone + Send + Sync + 'static,
    W::Response: Connection + Read + Write + Send + Unpin + 'static,
    W::Future: Send + 'static,
    W::Error: Into<BoxError>,
{
    let https = config.rustls_https_connector_with_connector(way).map_err(ClientError::Build)?;
    let wire = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build::<_, Body>(https);
    let (clock, limit) = (options.clock.clone(), options.request_timeout);
    let service = ServiceBuilder::new()
        .layer(MapResponseLayer::new(keep_retry_after))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(ClientError::Build)?)
        .layer(config.extra_headers_layer().map_err(ClientError::Build)?)
        .map_response(move |response| {
            if let Some(clock) = &clock {
                clock.observe(date_of(&response));
            }
            response
        })
        .map_err(BoxError::from)
        .map_future(move |call| within(limit, call))
        .service(wire);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

async fn within<T, E: Into<BoxError>>(
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    match limit {
        None => call.await.map_err(Into::into),
        Some(limit) => match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Box::new(DeadlineExceeded(limit))),
        },
    }
}

async fn load(options: &ClientOptions) -> Result<Config, ClientError> {
    let ClientOptions { context, cluster, user, .. } = options;
    let selected =
        KubeConfigOptions { context: context.clone(), cluster: cluster.clone(), user: user.clone() };
    if let Some(path) = &options.kubeconfig {
        let wrong = |source| ClientError::Kubeconfig { path: path.display().to_string(), source };
        let file = Kubeconfig::read_from(path).map_err(wrong)?;
        return Config::from_custom_kubeconfig(file, &selected).await.map_err(wrong);
    }
    if context.is_some() || cluster.is_some() || user.is_some() {
        return Config::from_kubeconfig(&selected).await.map_err(|source| ClientError::Kubeconfig {
            path: "KUBECONFIG or ~/.kube/config".to_owned(),
            source,
        });
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(_) => Config::infer().await.map_err(ClientError::Infer),
    }
}

/// Carries the `Retry-After` header of a refused request into the status object.
///
/// kube hands out only the body of an error, and the refusal of API Priority and Fairness is plain text whose wait time
/// is in the header alone.
fn keep_retry_after<B>(response: Response<B>) -> Response<axum::body::Body>
where
    B: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let seconds = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().parse::<u32>().ok());
    let status = response.status();
    let refused = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let Some(seconds) = seconds.filter(|_| refused) else {
        return response.map(axum::body::Body::new);
    };
    let reason =
        if status == StatusCode::TOO_MANY_REQUESTS { "TooManyRequests" } else { "ServiceUnavailable" };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the server asks to retry later", "reason": reason,
        "details": {"retryAfterSeconds": seconds}, "code": status.as_u16(),
    });
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    Response::from_parts(parts, axum::body::Body::from(body.to_string()))
}

/// The call took longer than its deadline. The request may have been applied.
///
/// The text has full seconds: events whose texts are equal are one event.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {}s", .0.as_millis().div_ceil(1000))]
pub struct DeadlineExceeded(pub Duration);

/// Bounds one API call. After `deadline` the call is dropped.
///
/// # Errors
/// That of the call, or one that [`crate::retry::classify`] reports as unknown.
pub async fn with_deadline<T>(
    deadline: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(Box::new(DeadlineExceeded(deadline)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::{Failure, classify};

    #[tokio::test(start_paused = true)]
    async fn a_call_past_its_deadline_is_of_unknown_outcome() {
        let never = std::future::pending::<kube::Result<()>>();
        let error = with_deadline(Duration::from_secs(3), never).await.unwrap_err();
        assert_eq!(classify(&error), Failure::Unknown);
        assert!(error.to_string().contains("no answer within 3s"), "{error}");
    }

    #[tokio::test]
    async fn a_plain_text_refusal_keeps_its_wait_time() {
        let service = tower::service_fn(|_: http::Request<Body>| async {
            let refusal = Response::builder()
                .status(429)
                .header("retry-after", "7")
                .body(Body::from(b"Too many requests, please try again later.".to_vec()))
                .unwrap();
            Ok::<_, std::convert::Infallible>(keep_retry_after(refusal))
        });
        let client = Client::new(service, "default");
        let error = client.apiserver_version().await.unwrap_err();
        assert_eq!(classify(&error), Failure::Throttled { retry_after: Some(Duration::from_secs(7)) });
    }

    #[tokio::test]
    async fn requests_carry_the_user_agent_and_are_not_repeated_behind_the_callers_back() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let answer = move |headers: http::HeaderMap| async move {
            assert_eq!(headers["user-agent"], "tester/1");
            let version = r#"{"major":"1","minor":"36+","gitVersion":"","gitCommit":"","gitTreeState":"",
                "buildDate":"","goVersion":"","compiler":"","platform":""}"#;
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
                _ => (StatusCode::OK, version),
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/version", axum::routing::get(answer));
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let options = ClientOptions { user_agent: "tester/1".to_owned(), ..ClientOptions::default() };
        install_crypto_provider();
        let client = client_from(Config::new(url.parse().unwrap()), &options).unwrap();
        assert!(ServerVersion::fetch(&client).await.is_err(), "503 is for the caller to judge");
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let version = ServerVersion::fetch(&client).await.unwrap();
        assert_eq!(version, ServerVersion { major: 1, minor: 36 });
        server.abort();
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let options = ClientOptions { kubeconfig: Some("does/not/exist".into()), ..ClientOptions::default() };
        let message = connect(&options).await.err().unwrap().to_string();
        assert!(message.contains("does/not/exist"), "{message}");
    }
}
