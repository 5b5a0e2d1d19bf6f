//! When what is shown and what is printed say the same: times, ages and names made at random may differ.

use std::sync::LazyLock;

use regex::Regex;

/// Any lines, or any end of a line.
const ELISION: &str = "…";

/// What differs from run to run, and the word for it.
static VARIABLE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let pairs = [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
        (r"\bapiserver-[a-z0-9]{26}", "apiserver-ID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"([A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d (\d{4} (GMT|UTC)|(GMT|UTC) \d{4})", "DATE"),
        (r"\d+\.\d s ago", "AGO"),
        (r"process_[0-9a-f]+", "process_ID"),
        (r"\bleader [a-z][a-z0-9_-]*, ", "leader NAME, "),
        (r"sluice-ca@\d+", "sluice-ca@ID"),
        (r"(127\.0\.0\.1|\[::1\]):\d+", "ADDRESS"),
        (r"\b(\d+\.){3}\d+\b", "IP"),
        (r"-[0-9a-f]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-HASH"),
        (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-RANDOM"),
        (r"\b[0-9a-f]{8,}\b", "HEX"),
        (r#""leaseTransitions":\d+"#, "TRANSITIONS"),
        (r" \(x\d+ over \w+\)", ""),
    ];
    pairs.map(|(text, word)| (Regex::new(text).unwrap(), word)).to_vec()
});

/// An age as kubectl and Sluice write it. One of minutes alone may be an amount too.
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\(?(\d+[dhms])+[,;.)]*$").unwrap());

fn words(line: &str) -> Vec<String> {
    let mut line = line.to_owned();
    for (variable, word) in VARIABLE.iter() {
        line = variable.replace_all(&line, *word).into_owned();
    }
    line.split_whitespace().map(str::to_owned).collect()
}

fn is_same_word(shown: &str, printed: &str) -> bool {
    let is_sure = |age: &str| age.contains(['s', 'h', 'd']);
    let are_ages = AGE.is_match(shown) && AGE.is_match(printed) && (is_sure(shown) || is_sure(printed));
    shown == printed || are_ages
}

fn is_same_line(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (words(shown), words(printed));
    if let Some(cut) = shown.iter().position(|word| word.contains(ELISION)) {
        let Some((before, rest)) = printed.split_at_checked(cut) else { return false };
        let mut pairs = shown.iter().zip(before);
        return pairs.all(|(shown, printed)| is_same_word(shown, printed))
            && has_pieces(&shown[cut..].join(" "), &rest.join(" "));
    }
    let mut pairs = shown.iter().zip(&printed);
    shown.len() == printed.len() && pairs.all(|(shown, printed)| is_same_word(shown, printed))
}

/// Whether what is shown is printed but for what is left out.
fn has_pieces(shown: &str, printed: &str) -> bool {
    let mut pieces = shown.split(ELISION);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    for piece in pieces {
        match rest.find(piece) {
            Some(_) if piece.is_empty() => rest = "",
            Some(found) => rest = &rest[found + piece.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// Whether the lines of a page are what was printed. Rows may come in another order, for it follows names made at random.
pub fn is_alike(shown: &[String], printed: &str) -> bool {
    let mut rest: Vec<&str> = printed.trim_end().lines().collect();
    let has_gap = shown.iter().any(|line| line == ELISION);
    for line in shown.iter().filter(|line| *line != ELISION) {
        match rest.iter().position(|printed| is_same_line(line, printed)) {
            Some(found) => drop(rest.remove(found)),
            None => return false,
        }
    }
    has_gap || rest.is_empty()
}

/// What was printed, cut where the page was.
pub fn with_elisions(shown: &[String], printed: &str) -> Vec<String> {
    let cut = |(number, line): (usize, &str)| {
        let is_cut = |shown: &&String| *shown != ELISION && shown.ends_with(ELISION);
        match shown.get(number).filter(is_cut) {
            Some(shown) => line.chars().take(shown.chars().count() - 1).chain(ELISION.chars()).collect(),
            None => line.trim_end().to_owned(),
        }
    };
    let mut lines: Vec<String> = printed.trim_end().lines().enumerate().map(cut).collect();
    if shown.last().is_some_and(|line| line == ELISION) && lines.len() >= shown.len() {
        lines.truncate(shown.len() - 1);
        lines.push(ELISION.to_owned());
    }
    lines
}

#[test]
fn times_ages_and_random_names_may_differ_and_nothing_else() {
    let alike =
        |shown: &str, printed: &str| is_alike(&shown.lines().map(str::to_owned).collect::<Vec<_>>(), printed);
    assert!(alike("NAME  AGE\nweb-54c6448f97-b82wx   31s", "NAME AGE\nweb-6c96f5cd8d-wbw66  2m30s\n"));
    assert!(alike("held 2h04m (since 2026-01-02T09:12:31Z), 1", "held 3s (since 2026-11-27T16:10:50Z), 1"));
    assert!(alike("waits: …", "waits: for room") && alike("at https://…/a: no", "at https://b.c/a: no"));
    assert!(alike("a 15s b …", "a 3s b c") && !alike("a 15s b …", "a 3s c c") && !alike("a b …", "a"));
    assert!(alike("a\n…\nb", "a\nc\nd\nb") && alike("", "") && !alike("", "a"));
    assert!(!alike("cpu: 500m", "cpu: 300m") && !alike("a", "a\nb") && !alike("a\nb", "a"));
    assert!(!alike("short by 1", "short by 2") && !alike("waits: …", "stays: for room"));
    let cut = |shown: &[&str], printed: &str| {
        with_elisions(&shown.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), printed)
    };
    assert_eq!(cut(&["a b…", "…"], "c defg \nh\ni\n"), ["c d…", "…"]);
    assert_eq!(cut(&[], "a \nb"), ["a", "b"]);
    assert!(!alike("at https://…/a: no", "at https://b.c/a: yes") && !alike("a … b", "a c b d"));
}
