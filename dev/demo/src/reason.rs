//! Reasons in a few words.

use sluice_engine::Quantity;

/// `exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=4, limited: requests.cpu=4` becomes
/// `requests.cpu: asks for 2, 4 of 4 in use`; any other text is returned as it is.
pub fn brief(note: &str) -> String {
    parse(note).unwrap_or_else(|| note.to_owned())
}

fn parse(note: &str) -> Option<String> {
    // What follows is what to do.
    let rest = note.split("; ").next()?.strip_prefix("exceeded quota: ")?;
    let (_, rest) = rest.split_once(", requested: ")?;
    let (requested, rest) = rest.split_once(", used: ")?;
    let (used, limited) = rest.split_once(", limited: ")?;
    let keys = requested.split(',').map(|part| {
        let (key, requested) = part.split_once('=')?;
        let (used, limit) = (value(used, key)?, value(limited, key)?);
        let never = Quantity::parse(requested).ok()? > Quantity::parse(limit).ok()?;
        Some(if never {
            format!("{key}: asks for {requested}, the whole quota is {limit}")
        } else {
            format!("{key}: asks for {requested}, {used} of {limit} in use")
        })
    });
    Some(keys.collect::<Option<Vec<String>>>()?.join("; "))
}

fn value<'a>(list: &'a str, key: &str) -> Option<&'a str> {
    list.split(',')
        .find_map(|part| part.split_once('=').filter(|(name, _)| *name == key))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn a_full_quota() {
        let note = "exceeded quota: q, requested: pods=1,requests.cpu=2, used: pods=5,requests.cpu=3, \
                    limited: pods=5,requests.cpu=4";
        assert_eq!(brief(note), "pods: asks for 1, 5 of 5 in use; requests.cpu: asks for 2, 3 of 4 in use");
    }

    #[test]
    fn more_than_the_quota_ever_allows() {
        let note =
            "exceeded quota: q, requested: requests.cpu=10, used: requests.cpu=500m, limited: requests.cpu=4";
        assert_eq!(brief(note), "requests.cpu: asks for 10, the whole quota is 4");
        assert_eq!(brief(&format!("{note}; the pod alone is more")), brief(note));
    }

    #[test]
    fn other_texts_stay() {
        for note in ["waiting in queue: x", "exceeded quota: q, requested: a=1, used: b=1, limited: a=1", ""]
        {
            assert_eq!(brief(note), note);
        }
    }
}
