//! Specs of quotas: the verdict and the named fields against a dry-run create of a ResourceQuota.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_e2e::random::Random;
use sluice_engine::quota_spec::{FieldError, validate};
use sluice_engine::{Amount, Quantity, RawQuotaSpec, ScopeRequirementText};

use crate::differential::quantities::{
    any_text, echo_difference, is_beyond_our_limits, mostly_legal_text, stored,
};
use crate::differential::report::Report;
use crate::differential::server::{ApiResult, Server};

const LEGAL: [&str; 34] = [
    "pods",
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "requests.storage",
    "services",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
    "replicationcontrollers",
    "resourcequotas",
    "hugepages-2Mi",
    "requests.hugepages-1Gi",
    "hugepages-",
    "count/pods",
    "count/deployments.apps",
    "requests.nvidia.com/gpu",
    "nvidia.com/gpu",
    "limits.nvidia.com/gpu",
    "example.com/Foo_Bar",
    "kubernetes.io/foo",
    "gold.storageclass.storage.k8s.io/requests.storage",
    "gpu.deviceclass.resource.k8s.io/devices",
    "requests.deviceclass.resource.kubernetes.io/x",
    "instances/vmi",
    "requests.cpu/vmi",
];

const ILLEGAL: [&str; 24] = [
    "",
    "storage",
    "limits.storage",
    "Pods",
    "requests.",
    "requests.pods",
    "limits.pods",
    "gpu",
    "a/b/c",
    "/x",
    "x/",
    "-x/y",
    "x-/y",
    "Example.com/x",
    "example..com/x",
    "example.com/-x",
    "foo bar",
    "cpu ",
    "limits.hugepages-2Mi",
    "hugepages-a_",
    "hugepages-é",
    "requests.foo",
    "count",
    "a\"b\\c",
];

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// An amount as it is sent.
struct Sent {
    key: String,
    text: String,
    /// As a JSON number.
    bare: bool,
}

/// A spec as it is sent. Written as text, for objects cannot hold a name twice.
struct Case {
    hard: Vec<Sent>,
    scopes: Option<Vec<String>>,
    /// A selector may be there without expressions.
    selector: Option<Option<Vec<ScopeRequirementText>>>,
}

fn key(random: &mut Random) -> String {
    match random.below(100) {
        0..88 => random.pick(&LEGAL).to_owned(),
        88..97 => random.pick(&ILLEGAL).to_owned(),
        97 => format!("example.com/{}", "n".repeat(random.pick(&[63, 64]))),
        // 245 letters and `requests.` are 254: one too many for an extended resource.
        98 => format!("{}/x", "d".repeat(random.pick(&[63, 244, 245, 253, 254]))),
        _ => "x".repeat(random.pick(&[63, 64, 300])),
    }
}

/// Keys of limits that all the pod scopes allow, so that scopes have a chance to be accepted.
fn scoped_key(random: &mut Random) -> String {
    random
        .pick(&["pods", "pods", "pods", "cpu", "limits.memory", "requests.example.com/x", "count/pods"])
        .to_owned()
}

fn scope(random: &mut Random) -> String {
    if random.chance(96) { random.pick(&SCOPES) } else { random.pick(&["", "terminating", "Unknown", "Pod"]) }
        .to_owned()
}

fn requirement(random: &mut Random) -> ScopeRequirementText {
    let scope_name = if random.chance(40) { "PriorityClass".to_owned() } else { scope(random) };
    let operator = if matches!(scope_name.as_str(), "PriorityClass" | "VolumeAttributesClass") {
        random.pick(&["In", "NotIn", "Exists", "DoesNotExist", "Gt"])
    } else {
        random.pick(&["Exists", "Exists", "Exists", "In", "DoesNotExist", "", "exists"])
    };
    let fits = matches!(operator, "In" | "NotIn");
    let count = if random.chance(85) { usize::from(fits) * (1 + random.below(3)) } else { random.below(3) };
    let values = random.several(&["low", "high", "low", "", "not a label!", "UPPER"], count);
    ScopeRequirementText {
        scope_name,
        operator: operator.to_owned(),
        values: values.into_iter().map(str::to_owned).collect(),
    }
}

impl Case {
    fn generate(random: &mut Random) -> Self {
        let with_scopes = random.chance(60);
        let many = random.pick(&[0, 1, 1, 2, 3, 6]);
        let legal_only = random.chance(60);
        let hard = (0..many).map(|_| {
            let key = if with_scopes && random.chance(75) { scoped_key(random) } else { key(random) };
            let text = if legal_only { random.between(0, 9).to_string() } else { mostly_legal_text(random) };
            let text = if random.chance(2) { any_text(random) } else { text };
            let bare = random.chance(15) && serde_json::from_str::<serde_json::Number>(&text).is_ok();
            Sent { key, text, bare }
        });
        let hard = hard.collect();
        let scopes = (with_scopes && random.chance(60)).then(|| {
            let count = random.pick(&[0, 1, 1, 1, 2, 3]);
            (0..count).map(|_| scope(random)).collect()
        });
        let selector = (with_scopes && random.chance(60)).then(|| {
            let count = random.pick(&[0, 1, 1, 1, 2, 3]);
            random.chance(95).then(|| (0..count).map(|_| requirement(random)).collect())
        });
        Self { hard, scopes, selector }
    }

    fn body(&self) -> String {
        let hard = self.hard.iter().map(|sent| {
            let text = if sent.bare { sent.text.clone() } else { json!(sent.text).to_string() };
            format!("{}:{text}", json!(sent.key))
        });
        let mut spec = format!("\"hard\":{{{}}}", hard.collect::<Vec<_>>().join(","));
        if let Some(scopes) = &self.scopes {
            spec.push_str(&format!(",\"scopes\":{}", json!(scopes)));
        }
        if let Some(expressions) = &self.selector {
            let expressions = expressions.as_ref().map(|expressions| {
                let one = |r: &ScopeRequirementText| {
                    json!({"scopeName": r.scope_name, "operator": r.operator, "values": r.values})
                };
                expressions.iter().map(one).collect::<Vec<Value>>()
            });
            spec.push_str(&format!(",\"scopeSelector\":{}", json!({"matchExpressions": expressions})));
        }
        format!("{{\"metadata\":{{\"name\":\"q\"}},\"spec\":{{{spec}}}}}")
    }

    fn ours(&self) -> Ours {
        let mut hard = BTreeMap::new();
        let mut unreadable = false;
        for sent in &self.hard {
            match Quantity::parse_json_text(&sent.text) {
                Ok(amount) => drop(hard.insert(sent.key.clone(), amount)),
                Err(error) if is_beyond_our_limits(error) => return Ours::BeyondOurLimits,
                Err(_) => unreadable = true,
            }
        }
        if unreadable {
            return Ours::Unreadable;
        }
        if hard.values().any(|amount| Amount::from(*amount) > Amount::LIMIT) {
            return Ours::BeyondOurLimits;
        }
        let scope_selector = self.selector.clone().map(Option::unwrap_or_default);
        let spec = RawQuotaSpec { hard, scopes: self.scopes.clone().unwrap_or_default(), scope_selector };
        Ours::Read(validate(&spec), spec)
    }
}

enum Ours {
    /// An amount is no quantity: the server cannot decode the object.
    Unreadable,
    /// We have limits that Kubernetes does not have.
    BeyondOurLimits,
    Read(Vec<FieldError>, RawQuotaSpec),
}

/// The server's test for whole numbers goes wrong where thousandths leave 64 bits (`docs/quota-semantics.md`,
/// *Validation*), and it sees amounts after they were rounded to thousandths.
fn is_misjudged(spec: &RawQuotaSpec, field: &str, rule: &str) -> bool {
    let key = field.strip_prefix("spec.hard[").and_then(|rest| rest.strip_suffix(']'));
    let amount = key.and_then(|key| spec.hard.get(key));
    rule.contains("must be an integer")
        && amount.is_some_and(|amount| {
            stored(*amount).is_integer() || amount.nanos().abs() / 1_000_000 > i128::from(i64::MAX)
        })
}

pub async fn compare(server: &Server, report: &Report, path: &str, random: &mut Random) {
    let case = Case::generate(random);
    let body = case.body();
    let theirs = server.create(path, body.clone(), true).await;
    match case.ours() {
        Ours::BeyondOurLimits => report.passed_over("spec: beyond our limits"),
        Ours::Unreadable => match &theirs {
            Err(refusal) if refusal.code == 400 => report.agreed("spec: both unreadable"),
            _ => report
                .disagreed(&format!("spec {body}\n  ours: an amount is unreadable\n  theirs: {theirs:?}")),
        },
        Ours::Read(errors, spec) => compare_verdicts(&case, &body, &errors, &spec, &theirs, report),
    }
}

fn compare_verdicts(
    case: &Case,
    body: &str,
    errors: &[FieldError],
    spec: &RawQuotaSpec,
    theirs: &ApiResult,
    report: &Report,
) {
    let ours = errors.iter().filter(|error| !is_misjudged(spec, &error.field, &error.detail));
    let ours: BTreeSet<&str> = ours.map(|error| error.field.as_str()).collect();
    let named: BTreeSet<&str> = match theirs {
        Ok(_) => BTreeSet::new(),
        Err(refusal) if refusal.code == 422 => {
            let causes = refusal.causes.iter().filter(|(field, rule)| !is_misjudged(spec, field, rule));
            causes.map(|(field, _)| field.as_str()).collect()
        }
        Err(refusal) => {
            return report.disagreed(&format!("spec {body}\n  ours: {errors:?}\n  theirs: {refusal}"));
        }
    };
    if ours != named {
        let text = theirs.as_ref().err().map(ToString::to_string);
        return report.disagreed(&format!(
            "spec {body}\n  ours: {ours:?} {errors:?}\n  theirs: {named:?} {}",
            text.as_deref().unwrap_or("accepted")
        ));
    }
    match theirs {
        _ if ours.is_empty() && theirs.is_ok() != errors.is_empty() => {
            report.passed_over("spec: the server misjudges what is a whole number");
        }
        Err(_) => report.agreed("spec: both refuse, same fields"),
        Ok(answer) => match echo_differences(case, spec, answer).as_slice() {
            [] => report.agreed("spec: both accept"),
            differences => report.disagreed(&format!("spec {body}\n  {}", differences.join("\n  "))),
        },
    }
}

fn echo_differences(case: &Case, spec: &RawQuotaSpec, answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let sent: BTreeMap<&str, &str> =
        case.hard.iter().map(|sent| (sent.key.as_str(), sent.text.as_str())).collect();
    let differences = spec.hard.iter().filter_map(|(key, amount)| {
        let text = sent[key.as_str()];
        match answer["spec"]["hard"][key].as_str() {
            Some(echoed) => {
                echo_difference(text, *amount, echoed).map(|difference| format!("{key}: {difference}"))
            }
            None => Some(format!("{key}: not in the server's answer")),
        }
    });
    differences.collect()
}
