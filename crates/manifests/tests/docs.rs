//! Commands of docs that a kubelet answers, which no test has: all that they name is in the manifests, and they show what
//! all pods say.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at what is not as it must be"
)]

use std::path::Path;

use serde_json::Value;
use sluice_api::names;
use sluice_manifests::{AskedOfPods, InstallOptions, install_objects, operand_objects};

/// Flags without a value that change nothing here.
const PLAIN: [&str; 4] = ["--prefix", "--ignore-errors", "-s", "--insecure"];

fn deployments() -> Vec<Value> {
    let options = InstallOptions::default();
    let objects = [install_objects(&options), operand_objects(&options, &AskedOfPods::default())].concat();
    objects.into_iter().filter(|object| object["kind"] == "Deployment").collect()
}

/// Words of a line up to the next program of it.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !["|", "&", "&&", ">"].contains(word)).collect()
}

/// A call of kubectl or curl: values by flag, and all other words.
#[derive(Default)]
struct Call<'l> {
    flags: Vec<(&'l str, &'l str)>,
    rest: Vec<&'l str>,
}

impl<'l> Call<'l> {
    fn read(words: &[&'l str]) -> Self {
        let mut call = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some((flag, value)) if word.starts_with("--") => call.flags.push((flag, value)),
                _ if PLAIN.contains(word) || *word == "--previous" => call.flags.push((word, "")),
                _ if word.starts_with('-') => {
                    call.flags.push((word, words.next().copied().unwrap_or_default()));
                }
                _ => call.rest.push(word),
            }
        }
        call
    }

    fn flag(&self, names: &[&str]) -> Option<&'l str> {
        self.flags.iter().find(|(flag, _)| names.contains(flag)).map(|(_, value)| *value)
    }

    /// Flags beside these.
    fn check_flags(&self, known: &[&str]) -> Result<(), String> {
        let strange = self.flags.iter().find(|(flag, _)| !known.contains(flag) && !PLAIN.contains(flag));
        strange.map_or(Ok(()), |(flag, _)| Err(format!("{flag} is not known here")))
    }
}

fn named<'d>(all: &'d [Value], name: &str) -> Result<&'d Value, String> {
    let deployment =
        name.strip_prefix("deployment/").ok_or_else(|| format!("{name} is no deployment/NAME"))?;
    let found = all.iter().find(|it| it["metadata"]["name"] == deployment);
    found.ok_or_else(|| format!("there is no Deployment {deployment}"))
}

/// That whose pods have this label.
fn selected<'d>(all: &'d [Value], selector: &str) -> Result<&'d Value, String> {
    let (key, value) = selector.split_once('=').ok_or_else(|| format!("{selector} is no KEY=VALUE"))?;
    let found: Vec<_> =
        all.iter().filter(|it| it["spec"]["template"]["metadata"]["labels"][key] == value).collect();
    match found.as_slice() {
        [one] => Ok(one),
        others => Err(format!("{} Deployments have pods with {selector}", others.len())),
    }
}

fn containers(deployment: &Value) -> &Vec<Value> {
    deployment["spec"]["template"]["spec"]["containers"].as_array().expect("containers")
}

fn logs(all: &[Value], call: &Call<'_>) -> Result<(), String> {
    let selector = call.flag(&["-l", "--selector"]);
    call.check_flags(&[
        "-n",
        "--namespace",
        "-l",
        "--selector",
        "--tail",
        "--previous",
        "-c",
        "--container",
    ])?;
    let deployment = match (selector, call.rest.as_slice()) {
        (Some(selector), []) => {
            call.flag(&["--tail"]).ok_or("ten lines of each pod: say --tail")?;
            selected(all, selector)?
        }
        (None, [one]) => {
            let deployment = named(all, one)?;
            if deployment["spec"]["replicas"] != 1 {
                return Err("it shows one of several pods: say --selector".to_owned());
            }
            deployment
        }
        _ => return Err("neither deployment/NAME nor --selector".to_owned()),
    };
    match call.flag(&["-c", "--container"]) {
        Some(name) if containers(deployment).iter().all(|it| it["name"] != name) => {
            Err(format!("there is no container {name}"))
        }
        None if containers(deployment).len() > 1 => Err("of which container: say --container".to_owned()),
        _ => Ok(()),
    }
}

/// The local port, and the port of the container behind it.
fn forwarded<'d>(all: &'d [Value], call: &Call<'_>) -> Result<(String, &'d Value), String> {
    call.check_flags(&["-n", "--namespace"])?;
    let [target, ports] = call.rest.as_slice() else { return Err("no target and port".to_owned()) };
    let (local, remote) = ports.split_once(':').unwrap_or((ports, ports));
    let mut known = containers(named(all, target)?).iter().flat_map(|it| it["ports"].as_array()).flatten();
    let port = known.find(|it| it["containerPort"].as_u64() == remote.parse().ok());
    port.map(|port| (local.to_owned(), port)).ok_or_else(|| format!("{target} has no port {remote}"))
}

fn curl(forwarded: &[(String, &Value)], call: &Call<'_>) -> Result<(), String> {
    call.check_flags(&["--header"])?;
    let url = call.rest.last().ok_or("no address")?;
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (host, path) = rest.split_once('/').ok_or("no path")?;
    let (name, port) = host.split_once(':').ok_or("no port")?;
    let (_, port) =
        forwarded.iter().rev().find(|(local, _)| local == port).ok_or("nothing is forwarded there")?;
    let served: (&str, &[&str]) = match port["name"].as_str() {
        Some("admin") => ("http", &[names::PATH_READYZ, names::PATH_HEALTHZ]),
        Some("metrics") => ("https", &[names::PATH_METRICS]),
        other => return Err(format!("nothing is known of port {other:?}")),
    };
    let is_right = ["localhost", "127.0.0.1"].contains(&name)
        && served.0 == scheme
        && served.1.iter().any(|known| known.trim_start_matches('/') == path);
    is_right.then_some(()).ok_or_else(|| format!("{served:?} are served"))
}

/// Checks the commands of a page; how many there are, or what is wrong.
fn check(text: &str) -> Result<usize, String> {
    let (all, mut forwards, mut found) = (deployments(), Vec::new(), 0);
    for line in text.lines() {
        let command = line.strip_prefix("$ ").unwrap_or(line);
        let words = words(command);
        let wrong = |why: String| format!("{command}: {why}");
        let is = |verb: &str| words.first() == Some(&"kubectl") && words.contains(&verb);
        if !is("logs") && !is("port-forward") {
            // Those that ask for something else than what is forwarded are not of a cluster.
            if words.first() == Some(&"curl") && !forwards.is_empty() {
                curl(&forwards, &Call::read(&words[1..])).map_err(wrong)?;
                found += 1;
            }
            continue;
        }
        let verb = if is("logs") { "logs" } else { "port-forward" };
        let mut call = Call::read(&words[1..]);
        call.rest.retain(|word| *word != verb);
        if call.flag(&["-n", "--namespace"]) != Some(names::INSTALL_NAMESPACE) {
            return Err(wrong("not in the namespace of the installation".to_owned()));
        }
        match verb {
            "logs" => logs(&all, &call).map_err(wrong)?,
            _ => forwards.push(forwarded(&all, &call).map_err(wrong)?),
        }
        found += 1;
    }
    Ok(found)
}

#[test]
fn what_docs_ask_kubelets_for_is_in_the_manifests() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut found = 0;
    for folder in [docs.clone(), docs.join("runbooks")] {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).expect("a page");
                found += check(&text).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
            }
        }
    }
    assert!(found >= 12, "{found} commands were found");
}

#[test]
fn what_a_cluster_would_not_know_is_found() {
    let on = "kubectl -n sluice-system";
    let of = "app.kubernetes.io/component=sluice-webhook";
    let forward = format!("{on} port-forward deployment/sluice-controller 8081 &\n");
    let good = [
        format!("$ {on} logs -l {of} --tail=-1 --container=sluice-webhook | grep a"),
        format!("{forward}$ curl -s localhost:8081/readyz"),
        format!(
            "{on} port-forward deployment/sluice-webhook 1:8444 &\ncurl --header \"A\" https://127.0.0.1:1/metrics"
        ),
        "curl -LO https://example.org/a".to_owned(),
    ];
    let said = good.map(|text| check(&text).map_err(|wrong| format!("{text}: {wrong}")));
    assert_eq!(said, [Ok(1), Ok(2), Ok(2), Ok(0)]);
    let bad = [
        (format!("{on} logs deployment/sluice-webhook"), "one of several"),
        (format!("{on} logs -l {of}"), "--tail"),
        (format!("{on} logs -l app=a --tail=1"), "0 Deployments"),
        (format!("{on} logs -l {of} --tail=1 -c webhook"), "no container"),
        (format!("{on} logs -l {of} --tail=1 --lines 3"), "--lines"),
        (format!("kubectl logs -l {of} --tail=1"), "namespace"),
        (format!("{on} logs svc/a"), "no deployment/NAME"),
        (format!("{on} port-forward deployment/controller 8081"), "no Deployment"),
        (format!("{on} port-forward deployment/sluice-webhook 80:8080"), "no port 8080"),
        (format!("{forward}curl localhost:8082/readyz"), "nothing is forwarded"),
        (format!("{forward}curl localhost:8081/ready"), "are served"),
        (format!("{forward}curl https://localhost:8081/readyz"), "are served"),
    ];
    for (text, why) in bad {
        let wrong = check(&text).expect_err(&text);
        assert!(wrong.contains(why), "{wrong}");
    }
}
