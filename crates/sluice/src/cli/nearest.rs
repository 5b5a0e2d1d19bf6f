//! Names that are near to one that does not exist.

/// So many names are told.
const MOST: usize = 3;
/// Longer names are compared by their beginnings alone: all else takes time by the product of two lengths.
const LONGEST: usize = 63;

/// Names that differ least from one that was asked for, at most a third of its letters.
pub fn nearest<'n>(asked: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let limit = asked.chars().count().div_ceil(3).max(1);
    let far = |name: &str| {
        if name.starts_with(asked) || (name.len() > 2 && asked.starts_with(name)) {
            0
        } else if asked.len().max(name.len()) > LONGEST || asked.len().abs_diff(name.len()) > limit {
            usize::MAX
        } else {
            strsim::osa_distance(asked, name)
        }
    };
    let mut near: Vec<(usize, &str)> = names.into_iter().map(|name| (far(name), name)).collect();
    near.retain(|(far, _)| *far <= limit);
    near.sort_unstable();
    near.into_iter().take(MOST).map(|(_, name)| name.to_owned()).collect()
}

/// What is told after `… not found`.
pub fn hint(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(": is it {}?", near.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first_and_far_ones_not_at_all() {
        let names = ["train", "trains", "brain", "virt-launcher-db", "x"];
        assert_eq!(nearest("trian", names), ["train", "brain", "trains"]);
        assert_eq!(nearest("virt-launcher", names), ["virt-launcher-db"]);
        assert_eq!(nearest("zzz", names), Vec::<String>::new());
        let (long, other) = ("a".repeat(200), format!("b{}", "a".repeat(199)));
        assert_eq!(nearest(&long, [other.as_str()]), Vec::<String>::new());
        assert_eq!(nearest(&long[..100], [long.as_str()]), [long.as_str()]);
    }
}
