//! Debian's Chromium without a screen, driven by WebDriver (<https://www.w3.org/TR/webdriver2/>).
//!
//! The few commands that the tests need, over the HTTP client that is there: the crate for it, fantoccini, would bring a
//! second version of a dozen crates.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use sluice_testbed::debian::{Chromium, chromium};
use sluice_testbed::{Bed, Program, ports, wait};

/// How long the driver may take to start, and one command.
const SOON: Duration = Duration::from_secs(60);

/// A browser with one window or more.
pub struct Browser {
    _driver: Program,
    client: Client<HttpConnector, Full<Bytes>>,
    driver: String,
    session: String,
}

impl Browser {
    /// Starts one; it ends with the test.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub async fn start(bed: &Bed) -> anyhow::Result<Self> {
        let Chromium { browser, driver, environment } = tokio::task::spawn_blocking(chromium).await??;
        let port = ports::free()?;
        let program = bed.program("chromedriver", driver, [format!("--port={port}")], environment)?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let driver = format!("http://127.0.0.1:{port}");
        let mut started = Self { _driver: program, client, driver, session: String::new() };
        let ready = || async {
            let status = started.send(Method::GET, "/status", &Value::Null).await.ok()?;
            status.get("ready").is_some_and(|ready| *ready == true).then_some(())
        };
        wait::eventually(SOON, ready, "chromedriver to be ready").await?;
        let profile = format!("--user-data-dir={}", bed.dir().join("chromium").display());
        let arguments = [
            "--headless=new",
            // The pages are our own, and tests may run as root.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            // A name that somebody else has given an address of this machine.
            "--host-resolver-rules=MAP evil.example 127.0.0.1",
            &profile,
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "unhandledPromptBehavior": "ignore",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "binary": browser, "args": arguments },
        } } });
        let session = started.send(Method::POST, "/session", &capabilities).await?;
        let id = session.get("sessionId").and_then(Value::as_str).context("the session has no id")?;
        started.session = id.to_owned();
        Ok(started)
    }

    /// Opens an address, and waits until the page is loaded.
    ///
    /// # Errors
    /// When it cannot be.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        self.command("/url", &json!({ "url": url })).await.map(drop)
    }

    /// What a script returns.
    ///
    /// # Errors
    /// When it throws.
    pub async fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.command("/execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// The text of the page as a reader sees it.
    ///
    /// # Errors
    /// When there is none.
    pub async fn text(&self) -> anyhow::Result<String> {
        let text = self.run("return document.body.innerText").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the page has a text.
    ///
    /// # Errors
    /// When it does not get it; the error has the text that there is.
    pub async fn until_text(&self, wanted: &str) -> anyhow::Result<()> {
        self.until(&format!("document.body.innerText.includes({})", json!(wanted)), wanted).await
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// When it does not get so; the error has the text of the page.
    pub async fn until(&self, expression: &str, what: &str) -> anyhow::Result<()> {
        let script = format!("return {expression}");
        let is_so = || async { (self.run(&script).await.ok()? == true).then_some(()) };
        let waited = wait::eventually(SOON, is_so, what).await;
        if waited.is_err() {
            return waited
                .with_context(|| format!("the page does not get so: {what}"))
                .context(self.text().await?);
        }
        waited
    }

    /// The sides of the window's content in CSS pixels, and whether the reader likes it dark.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn show(&self, width: u32, height: u32, is_dark: bool) -> anyhow::Result<()> {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics).await?;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &media).await
    }

    async fn devtools(&self, command: &str, parameters: &Value) -> anyhow::Result<()> {
        self.command("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters })).await.map(drop)
    }

    /// The window's content as a PNG.
    ///
    /// # Errors
    /// When there is none.
    pub async fn screenshot(&self) -> anyhow::Result<Vec<u8>> {
        let image =
            self.send(Method::GET, &format!("/session/{}/screenshot", self.session), &Value::Null).await?;
        Ok(STANDARD.decode(image.as_str().context("a screenshot is a text")?)?)
    }

    /// Opens another tab, in which all commands are from now on; its handle.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn new_tab(&self) -> anyhow::Result<String> {
        let window = self.command("/window/new", &json!({ "type": "tab" })).await?;
        let handle =
            window.get("handle").and_then(Value::as_str).context("the tab has no handle")?.to_owned();
        self.tab(&handle).await?;
        Ok(handle)
    }

    /// The handle of the tab in which commands are.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn this_tab(&self) -> anyhow::Result<String> {
        let handle =
            self.send(Method::GET, &format!("/session/{}/window", self.session), &Value::Null).await?;
        Ok(handle.as_str().unwrap_or_default().to_owned())
    }

    /// All commands are in this tab from now on.
    ///
    /// # Errors
    /// When there is none.
    pub async fn tab(&self, handle: &str) -> anyhow::Result<()> {
        self.command("/window", &json!({ "handle": handle })).await?;
        self.devtools("Page.bringToFront", &json!({})).await
    }

    /// What the console has said since the last call: errors of scripts, and what the content security policy has refused.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn console(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.command("/se/log", &json!({ "type": "browser" })).await?;
        let message =
            |entry: &Value| entry.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(entries.as_array().into_iter().flatten().map(message).collect())
    }

    /// Ends the browser.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn close(self) -> anyhow::Result<()> {
        self.send(Method::DELETE, &format!("/session/{}", self.session), &Value::Null).await.map(drop)
    }

    async fn command(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::POST, &format!("/session/{}{path}", self.session), body).await
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(serde_json::to_vec(body)?) };
        let request = Request::builder().method(method).uri(format!("{}{path}", self.driver));
        let request = request.header("content-type", "application/json").body(Full::new(bytes))?;
        let asked = async {
            let response = self.client.request(request).await?;
            let code = response.status();
            anyhow::Ok((code, response.into_body().collect().await?.to_bytes()))
        };
        let (code, bytes) =
            tokio::time::timeout(SOON, asked).await.with_context(|| format!("{path}: no answer"))??;
        let mut answer: Value = serde_json::from_slice(&bytes).with_context(|| format!("{path}: no JSON"))?;
        let value = answer.get_mut("value").map(Value::take).unwrap_or_default();
        ensure!(code.is_success(), "{path}: {code}: {value}");
        Ok(value)
    }
}
