//! What is found of a cluster and of what runs in it.

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::names;
use sluice_manifests::uninstall::PART_OF;

use super::about::{self, About, Check};
use super::seen::{
    OTHERS, Reached, Read, Seen, deployment, endpoints, full_name, lease, object, options_map, other, text,
};
use super::{objects, rights, told};

/// A lease that was not renewed for so long is nobody's (seconds): twice the time after which another takes it over.
const STALE_S: i64 = 30;
/// Clocks that differ by more are wrong (seconds): dates of answers are whole seconds, and may be late.
const SKEW_S: i64 = 15;
/// The oldest minor version of Kubernetes 1 that Sluice works with.
const OLDEST_MINOR: u32 = 31;

/// What is found before an installation.
pub fn before(seen: &Seen) -> Vec<Check> {
    vec![version(seen), others(seen)]
}

/// What is found of an installation.
pub fn after(seen: &Seen) -> Vec<Check> {
    let parts = seen.options.naming.parts();
    vec![
        version(seen),
        clocks(seen),
        others(seen),
        objects::definitions(seen),
        options(seen),
        running(seen, &about::OPERATOR, parts.operator),
        running(seen, &about::CONTROLLER, parts.controller),
        running(seen, &about::WEBHOOK, parts.webhook),
        held(seen, &about::OPERATING, names::OPERATOR),
        held(seen, &about::LEADER, names::LEASE),
        service(seen, parts.webhook),
        answers(seen),
        objects::webhooks(seen),
        objects::policies(seen),
        told::gating(seen),
        rights::rights(seen),
        objects::flow(seen),
        told::configuration(seen),
        told::headroom(seen),
        told::quotas(seen),
        told::pauses(seen),
    ]
}

fn version(seen: &Seen) -> Check {
    match &seen.version {
        Ok((major, minor)) if (*major, *minor) >= (1, OLDEST_MINOR) => {
            about::KUBERNETES.good(format!("{major}.{minor}"))
        }
        Ok((major, minor)) => about::KUBERNETES.failed(format!("{major}.{minor}")),
        Err(error) => about::KUBERNETES.unknown(error.clone()),
    }
}

/// No other program gates the same pods or raises the same quotas.
fn others(seen: &Seen) -> Check {
    let mut found = Vec::new();
    for name in OTHERS {
        match seen.items(&other(name), &about::OTHERS) {
            Ok(items) => found.extend(items.iter().filter(|it| !is_own(it)).map(full_name)),
            Err(unknown) => return unknown,
        }
    }
    let faults: Vec<String> = found.iter().map(|name| format!("Deployment {name} is there")).collect();
    about::OTHERS.without(&faults, "none")
}

/// An installation may be found by the names of another program.
fn is_own(object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get(PART_OF)).and_then(Value::as_str) == Some(names::APP)
}

fn options(seen: &Seen) -> Check {
    match (&seen.options_fault, seen.at(&options_map(&seen.namespace))) {
        (Some(fault), _) => about::OPTIONS.failed(fault.clone()),
        (None, Read::Unknown(why)) => {
            about::OPTIONS.unknown(format!("the defaults are taken to hold: {why}"))
        }
        (None, Read::Absent) => about::OPTIONS.good("the defaults"),
        (None, _) => about::OPTIONS.good("can be read"),
    }
}

fn running(seen: &Seen, about: &'static About, name: &str) -> Check {
    object(seen.at(&deployment(&seen.namespace, name)), about, |deployment| {
        let (ready, wanted) = ready(deployment);
        let found = format!("{ready} of {wanted} ready");
        if ready >= wanted && wanted > 0 { Ok(found) } else { Err(found) }
    })
}

/// How many pods are ready, of how many.
fn ready(deployment: &Value) -> (u64, u64) {
    let number = |pointer| deployment.pointer(pointer).and_then(Value::as_u64);
    (number("/status/readyReplicas").unwrap_or(0), number("/spec/replicas").unwrap_or(1))
}

fn renewed(lease: &Value) -> Option<Timestamp> {
    text(lease, "/spec/renewTime").parse().ok()
}

/// Somebody holds a lease and renews it.
fn held(seen: &Seen, about: &'static About, name: &str) -> Check {
    object(seen.at(&lease(&seen.namespace, name)), about, |lease| {
        let holder = text(lease, "/spec/holderIdentity");
        if holder.is_empty() {
            return Err("none".to_owned());
        }
        let age = renewed(lease).map_or(i64::MAX, |renewed| seen.now.duration_since(renewed).as_secs());
        if age > STALE_S { Err(format!("{holder}, not renewed for {age} s")) } else { Ok(holder.to_owned()) }
    })
}

/// Holders of leases write the time by their clocks. One that is behind looks like one that does not renew.
fn clocks(seen: &Seen) -> Check {
    let leases = [names::LEASE, names::OPERATOR];
    let ahead = leases.map(|name| match seen.at(&lease(&seen.namespace, name)) {
        Read::Is(lease) => renewed(lease).map(|at| at.duration_since(seen.now).as_secs()),
        _ => None,
    });
    let known: Vec<i64> = ahead.into_iter().flatten().collect();
    match known.iter().max() {
        None => about::CLOCKS.unknown("no lease was renewed"),
        Some(most) if *most > SKEW_S => about::CLOCKS
            .failed(format!("the clock of a node is {most} s ahead of that of the API server, by its lease")),
        Some(_) => about::CLOCKS.good("none is ahead of the API server's"),
    }
}

/// The Service of the webhook leads to a pod. Without a ready pod it cannot.
fn service(seen: &Seen, name: &str) -> Check {
    let about = &about::SERVICE;
    if let Read::Is(deployment) = seen.at(&deployment(&seen.namespace, name))
        && ready(deployment).0 == 0
    {
        return about.unknown("no pod is ready");
    }
    let slices = match seen.items(&endpoints(&seen.namespace, name), about) {
        Ok(slices) => slices,
        Err(unknown) => return unknown,
    };
    let all = slices.iter().filter_map(|slice| slice.get("endpoints")?.as_array()).flatten();
    let is_ready = |it: &&Value| it.pointer("/conditions/ready").and_then(Value::as_bool).unwrap_or(true);
    match all.filter(is_ready).count() {
        0 => about.failed("no endpoints"),
        ready => about.good(format!("{ready} endpoints")),
    }
}

fn answers(seen: &Seen) -> Check {
    match &seen.reached {
        Reached::Yes(took) => about::ANSWERS.good(format!("in {took} ms")),
        Reached::No(why) => about::ANSWERS.failed(why.clone()),
        Reached::Unknown(why) => about::ANSWERS.unknown(why.clone()),
    }
}
