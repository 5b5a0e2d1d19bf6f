//! The decision: which VMs leave a node at once, which after others, and which do not.
//!
//! KubeVirt chooses in which order VMs move, and how many at a time. So *now* is said of a VM whose next pod has room beside
//! those of all others of the node, *stuck* of one whose next pod has none after all that ends by itself has ended, and *in
//! turn* of the rest: whatever the order, no VM that goes now is refused, and none that is stuck goes.

use sluice_engine::headroom::{Budget, Plan, plan as plan_quotas, sentence};
use sluice_engine::quantity::NANOS_PER_UNIT;
use sluice_engine::{Amount, Format, Quantity};

use super::predicted::{Others, Predicted};
use super::row::{IN_TURN, NOW, Row, STUCK};
use crate::cli::headroom::{Goes, Verdict};

/// Of a node with more VMs it is not said for how many others one waits, which is the square of their number to find out.
const MOST_COUNTED: usize = 50;

/// What quotas say about the next pod of a VM.
struct Judged {
    native: Verdict,
    /// `None`: Sluice's quotas are not about it.
    own: Option<Plan>,
    /// Some ResourceQuota is about it.
    is_governed: bool,
}

impl Judged {
    fn goes(&self) -> Goes {
        let native = self.native.goes();
        let own = match &self.own {
            None | Some(Plan::Fits { .. }) => Goes::Now,
            Some(_) => Goes::Never,
        };
        if native == Goes::Never || own == Goes::Now { native } else { own }
    }

    fn told(&self, vm: &str) -> (&'static str, String) {
        match &self.own {
            Some(Plan::NotEnough(shortages)) if self.native.goes() != Goes::Never => {
                let lacks = sentence("of a drain", vm, shortages).replace("; head-room grants nothing", "");
                ("QuotaExceeded", format!("its next pod would wait at the gate: {lacks}"))
            }
            _ => self.native.told("of a drain", vm),
        }
    }
}

/// Tells of each VM of the node.
pub(super) fn plan(observed: &mut Predicted) -> Vec<Row> {
    let mut rows = observed.settled();
    observed.assume(&Others::Ended);
    let all: Vec<(usize, Judged)> =
        observed.moving().into_iter().map(|vm| (vm, judge(observed, vm))).collect();
    // One that ResourceQuotas never let in takes no room of others.
    let moving: Vec<usize> =
        all.iter().filter(|(_, alone)| alone.native.goes() != Goes::Never).map(|(vm, _)| *vm).collect();
    for (vm, alone) in all {
        let others: Vec<usize> = moving.iter().copied().filter(|other| *other != vm).collect();
        observed.assume(&Others::Moving(others.clone()));
        let beside = judge(observed, vm);
        let (result, shown) = match (alone.goes(), beside.goes()) {
            (Goes::Never, _) => (STUCK, alone),
            (_, Goes::Now) => (NOW, beside),
            _ => (IN_TURN, beside),
        };
        let (reason, mut message) = shown.told(observed.name(vm));
        if result == IN_TURN {
            let counted = if others.len() > MOST_COUNTED { None } else { waits_for(observed, vm, &others) };
            message = match counted {
                _ if others.len() > MOST_COUNTED => format!("waits for others of this node: {message}"),
                Some(0) | None => format!("once something else has ended: {message}"),
                Some(1) => format!("waits for 1 other of this node: {message}"),
                Some(count) => format!("waits for {count} others of this node: {message}"),
            };
        }
        rows.push(Row {
            namespace: observed.namespace(vm).to_owned(),
            vm: observed.name(vm).to_owned(),
            native: native(&shown),
            sluice: own(&shown, observed.counts_machines(vm)),
            headroom: headroom(&shown),
            result,
            reason,
            message,
        });
    }
    rows.sort_by(|a, b| (&a.namespace, &a.vm).cmp(&(&b.namespace, &b.vm)));
    rows
}

/// How many others have to be gone first at most; `None`: it does not go now even alone.
fn waits_for(observed: &mut Predicted, vm: usize, others: &[usize]) -> Option<usize> {
    let mut beside = Vec::new();
    observed.assume(&Others::Moving(Vec::new()));
    if judge(observed, vm).goes() != Goes::Now {
        return None;
    }
    for other in others {
        beside.push(*other);
        observed.assume(&Others::Moving(beside.clone()));
        if judge(observed, vm).goes() != Goes::Now {
            beside.pop();
        }
    }
    Some(others.len().saturating_sub(beside.len()))
}

fn judge(observed: &Predicted, vm: usize) -> Judged {
    let Some((namespace, need)) = observed.need(vm) else {
        // Those of which nothing is known do not move.
        let fits = Plan::Fits { tight: false };
        return Judged { native: Verdict::granted(fits), own: None, is_governed: false };
    };
    let quotas = observed.cluster().quotas_in(namespace);
    Judged {
        native: observed.verdict(namespace, need),
        own: observed
            .own(vm)
            .filter(|quotas| !quotas.is_empty())
            .map(|quotas| plan_quotas(need, &quotas, &Budget::default())),
        is_governed: quotas.iter().any(|quota| quota.governs(&need.facts)),
    }
}

fn native(shown: &Judged) -> &'static str {
    match &shown.native.plan {
        _ if !shown.is_governed => "none",
        Plan::Fits { .. } => "room",
        Plan::Raise(_) | Plan::NotEnough(_) => "full",
        Plan::Refused(_) => "refuses",
    }
}

fn own(shown: &Judged, counts_machines: bool) -> &'static str {
    match &shown.own {
        None if counts_machines => "not charged",
        None => "-",
        Some(Plan::Fits { .. }) => "room",
        Some(_) => "full",
    }
}

fn headroom(shown: &Judged) -> String {
    if shown.native.unproven().is_some() {
        return "not proven".to_owned();
    }
    match &shown.native.plan {
        Plan::Fits { .. } => "-".to_owned(),
        Plan::Raise(raises) => {
            let keys = raises.iter().flat_map(|raise| &raise.keys).map(|raised| {
                let more = Amount::from(raised.to).saturating_sub(Amount::from(raised.from));
                format!("{} {}", raised.key, short(&raised.key, more.quantity(raised.from.format())))
            });
            let source = shown.native.source.as_deref().unwrap_or("about to be written");
            format!("{source}: {}", keys.collect::<Vec<_>>().join(", "))
        }
        Plan::NotEnough(shortages) => {
            let lacks: Vec<String> = shortages
                .iter()
                .map(|lack| format!("{} short by {}", lack.key, short(&lack.key, lack.missing)))
                .collect();
            let source = shortages.first().and_then(|lack| lack.source.as_deref()).unwrap_or("none granted");
            format!("{source}: {}", lacks.join(", "))
        }
        Plan::Refused(_) => "of no help".to_owned(),
    }
}

/// An amount as it is read in a table: of bytes whole mebibytes, the next that are enough. Sentences have it exactly.
fn short(key: &str, amount: Quantity) -> String {
    const MEBIBYTE: i128 = 1024 * 1024 * NANOS_PER_UNIT;
    let is_of_bytes = ["memory", "storage", "hugepages-"].iter().any(|word| key.contains(word));
    match amount.nanos() {
        nanos if is_of_bytes && nanos > MEBIBYTE => {
            Quantity::from_nanos((nanos + MEBIBYTE - 1) / MEBIBYTE * MEBIBYTE, Format::BinarySi).to_string()
        }
        _ => amount.to_string(),
    }
}
