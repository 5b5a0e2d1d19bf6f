//! `/healthz` and `/readyz`, for an admin port.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;
use parking_lot::RwLock;

/// What a check says: `Err` holds what is missing, in words for a human.
pub type CheckResult = Result<(), String>;

type Check = Arc<dyn Fn() -> CheckResult + Send + Sync>;
type Detail = Arc<dyn Fn() -> String + Send + Sync>;

/// Named checks. Cheap to clone; clones share the checks.
#[derive(Clone, Default)]
pub struct Checks {
    named: Arc<RwLock<BTreeMap<String, Check>>>,
    details: Arc<RwLock<BTreeMap<String, Detail>>>,
}

impl std::fmt::Debug for Checks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.named.read().keys()).finish()
    }
}

impl Checks {
    /// Adds a check, or replaces the one with this name. It runs on each probe, so it must be quick and must not block.
    pub fn add(&self, name: impl Into<String>, check: impl Fn() -> CheckResult + Send + Sync + 'static) {
        self.named.write().insert(name.into(), Arc::new(check));
    }

    /// Adds something that is shown and never fails. It runs on each probe, so it must be quick and must not block.
    pub fn tell(&self, name: impl Into<String>, detail: impl Fn() -> String + Send + Sync + 'static) {
        self.details.write().insert(name.into(), Arc::new(detail));
    }

    fn respond(&self) -> (StatusCode, String) {
        // Copied, because a check may take its time, and may add another.
        let (named, details) = (self.named.read().clone(), self.details.read().clone());
        let (mut text, mut ready) = (String::new(), true);
        for (name, check) in named {
            let _ = match check() {
                Ok(()) => writeln!(text, "[+] {name} ok"),
                Err(missing) => {
                    ready = false;
                    writeln!(text, "[-] {name}: {missing}")
                }
            };
        }
        for (name, detail) in details {
            let _ = writeln!(text, "[i] {name}: {}", detail());
        }
        text.push_str(if ready { "ok\n" } else { "not ready\n" });
        (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
    }
}

/// The state behind the admin routes.
#[derive(Debug, Clone, Default)]
pub struct Admin {
    /// Fails only when a restart would help.
    pub live: Checks,
    /// Fails until this process can do its work.
    pub ready: Checks,
}

/// Routes `/healthz` and `/readyz`.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(|State(admin): State<Admin>| async move { admin.live.respond() }))
        .route("/readyz", get(|State(admin): State<Admin>| async move { admin.ready.respond() }))
        .with_state(admin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tower::ServiceExt;

    async fn get_text(admin: &Admin, path: &str) -> (StatusCode, String) {
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = router(admin.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let admin = Admin::default();
        let synced = Arc::new(AtomicBool::new(false));
        let seen = synced.clone();
        admin.ready.add("pods", move || {
            if seen.load(Ordering::Relaxed) { Ok(()) } else { Err("first list not finished".to_owned()) }
        });
        admin.ready.add("certificate", || Ok(()));
        let (status, text) = get_text(&admin, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "[+] certificate ok\n[-] pods: first list not finished\nnot ready\n");
        assert_eq!(get_text(&admin, "/healthz").await.0, StatusCode::OK, "not ready is not dead");
        synced.store(true, Ordering::Relaxed);
        admin.ready.tell("gate", || "fine".to_owned());
        let (status, text) = get_text(&admin, "/readyz").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(text, "[+] certificate ok\n[+] pods ok\n[i] gate: fine\nok\n");
    }
}
