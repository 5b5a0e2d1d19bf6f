//! One migration from its creation to the end of its window, read from the audit log.

use jiff::Timestamp;
use sluice_api::names;

use super::log::{Request, between_ms};

const MIGRATIONS: &str = "virtualmachineinstancemigrations";

/// The parts of a journey, in their order. Each ends with the answer to the request it is named after.
pub(super) const STEPS: [&str; 10] = [
    "virt-controller sends the target",
    "webhook is asked, sends the lock",
    "lock: create window",
    "proof: probe denied",
    "drain",
    "raise",
    "raise known: dry run refused",
    "target charged, restore sent",
    "restore",
    "unlock: delete window",
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

/// The window of a migration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    /// From the answer that it exists to the answer that it is gone.
    pub(super) open_ms: f64,
    /// From the answer to the first raise to the answer to the last restore.
    pub(super) raised_ms: f64,
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
    pub(super) fn read(requests: &[&Request], uid: &str) -> Option<Self> {
        let mut targets = requests
            .iter()
            .filter(|it| it.is("create", "pods") && it.migration.as_deref() == Some(uid) && !it.dry_run);
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
    /// The window that was open when the target was created.
    fn read(requests: &[&Request], asked: Timestamp, target: &Request) -> Option<Self> {
        let windows = |verb: &'static str| {
            let ours = requests.iter().filter(|it| it.is_ours() && !it.dry_run && it.succeeded());
            ours.filter(move |it| it.is(verb, names::MIGRATION_WINDOWS))
        };
        let lock = windows("create").rfind(|it| it.answered <= target.answered)?;
        let unlock = windows("delete").find(|it| it.answered >= lock.answered)?;
        // It may be unlocked before the answer to the target's creation is written.
        if unlock.answered < target.received {
            return None;
        }
        let within: Vec<&Request> = requests
            .iter()
            .filter(|it| it.is_ours() && it.received >= lock.answered && it.answered <= unlock.answered)
            .copied()
            .collect();
        let patches = within.iter().filter(|it| it.is("patch", "resourcequotas/status") && it.succeeded());
        let (restores, raises): (Vec<&Request>, Vec<&Request>) = patches.copied().partition(|it| it.plain);
        let raised_ms = match (raises.first(), restores.last()) {
            (Some(raise), Some(restore)) => between_ms(raise.answered, restore.answered),
            _ => 0.0,
        };
        let steps = Self::steps(&within, asked, target, [lock, unlock], raises, restores);
        Some(Self { open_ms: between_ms(lock.answered, unlock.answered), raised_ms, steps })
    }

    fn steps(
        within: &[&Request],
        asked: Timestamp,
        target: &Request,
        [lock, unlock]: [&Request; 2],
        raises: Vec<&Request>,
        restores: Vec<&Request>,
    ) -> [Step; STEPS.len()] {
        let dry = |name: &str| {
            within.iter().filter(|it| it.dry_run && it.name == name).copied().collect::<Vec<&Request>>()
        };
        let raised = raises.first().map_or(unlock.answered, |raise| raise.answered);
        let (drains, looks) = dry(names::DRAIN_NAME).into_iter().partition(|it| it.received < raised);
        let restoring = restores.first().map(|restore| restore.received);
        let none = Vec::new;
        let parts: [(Vec<&Request>, Option<Timestamp>); STEPS.len()] = [
            (none(), Some(target.received)),
            (none(), Some(lock.received)),
            (vec![lock], None),
            (dry(names::PROBE_NAME), None),
            (drains, None),
            (raises, None),
            (looks, None),
            (none(), restoring),
            (restores, None),
            (vec![unlock], None),
        ];
        let mut before = asked;
        parts.map(|(requests, end)| {
            let end = end.or_else(|| requests.iter().map(|it| it.answered).max()).unwrap_or(before);
            let step = Step {
                ms: between_ms(before, end),
                server_ms: requests.iter().fold(0.0, |sum, it| sum + it.took_ms()),
                requests: requests.len(),
            };
            before = end;
            step
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Request;
    use super::super::log::tests::request;
    use super::{Journey, MIGRATIONS};

    const WEBHOOK: &str = "system:serviceaccount:sluice-system:sluice-webhook";

    fn ours(verb: &str, resource: &str, name: &str, at: [i64; 2]) -> Request {
        request(WEBHOOK, verb, resource, name, at)
    }

    fn target(code: u64, at: [i64; 2]) -> Request {
        let pod = request("kubevirt-controller", "create", "pods", "", at);
        Request { code, migration: Some("uid".to_owned()), ..pod }
    }

    fn dry(name: &str, code: u64, at: [i64; 2]) -> Request {
        Request { dry_run: true, code, ..ours("create", "migrationwindows", name, at) }
    }

    fn log() -> Vec<Request> {
        let mut log = vec![
            request("admin", "create", MIGRATIONS, "", [0, 5]),
            target(403, [6, 7]),
            ours("create", "migrationwindows", "window", [12, 15]),
            dry("probe", 201, [16, 17]),
            dry("probe", 403, [18, 20]),
            dry("drain", 201, [21, 22]),
            ours("patch", "resourcequotas/status", "full", [23, 26]),
            dry("drain", 403, [27, 28]),
            // It may be restored before the answer to the target's creation is written.
            target(201, [10, 44]),
            Request { plain: true, ..ours("patch", "resourcequotas/status", "full", [42, 45]) },
            ours("delete", "migrationwindows", "window", [46, 48]),
            // Of the next migration.
            ours("create", "migrationwindows", "window", [60, 62]),
            ours("delete", "migrationwindows", "window", [80, 81]),
        ];
        log.sort_by_key(|it| it.answered);
        log
    }

    #[test]
    fn a_journey_is_the_sum_of_its_steps() {
        let log = log();
        let journey = Journey::read(&log.iter().collect::<Vec<_>>(), "uid").unwrap();
        assert_eq!((journey.target_ms, journey.rejected), (39.0, 1));
        let window = journey.window.unwrap();
        assert_eq!((window.open_ms, window.raised_ms), (33.0, 19.0));
        assert_eq!(window.steps.map(|step| step.ms), [5.0, 2.0, 3.0, 5.0, 2.0, 4.0, 2.0, 14.0, 3.0, 3.0]);
        assert_eq!(window.steps.map(|step| step.requests), [0, 0, 1, 2, 1, 1, 1, 0, 1, 1]);
        assert_eq!(window.steps[3].server_ms, 3.0);
    }

    #[test]
    fn without_window_or_target_there_is_none() {
        let mut log = log();
        log.retain(|it| it.resource != "migrationwindows");
        let journey = Journey::read(&log.iter().collect::<Vec<_>>(), "uid").unwrap();
        assert_eq!(journey.window, None);
        log.retain(|it| !it.succeeded() || it.resource != "pods");
        assert_eq!(Journey::read(&log.iter().collect::<Vec<_>>(), "uid"), None);
    }
}
