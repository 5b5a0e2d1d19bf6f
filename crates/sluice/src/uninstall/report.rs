//! What was done, for people and for scripts.

use std::fmt::{self, Display, Formatter, Write as _};
use std::io::Write as _;

use serde::Serialize;
use sluice_manifests::uninstall::{Collection, ObjectName, PART_OF, Seen, Step, Wish};

use super::object_of;
use super::release::Released;
use super::restore::Restored;
use crate::output::Output;

/// So many names of a row are printed.
const NAMES: usize = 3;

/// What is done with objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// Its replicas are taken.
    Stop,
    Delete,
    /// Its gate is taken off.
    Release,
    /// Its limits are put back.
    Restore,
    /// It stays, as was asked.
    Keep,
    /// It could not be removed.
    Leave,
}

impl Action {
    const fn done(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Delete => "deleted",
            Self::Release => "released",
            Self::Restore => "restored",
            Self::Keep => "kept",
            Self::Leave => "left",
        }
    }

    const fn planned(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Delete => "delete",
            Self::Release => "release",
            Self::Restore => "restore",
            Self::Keep => "keep",
            Self::Leave => "leave",
        }
    }
}

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Row {
    action: Action,
    kind: String,
    count: usize,
    /// Namespace and name, or the name; empty where only their number is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    objects: Vec<String>,
    /// Why they are left, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Everything that was done, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    namespace: String,
    /// Nothing was done: it says what would be.
    dry_run: bool,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(namespace: &str, dry_run: bool) -> Self {
        Self { namespace: namespace.to_owned(), dry_run, rows: Vec::new() }
    }

    /// Something was done with an object.
    pub(super) fn did(&mut self, action: Action, object: &ObjectName) {
        let name = match &object.namespace {
            Some(namespace) if *namespace != self.namespace => format!("{namespace}/{}", object.name),
            _ => object.name.clone(),
        };
        let kind = &object.kind.kind;
        let is_same = |row: &&mut Row| row.is_plain(action, kind) && !row.objects.is_empty();
        match self.rows.iter_mut().find(is_same) {
            // A second round may do it again.
            Some(row) if row.objects.contains(&name) => {}
            Some(row) => {
                row.count += 1;
                row.objects.push(name);
            }
            None => self.row(action, kind, 1, vec![name], None),
        }
    }

    /// Something was done with so many objects of a kind.
    pub(super) fn count(&mut self, action: Action, kind: &str, count: usize) {
        if count == 0 {
            return;
        }
        let is_same = |row: &&mut Row| row.is_plain(action, kind) && row.objects.is_empty();
        match self.rows.iter_mut().find(is_same) {
            Some(row) => row.count += count,
            None => self.row(action, kind, count, Vec::new(), None),
        }
    }

    pub(super) fn released(&mut self, released: &Released) {
        self.count(Action::Release, "Pod", released.pods);
        self.forget("Pod");
        if released.left > 0 {
            let note = format!("they wait still: {}: see to that, then run this again", released.reasons());
            self.row(Action::Leave, "Pod", released.left, Vec::new(), Some(note));
        }
    }

    pub(super) fn restored(&mut self, restored: &Restored) {
        self.count(Action::Restore, "ResourceQuota", restored.quotas);
        self.forget("ResourceQuota");
        for (name, why) in &restored.left {
            let note = format!(
                "status.hard is above spec.hard still: {why}: Kubernetes puts it back within minutes; run this again"
            );
            self.row(Action::Leave, "ResourceQuota", 1, vec![name.clone()], Some(note));
        }
    }

    /// What an earlier round has left may be done by now.
    fn forget(&mut self, kind: &str) {
        self.rows.retain(|row| row.action != Action::Leave || row.kind != kind);
    }

    pub(super) fn left(&mut self, object: &ObjectName, reason: &str, remedy: &str) {
        let note = Some(format!("{reason}: {remedy}"));
        self.row(Action::Leave, &object.kind.kind, 1, vec![object.name.clone()], note);
    }

    pub(super) fn left_namespace(&mut self, name: &str, reason: &str, remedy: &str) {
        self.row(Action::Leave, "Namespace", 1, vec![name.to_owned()], Some(format!("{reason}: {remedy}")));
    }

    /// What a step would do.
    pub(super) fn planned(&mut self, step: &Step, seen: &Seen) {
        match step {
            Step::Stop(object) => self.did(Action::Stop, object),
            Step::Delete(object, _) => self.did(Action::Delete, object),
            Step::Wait(_) | Step::Unfinalize => {}
            Step::Release => self.count(Action::Release, "Pod", seen.held),
            Step::Restore => self.count(Action::Restore, "ResourceQuota", seen.raised),
            Step::Clear(collection) => {
                self.count(Action::Delete, &collection.kind().kind, seen.count(*collection));
            }
        }
    }

    /// Nothing is done, because it is not known what these objects do.
    pub(super) fn blocked(&mut self, seen: &Seen) {
        for object in seen.blocking() {
            let remedy = format!(
                "if it is of Sluice, kubectl label {} {PART_OF}=sluice, else remove it; then run this again. Nothing was \
                 changed",
                object.arguments()
            );
            self.left(object, "it may gate or refuse pods and has not Sluice's label", &remedy);
        }
    }

    /// These pods of controller and webhook do not end. Their accounts have no rights any more.
    pub(super) fn running(&mut self, pods: Vec<String>) {
        for pod in pods {
            let note = "its node does not answer: see to the node, or delete it, then run this again";
            self.row(Action::Leave, "Pod", 1, vec![format!("pod {pod}")], Some(note.to_owned()));
        }
    }

    /// The namespace was to go, and what comes before it has not.
    pub(super) fn kept_home(&mut self, name: &str) {
        let reason = "it goes after everything else, and something else is left";
        self.left_namespace(name, reason, "see to that, then run this again");
    }

    /// Something was planned and is not done, whatever else is said of it.
    pub(super) fn again(&mut self) {
        let note = Some("not all that was planned is done: run this again".to_owned());
        self.row(Action::Leave, "step", 1, Vec::new(), note);
    }

    /// These steps are needed again each time.
    pub(super) fn unfinished(&mut self, steps: &[Step]) {
        let mut named: Vec<_> = steps.iter().filter_map(object_of).collect();
        named.dedup();
        if !named.is_empty() {
            let note = "something makes it again and again: stop what applies it (Argo CD, Flux), then run this again";
            let (count, kind) = (named.len(), "object".to_owned());
            self.row(Action::Leave, &kind, count, named, Some(note.to_owned()));
        }
    }

    /// What stays.
    pub(super) fn end(&mut self, seen: &Seen, wish: &Wish) {
        for object in seen.foreign() {
            let remedy = format!("if it is of Sluice, kubectl delete {}", object.arguments());
            self.left(object, "it has not Sluice's label", &remedy);
        }
        let is_dry_run = self.dry_run;
        let parts =
            seen.parts.iter().filter(|(_, found)| found.is_ours).map(|(part, found)| (&part.object, found));
        let definitions = seen.definitions.iter().map(|(object, found)| (object, found));
        let ending = parts.chain(definitions).filter(|(_, found)| found.is_ending);
        // The namespace is reported apart.
        let ending = ending.filter(|(object, _)| object.kind.kind != "Namespace");
        for (object, _) in ending.filter(|_| !is_dry_run) {
            let remedy = format!("kubectl get {} --output yaml names them", object.arguments());
            self.left(object, "it waits for its finalizers", &remedy);
        }
        let of_users: &[Collection] = if wish.quotas { &Collection::OF_USERS } else { &[] };
        for collection in Collection::MADE.iter().chain(of_users).filter(|_| !is_dry_run) {
            let (kind, count) = (collection.kind(), seen.ending.get(collection).copied().unwrap_or(0));
            if count > 0 {
                let resource = kind.qualified();
                let note = format!(
                    "they wait for their finalizers: kubectl get {resource} --all-namespaces --output yaml names them"
                );
                self.row(Action::Leave, &kind.kind, count, Vec::new(), Some(note));
            }
        }
        if !wish.quotas {
            for collection in Collection::OF_USERS {
                self.count(Action::Keep, &collection.kind().kind, seen.count(collection));
            }
        }
        if wish.definitions {
            for (object, _) in
                seen.definitions.iter().filter(|(_, found)| found.is_of_others && !found.is_ending)
            {
                let remedy = format!("if nothing else needs it, kubectl delete {}", object.arguments());
                self.left(object, "it has an owner, or a label of another program", &remedy);
            }
        } else {
            for collection in Collection::KEPT {
                self.count(Action::Keep, &collection.kind().kind, seen.count(collection));
            }
            self.count(Action::Keep, "CustomResourceDefinition", seen.definitions.len());
        }
    }

    fn row(&mut self, action: Action, kind: &str, count: usize, objects: Vec<String>, note: Option<String>) {
        let row = Row { action, kind: kind.to_owned(), count, objects, note };
        if !self.rows.contains(&row) {
            self.rows.push(row);
        }
    }

    pub(super) fn is_anything_left(&self) -> bool {
        self.sum(Action::Leave) > 0
    }

    fn sum(&self, action: Action) -> usize {
        self.rows.iter().filter(|row| row.action == action).map(|row| row.count).sum()
    }

    pub(super) fn print(&self, output: Output) -> anyhow::Result<()> {
        match output {
            Output::Table => write!(std::io::stdout(), "{self}")?,
            Output::Json => writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(self)?)?,
        }
        Ok(())
    }

    /// The last line.
    fn total(&self) -> String {
        let of = |action: Action, what: &str| {
            let count = self.sum(action);
            let plural = if count == 1 { "" } else { "s" };
            let verb = if self.dry_run { action.planned() } else { action.done() };
            format!("{verb} {count} {what}{plural}")
        };
        let mut total = [
            of(Action::Release, "pod"),
            of(Action::Restore, "quota"),
            of(Action::Delete, "object"),
            of(Action::Keep, "object"),
            of(Action::Leave, "object"),
        ]
        .join(", ");
        if self.dry_run {
            total.insert_str(0, "would ");
            total.push_str("; nothing was changed");
        }
        total
    }
}

impl Row {
    fn is_plain(&self, action: Action, kind: &str) -> bool {
        self.action == action && self.kind == kind && self.note.is_none()
    }

    fn text(&self) -> String {
        let mut text = match self.objects.get(..NAMES) {
            _ if self.objects.is_empty() => self.count.to_string(),
            Some(first) if self.objects.len() > NAMES => {
                format!("{} and {} more", first.join(", "), self.objects.len() - NAMES)
            }
            _ => self.objects.join(", "),
        };
        if let Some(note) = &self.note {
            // A text that is written cannot fail.
            let _ = write!(text, ": {note}");
        }
        text
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = |row: &Row| if self.dry_run { row.action.planned() } else { row.action.done() };
        let width = |header: &str, of: &dyn Fn(&Row) -> usize| {
            self.rows.iter().map(of).chain([header.len()]).max().unwrap_or(0)
        };
        let (actions, kinds) =
            (width("ACTION", &|row| verb(row).len()), width("KIND", &|row| row.kind.len()));
        if !self.rows.is_empty() {
            writeln!(f, "{:actions$}  {:kinds$}  OBJECTS", "ACTION", "KIND")?;
        }
        for row in &self.rows {
            writeln!(f, "{:actions$}  {:kinds$}  {}", verb(row), row.kind, row.text())?;
        }
        writeln!(f, "{}", self.total())
    }
}
