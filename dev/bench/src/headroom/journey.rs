//! One migration from its creation to the end of its window, read from the audit log.

use jiff::Timestamp;

use sluice_api::names;
use sluice_e2e::audit::{AuditEventExt as _, MarkWrite};
use sluice_testbed::audit::AuditEvent;

use super::between_ms;

const MIGRATIONS: &str = "virtualmachineinstancemigrations";

/// The parts of a journey, in their order. Each ends with the answer to the request it is named after, if it is named
/// after one, and else with the first request of the next one.
pub(super) const STEPS: [&str; 7] = [
    "virt-controller sends the target",
    "API server asks the webhook, which sends reads",
    "what is granted is read",
    "raise",
    "settle: dry runs denied",
    "target charged, restore sent",
    "restore",
];

/// How long a step took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Step {
    /// From the end of the step before.
    pub(super) ms: f64,
    /// What of it the API server worked on our requests.
    pub(super) server_ms: f64,
    /// Our requests.
    pub(super) requests: usize,
}

/// The window of a migration: its namespace is locked and a quota is raised.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    /// From the answer to the first raise to the answer to the last restore.
    pub(super) open_ms: f64,
    /// Of each of [`STEPS`].
    pub(super) steps: [Step; STEPS.len()],
}

/// What a migration went through.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Journey {
    /// From the answer that the migration exists to the answer that its target pod does.
    pub(super) target_ms: f64,
    /// How often the target was refused.
    pub(super) rejected: usize,
    pub(super) window: Option<Window>,
}

impl Journey {
    /// Follows the migration of this uid through the requests of its namespace, which are in the order in which they were
    /// answered, and where one migration came after the other. `None` if its target never came to be.
    pub(super) fn read(requests: &[&AuditEvent], uid: &str) -> Option<Self> {
        let mut targets = requests.iter().filter(|it| it.is_target() && it.migration() == Some(uid));
        let rejected = targets.clone().filter(|it| !it.succeeded()).count();
        let first = targets.clone().map(|it| it.received).min()?;
        let target = targets.find(|it| it.succeeded())?;
        // The log does not tell the generated name of what is created: it is the last one before the first attempt.
        let asked = requests
            .iter()
            .rfind(|it| it.is("create", MIGRATIONS) && it.succeeded() && it.received <= first)?
            .answered;
        Some(Self {
            target_ms: between_ms(asked, target.answered),
            rejected,
            window: Window::read(requests, asked, target),
        })
    }
}

impl Window {
    /// The window that was open when the target was created: the quotas that were raised for it, and each one's restore.
    fn read(requests: &[&AuditEvent], asked: Timestamp, target: &AuditEvent) -> Option<Self> {
        let raises: Vec<&AuditEvent> = requests
            .iter()
            .filter(|it| matches!(it.done_mark(), Some(MarkWrite::Raise { .. })))
            .filter(|it| it.received >= asked && it.answered <= target.answered)
            // What was restored before the target came was a window of an earlier attempt.
            .filter(|it| restore_of(requests, it).is_none_or(|restore| restore.answered >= target.received))
            .copied()
            .collect();
        let restores: Vec<&AuditEvent> =
            raises.iter().map(|raise| restore_of(requests, raise)).collect::<Option<_>>()?;
        let opened = raises.iter().map(|it| it.answered).min()?;
        let closed = restores.iter().map(|it| it.answered).max()?;
        let dry_runs = requests
            .iter()
            .filter(|it| it.is_ours() && it.is_dry_run() && it.is("create", names::HEADROOM_PROBES));
        let settle = dry_runs.filter(|it| it.received >= opened && it.answered <= closed).copied().collect();
        // Of what is read at once, what is in the namespace; policies are not, and take as long.
        let reads = requests.iter().filter(|it| it.is_ours() && it.verb == "get");
        let reads =
            reads.filter(|it| it.received >= target.received && it.answered <= opened).copied().collect();
        let steps = Self::steps(asked, target, [reads, raises, settle, restores]);
        Some(Self { open_ms: between_ms(opened, closed), steps })
    }

    fn steps(
        asked: Timestamp,
        target: &AuditEvent,
        [reads, raises, settle, restores]: [Vec<&AuditEvent>; 4],
    ) -> [Step; STEPS.len()] {
        let sent = |requests: &[&AuditEvent]| requests.iter().map(|it| it.received).min();
        let (reading, restoring) = (sent(&reads).or_else(|| sent(&raises)), sent(&restores));
        let parts: [(Vec<&AuditEvent>, Option<Timestamp>); STEPS.len()] = [
            (Vec::new(), Some(target.received)),
            (Vec::new(), reading),
            (reads, None),
            (raises, None),
            (settle, None),
            (Vec::new(), restoring),
            (restores, None),
        ];
        let mut before = asked;
        parts.map(|(requests, end)| {
            let end = end.or_else(|| requests.iter().map(|it| it.answered).max()).unwrap_or(before);
            let step = Step {
                ms: between_ms(before, end),
                server_ms: requests.iter().fold(0.0, |sum, it| sum + between_ms(it.received, it.answered)),
                requests: requests.len(),
            };
            before = end;
            step
        })
    }
}

/// The first restore of a raised quota.
fn restore_of<'r>(requests: &[&'r AuditEvent], raise: &AuditEvent) -> Option<&'r AuditEvent> {
    let mut restores = requests.iter().filter(|it| it.done_mark() == Some(MarkWrite::Restore));
    restores.find(|it| it.name == raise.name && it.answered > raise.answered).copied()
}

#[cfg(test)]
mod tests {
    use sluice_api::names;
    use sluice_e2e::audit::{AuditEventExt as _, MarkWrite};
    use sluice_testbed::audit::AuditEvent;

    use super::super::tests::{DRY_RUN, WEBHOOK, request, target_of, write};
    use super::{Journey, MIGRATIONS};

    const RAISE: MarkWrite = MarkWrite::Raise { end: None };

    fn target(code: u64, at: [i64; 2]) -> AuditEvent {
        let pod = request("kubevirt-controller", "create", "pods", "", at);
        AuditEvent { code, request: target_of("uid"), ..pod }
    }

    fn dry(code: u64, at: [i64; 2]) -> AuditEvent {
        AuditEvent {
            uri: DRY_RUN.to_owned(),
            code,
            ..request(WEBHOOK, "create", names::HEADROOM_PROBES, "probe", at)
        }
    }

    fn log() -> Vec<AuditEvent> {
        let mut log = vec![
            request("admin", "create", MIGRATIONS, "", [0, 1]),
            // A window whose target was refused by another admission step.
            target(403, [2, 7]),
            write(RAISE, "full", [3, 4]),
            write(MarkWrite::Restore, "full", [5, 6]),
            request(WEBHOOK, "get", "namespaces", "ns", [11, 12]),
            AuditEvent { code: 409, ..write(RAISE, "full", [12, 13]) },
            write(RAISE, "full", [14, 16]),
            dry(201, [16, 17]),
            dry(403, [18, 20]),
            // It may be restored before the answer to the target's creation is written.
            target(201, [10, 31]),
            write(MarkWrite::Restore, "full", [29, 32]),
            // Of the next migration.
            write(RAISE, "full", [60, 62]),
            write(MarkWrite::Restore, "full", [70, 81]),
        ];
        log.sort_by_key(|it| it.answered);
        log
    }

    fn journey(log: &[AuditEvent]) -> Option<Journey> {
        Journey::read(&log.iter().collect::<Vec<_>>(), "uid")
    }

    #[test]
    fn a_journey_is_the_sum_of_its_steps() {
        let journey = journey(&log()).unwrap();
        assert_eq!((journey.target_ms, journey.rejected), (30.0, 1));
        let window = journey.window.unwrap();
        assert_eq!(window.open_ms, 16.0);
        assert_eq!(window.steps.map(|step| step.ms), [9.0, 1.0, 1.0, 4.0, 4.0, 9.0, 3.0]);
        assert_eq!(window.steps.map(|step| step.requests), [0, 0, 1, 1, 2, 0, 1]);
        assert_eq!(window.steps[4].server_ms, 3.0);
    }

    #[test]
    fn a_window_of_two_quotas_lasts_from_the_first_raise_to_the_last_restore() {
        let mut log = log();
        log.extend([write(RAISE, "other", [13, 14]), write(MarkWrite::Restore, "other", [33, 35])]);
        log.sort_by_key(|it| it.answered);
        let window = journey(&log).unwrap().window.unwrap();
        assert_eq!(window.open_ms, 21.0);
        assert_eq!(window.steps.map(|step| step.requests), [0, 0, 1, 2, 2, 0, 2]);
    }

    #[test]
    fn without_window_or_target_there_is_none() {
        let mut log = log();
        log.retain(|it| it.asked_mark().is_none());
        assert_eq!(journey(&log).unwrap().window, None);
        log.retain(|it| !it.succeeded() || it.resource != "pods");
        assert_eq!(journey(&log), None);
    }
}
