//! Keys of a quota in a sentence.

/// The API server may cut warnings at so many bytes.
const MOST: usize = 256;
/// Most bytes of keys in one sentence.
pub(crate) const MAX_KEYS: usize = 100;

/// A sentence of a warning's length with keys in it, as many as there is room for; `None` without any.
pub(crate) fn sentence<'k>(
    before: &str,
    keys: impl Iterator<Item = &'k str> + Clone,
    after: &str,
) -> Option<String> {
    const AND_MORE: usize = " and 10000 more".len();
    let room = MOST.saturating_sub(before.len() + after.len());
    let whole = keys.clone().map(|key| key.len() + ", ".len()).sum::<usize>();
    let room = if whole <= room + ", ".len() { room } else { room.saturating_sub(AND_MORE) };
    Some(format!("{before}{}{after}", listed(keys, 0, room.clamp(AND_MORE, MAX_KEYS))?))
}

/// The keys with commas between them, as many as fit into `room` bytes, and how many are left out; `unnamed` more are too.
/// `None` without any key.
pub(crate) fn listed<'k>(keys: impl Iterator<Item = &'k str>, unnamed: usize, room: usize) -> Option<String> {
    let mut text = String::new();
    let mut more = 0_usize;
    for key in keys {
        if text.is_empty() {
            let cut = if key.len() > room { key.floor_char_boundary(room - "…".len()) } else { key.len() };
            text.push_str(key.get(..cut).unwrap_or(key));
            text.push_str(if cut < key.len() { "…" } else { "" });
        } else if more > 0 || text.len() + key.len() + 2 > room {
            more += 1;
        } else {
            text.push_str(", ");
            text.push_str(key);
        }
    }
    more += if text.is_empty() { 0 } else { unnamed };
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    (!text.is_empty()).then_some(text)
}
