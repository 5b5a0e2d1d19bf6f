//! Pages of `sluice dashboard` without a browser: what they say.

use std::path::Path;
use std::time::Instant;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sluice_e2e::build;
use sluice_testbed::{Bed, Component, Program, wait};

use crate::context::{SOON, idle_bed};

/// `sluice dashboard`, and the cookie of who has come in.
pub struct Pages {
    program: Program,
    /// Below it everything is served.
    root: String,
    cookie: String,
}

impl Pages {
    /// Of a bundle, by a machine that knows no cluster.
    pub async fn of_bundle(bed: &Bed, bundle: &Path) -> Self {
        Self::start(bed, "--from", bundle).await
    }

    /// Of the bed.
    pub async fn of_bed(bed: &Bed) -> Self {
        Self::start(bed, "--kubeconfig", bed.admin_kubeconfig()).await
    }

    async fn start(bed: &Bed, flag: &str, path: &Path) -> Self {
        let arguments = ["dashboard".to_owned(), flag.to_owned(), path.display().to_string()];
        let nowhere = [("KUBECONFIG".to_owned(), "/dev/null".to_owned())];
        let program = bed.program("dashboard", build::sluice().unwrap(), arguments, nowhere).unwrap();
        let opened = || async {
            let log = program.log();
            let line = log.lines().find_map(|line| line.strip_prefix("Open "))?;
            log.contains("Ctrl-C").then(|| line.to_owned())
        };
        let entrance = wait::eventually(SOON, opened, "the page to print its address").await.unwrap();
        let (root, token) = entrance.split_once("/enter/").unwrap();
        let mut pages = Self { program, root: root.to_owned(), cookie: String::new() };
        let (code, cookie, _) = pages.ask(&format!("/enter/{token}")).await;
        assert_eq!(code, 303);
        pages.cookie = cookie.split(';').next().unwrap().to_owned();
        pages
    }

    /// Code, cookie and body of an answer.
    async fn ask(&self, path: &str) -> (u16, String, String) {
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let request = Request::builder()
            .method(Method::GET)
            .uri(format!("{}{path}", self.root))
            .header("cookie", &self.cookie)
            .body(Empty::new())
            .unwrap();
        let answer = client.request(request).await.unwrap();
        let code = answer.status().as_u16();
        let cookie =
            answer.headers().get("set-cookie").map_or("", |value| value.to_str().unwrap()).to_owned();
        // A stream of changes has no end: its first part has all sections.
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            text.extend(frame.unwrap().into_data().unwrap_or_default());
            if path.starts_with("/changes") && text.ends_with(b"\n\n") {
                break;
            }
        }
        (code, cookie, String::from_utf8(text).unwrap())
    }

    /// A page, as it is once what was asked is answered.
    pub async fn page(&self, path: &str) -> String {
        let (code, _, page) = self.ask(path).await;
        assert_eq!(code, 200, "{path}: {page}");
        let (code, _, changes) = self.ask(&format!("/changes{path}")).await;
        assert_eq!(code, 200, "{path}: {changes}");
        format!("{page}{changes}")
    }

    pub async fn end(self) {
        self.program.terminate();
        assert_eq!(self.program.wait().await.code, 0, "{}", self.program.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_stands_still_is_told_and_so_is_that_it_goes_on() {
    let bed = idle_bed().await;
    let pages = Pages::of_bed(&bed).await;
    let until = async |is_live: bool| {
        let shown = || async { (pages.page("/").await.contains("Not live since ") != is_live).then_some(()) };
        wait::eventually(SOON, shown, &format!("the page to be live: {is_live}")).await.unwrap();
    };
    until(true).await;
    bed.pause(Component::ApiServer);
    let stopped = Instant::now();
    until(false).await;
    eprintln!("the banner comes {:?} after the API server stands still", stopped.elapsed());
    bed.resume(Component::ApiServer);
    until(true).await;
    pages.end().await;
}
