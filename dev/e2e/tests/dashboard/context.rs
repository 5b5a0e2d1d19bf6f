//! What the tests share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sluice_e2e::browser::Browser;
use sluice_e2e::build;
use sluice_testbed::{Bed, Program, wait};

/// How long anything may take that should take milliseconds: the machine may be busy with other tests.
pub const SOON: Duration = Duration::from_secs(120);

/// A dashboard that runs.
pub struct Dashboard {
    pub program: Program,
    /// The address that lets one browser in.
    pub entrance: String,
    /// `127.0.0.1` and its port.
    pub address: String,
    /// Below it everything is served.
    root: String,
}

impl Dashboard {
    /// Starts one with a kubeconfig.
    pub async fn start(bed: &Bed, name: &str, kubeconfig: &Path) -> Self {
        let kubeconfig = kubeconfig.display().to_string();
        let arguments = ["dashboard", "--kubeconfig", &kubeconfig].map(str::to_owned);
        let program = bed.program(name, build::sluice().unwrap(), arguments, []).unwrap();
        let opened = || async {
            let log = program.log();
            let line = log.lines().find_map(|line| line.strip_prefix("Open "))?;
            log.contains("Ctrl-C").then(|| line.to_owned())
        };
        let waited = wait::eventually(SOON, opened, "the dashboard to print its address").await;
        let entrance = waited.unwrap_or_else(|error| panic!("{error}: {}", program.log()));
        let address = entrance.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        let root = entrance.split_once("/enter/").unwrap().0.to_owned();
        Self { program, entrance, address, root }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }

    /// The most memory that it has had, in MiB.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1_024
    }

    /// The code and the body of an answer to a request with these headers.
    pub async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = client.request(request.body(Empty::new()).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }
}

/// Writes what the window shows to `SLUICE_SCREENSHOTS`, or beside what is built.
pub async fn screenshot(browser: &Browser, name: &str) {
    let folder = std::env::var_os("SLUICE_SCREENSHOTS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dashboard"), PathBuf::from);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.png")), browser.screenshot().await.unwrap()).unwrap();
}

/// No element of the page was made of a text, no script was run of one, and the browser has nothing to complain about.
pub async fn assert_clean(browser: &Browser) {
    let strangers =
        browser.run("return document.querySelectorAll('main img, main script').length").await.unwrap();
    assert_eq!(strangers, 0);
    assert_eq!(browser.run("return window.pwned === undefined").await.unwrap(), true);
    let said = browser.console().await.unwrap();
    // What the tests break on purpose.
    let is_expected = |line: &&String| line.contains("ERR_CONNECTION") || line.contains("ERR_INCOMPLETE");
    let complaints: Vec<_> = said.iter().filter(|line| !is_expected(line)).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Nothing is wider than the window but what can be scrolled for itself.
pub async fn assert_fits(browser: &Browser) {
    let wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.run(wide).await.unwrap(), 0, "{}", browser.text().await.unwrap());
}
