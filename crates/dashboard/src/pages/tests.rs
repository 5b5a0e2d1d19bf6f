//! Pages say what the model says, and nothing that a tenant writes becomes markup.

use std::sync::Arc;

use sluice_engine::{Quantity, QuotaKind};
use sluice_gate::{
    Ahead, Explanation, Lack, Obstacle, PodExplanation, QuotaExplanation, QuotaName, Short, Taker, Verdict,
    Wait,
};
use sluice_index::Phase;

use super::{Address, View, document};
use crate::answer::{Answer, Drain, DrainRow, Link, QuotaTold, Recorded, SubjectKind, Told};
use crate::model::{Interruption, Model};
use crate::page::{Page, Sort};
use crate::seen::{Condition, Kind, Line, Migration, Quota, Share};
use crate::table::Change;

const NOW: i64 = 1_800_000_000;

const ROOT: Address<'static> = Address { root: "/secret", own: "" };

fn amount(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn line(key: &str, used: &str, limit: &str) -> Line {
    Line { key: key.to_owned(), used: Some(amount(used)), limit: Some(amount(limit)) }
}

/// A cluster in which all texts are this one.
fn model(text: &str) -> Model {
    let name = || (text.to_owned(), text.to_owned());
    let quota = Quota {
        lines: vec![line(text, "8", "8"), line("pods", "1", "10")],
        held: 5,
        since: Some(NOW - 7_440),
        told: vec![text.to_owned()],
        shares: vec![Share { namespace: text.to_owned(), used: [(text.to_owned(), amount("8"))].into() }],
        ..Quota::default()
    };
    let mut model = Model::new(text);
    for kind in [Kind::Namespaced, Kind::Cluster, Kind::Native] {
        model.on_quota(kind, Change::Is(name(), quota.clone()), NOW);
        model.on_quota(kind, Change::Is((String::new(), text.to_owned()), quota.clone()), NOW);
    }
    let migration = Migration {
        machine: text.to_owned(),
        phase: Phase::Pending,
        told: text.to_owned(),
        is_refused: true,
        created: NOW - 700,
        limit: 900,
    };
    model.on_migration(Change::Is(name(), migration));
    let (kind, status, message) = (text.to_owned(), text.to_owned(), text.to_owned());
    model.set_installation(vec![Condition { kind, status, message }]);
    model.set_interruption(text, Some(Interruption { since: NOW - 60, why: text.to_owned() }));
    model.set_missing(text, true);
    model.set_note(text, true);
    model
}

fn quota_name(text: &str) -> QuotaName {
    QuotaName { kind: QuotaKind::Namespace, name: text.into() }
}

fn pod(text: &str) -> PodExplanation {
    let key = Short {
        key: text.into(),
        needs: amount("2"),
        used: amount("8"),
        limit: amount("8"),
        short_by: amount("2"),
        never: false,
        own: None,
    };
    let obstacle = Obstacle { quota: quota_name(text), lack: Lack::Exceeded, keys: vec![key] };
    let ahead = Ahead { name: text.into(), priority: 1, needs: vec![(text.into(), amount("1"))] };
    let takers = vec![Taker { name: text.to_owned(), amount: amount("3") }];
    PodExplanation {
        namespace: text.into(),
        name: text.into(),
        verdict: Verdict::NoRoom(vec![obstacle]),
        since: NOW - 7_440,
        quotas: vec![quota_name(text)],
        wait: Some(Wait { place: 2, of: 5, ahead: vec![ahead], takers, others: None }),
        has_claims: false,
    }
}

fn quota_told(text: &str) -> QuotaTold {
    let explanation = QuotaExplanation {
        namespace: text.into(),
        within: None,
        quota: quota_name(text),
        lines: vec![sluice_gate::Line {
            key: text.into(),
            used: amount("8"),
            limit: amount("8"),
            counted: amount("7"),
            assumed: amount("1"),
            unseen: amount("0"),
        }],
        held: 1,
        oldest: Some((NOW - 7_440, text.to_owned())),
        takers: vec![Taker { name: text.to_owned(), amount: amount("3") }],
        others: None,
        invalid: Some(text.to_owned()),
        not_enforced: vec![text.to_owned()],
    };
    QuotaTold {
        explanation: Some(Explanation::Quota(explanation)),
        takers: vec![(text.to_owned(), amount("5")), (format!("{text}2"), amount("3"))],
        others: Some((3, amount("1"))),
        queue: vec![pod(text)],
        waiting: 7,
        assumed: vec![text.to_owned()],
        missing: vec![text.to_owned()],
        ..QuotaTold::default()
    }
}

/// The same of a bundle.
fn quota_recorded(text: &str) -> QuotaTold {
    let pod = || text.to_owned();
    let recorded = vec![Recorded { namespace: pod(), name: pod(), since: Some(NOW - 60), said: pod() }];
    QuotaTold { unknown: Some(text.to_owned()), recorded, ..QuotaTold::default() }
}

fn told(text: &str) -> Told {
    Told {
        chain: vec![Link { what: "pod", name: text.to_owned(), state: text.to_owned(), is_held: true }],
        lines: vec![text.to_owned()],
        explanations: vec![Explanation::Pod(pod(text))],
        unknown: Some(text.to_owned()),
        assumed: vec![text.to_owned()],
        missing: vec![text.to_owned()],
    }
}

/// All pages about a cluster in which all texts are this one.
fn all_pages(text: &str) -> Vec<String> {
    let model = model(text);
    let view = View { model: &model, answer: None, drain: None, now: NOW };
    let name = || text.to_owned();
    let (namespace, vm, room, message) = (name(), name(), [name(), name(), name()], name());
    let row = DrainRow { namespace, vm, room, result: "STUCK", is_good: false, message };
    let drain = Ok(Drain { rows: vec![row], missing: vec![name()] });
    let failed = Err(name());
    let (quota, why, lost) =
        (Answer::Quota(Box::new(quota_told(text))), Answer::Why(told(text)), Answer::Failed(name()));
    let recorded = Answer::Quota(Box::new(quota_recorded(text)));
    let of_quota = |kind| Page::Quota { kind, namespace: name(), name: name() };
    let of_why = || Page::Why { kind: SubjectKind::Vm, namespace: name(), name: name() };
    let on_node = || Page::Drain { node: Some(name()) };
    let views = [
        (Page::Overview { sort: Sort::Wait, filter: name() }, view),
        (of_quota(Kind::Namespaced), View { answer: Some(&quota), ..view }),
        (of_quota(Kind::Namespaced), View { answer: Some(&lost), ..view }),
        (Page::Quota { kind: Kind::Cluster, namespace: String::new(), name: name() }, view),
        (of_quota(Kind::Native), view),
        (of_why(), View { answer: Some(&why), ..view }),
        (of_why(), View { answer: Some(&lost), ..view }),
        (Page::Migrations, view),
        (on_node(), View { drain: Some(&drain), ..view }),
        (on_node(), View { drain: Some(&failed), ..view }),
        (of_quota(Kind::Namespaced), View { answer: Some(&recorded), ..view }),
    ];
    views.iter().map(|(page, view)| document(page, view, ROOT)).collect()
}

#[test]
fn no_text_becomes_markup() {
    let hostile = "x\"'><img src=x onerror=alert(1)>\u{202e}\u{7}";
    for page in all_pages(hostile) {
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"), "{page}");
        assert!(!page.contains("<img") && !page.contains("\"'>"), "{page}");
        assert!(!page.contains('\u{202e}') && !page.contains('\u{7}'), "{page}");
    }
}

#[test]
fn pages_keep_to_their_content_security_policy() {
    for page in all_pages("train") {
        assert!(!page.contains(" style=") && !page.contains("<style"), "{page}");
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        assert!(page.contains("<script src=\"page.js\"></script>"), "{page}");
    }
}

#[test]
fn pictures_have_a_sentence_and_tables_have_heads() {
    for page in all_pages("train") {
        let pictures = page.matches("<svg").count();
        let described =
            page.matches("role=\"img\" aria-label=").count() + page.matches("aria-hidden=\"true\"").count();
        assert!(described >= pictures, "{page}");
        let rows = page.matches("<tr>").count();
        assert!(page.matches("scope=\"row\"").count() + page.matches("<thead>").count() >= rows, "{page}");
    }
}

/// The text of a page without its markup.
fn text_of(page: &str) -> String {
    let texts = page.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text);
    texts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_overview_begins_with_the_oldest_wait_and_says_what_it_is_sure_of() {
    let mut model = Model::default();
    let quota = |used: &str, held: i64, since: Option<i64>| Quota {
        lines: vec![line("requests.cpu", used, "8")],
        held,
        since,
        ..Quota::default()
    };
    for (name, quota) in [
        (("a", "full"), quota("8", 0, None)),
        (("a", "waits"), quota("4", 3, Some(NOW - 60))),
        (("b", "waits-longer"), quota("2", 2, Some(NOW - 600))),
        (("b", "also"), quota("2", 1, Some(NOW - 10))),
    ] {
        let name = (name.0.to_owned(), name.1.to_owned());
        model.on_quota(Kind::Namespaced, Change::Is(name, quota), NOW);
    }
    let view = View { model: &model, answer: None, drain: None, now: NOW };
    let page = |filter: &str| {
        text_of(&document(&Page::Overview { sort: Sort::Wait, filter: filter.to_owned() }, &view, ROOT))
    };
    let all = page("");
    let at = |name: &str| all.rfind(&format!(" {name} ")).unwrap_or_else(|| panic!("{name}: {all}"));
    assert!(at("waits-longer") < at("waits") && at("waits") < at("also") && at("also") < at("full"), "{all}");
    assert!(all.contains("5 at least"), "three of a and two of b: {all}");
    assert!(all.contains("the oldest for 10m"), "{all}");
    let some = page("long");
    assert!(some.contains("waits-longer") && !some.contains(" also "), "{some}");
}

#[test]
fn the_words_are_those_of_the_command() {
    let explanation = Explanation::Pod(pod("train"));
    let said: Arc<str> = explanation.at(NOW).to_string().into();
    let why = all_pages("train").swap_remove(5);
    assert!(why.contains(&*said), "{why}");
}

#[test]
fn a_record_says_of_which_moment_it_is_and_shows_no_other() {
    let mut model = Model::of_record("bundle.tar.gz", NOW);
    let quota = Quota { lines: vec![line("pods", "8", "8")], held: 1, ..Quota::default() };
    let name = ("team".to_owned(), "full".to_owned());
    model.on_quota(Kind::Namespaced, Change::Is(name, quota), NOW);
    let recorded = Answer::Quota(Box::new(quota_recorded("train")));
    let view = View { model: &model, answer: Some(&recorded), drain: None, now: NOW };
    let page = Page::Quota { kind: Kind::Namespaced, namespace: "team".to_owned(), name: "full".to_owned() };
    let text = text_of(&document(&page, &view, ROOT));
    assert!(text.contains("This is a record of 2027-01-15 08:00:00 UTC."), "{text}");
    assert!(text.contains("a record · 08:00:00 UTC") && text.contains("bundle.tar.gz"), "{text}");
    assert!(text.contains("Who takes it cannot be told: train"), "{text}");
    assert!(text.contains("Pod For As the controller said train 1m train"), "{text}");
    assert!(!text.contains("ten minutes"), "{text}");
}
