//! What a window may come to raise, as far as that can be said before it is locked.

use std::sync::Arc;

use super::plan::{Raise, RaisedKey};
use super::quota::{NativeQuota, consumed};
use super::{Amounts, Need};
use crate::charge::Amount;
use crate::quantity::Quantity;
use crate::resource::Resource;

/// The most that an opening for `need` can raise: until it is locked, others may still use what `status.hard` allows,
/// and then the target comes on top. Only keys that are exceeded or could be: twice the need does not fit. Amounts that
/// cannot be added are left out; no raise comes of them either.
///
/// Whoever shares a pool with this opening counts on it (design §6, budget `Pool`).
#[must_use]
pub fn reserve(need: &Need, quotas: &[NativeQuota]) -> Vec<Raise> {
    quotas
        .iter()
        .filter(|quota| quota.scopes.matches(&need.facts))
        .filter_map(|quota| of(need, quota))
        .collect()
}

fn of(need: &Need, quota: &NativeQuota) -> Option<Raise> {
    let mut hard: Amounts = quota.status_hard.clone();
    let mut keys = Vec::new();
    for (key, enforced) in quota.status_hard.iter().filter(|(key, _)| consumed(key)) {
        let (Some(amount), Some(used)) = (need.of(&Resource::from_quota_key(key)), quota.used.get(key))
        else {
            continue;
        };
        let Some(to) = most(amount, *used, *enforced) else { continue };
        hard.insert(Arc::clone(key), to);
        keys.push(RaisedKey { key: Arc::clone(key), from: *enforced, to });
    }
    let (name, uid) = (Arc::clone(&quota.name), quota.uid.clone());
    (!keys.is_empty()).then_some(Raise { quota: name, uid, hard, keys, marked: false })
}

fn most(need: Amount, used: Quantity, enforced: Quantity) -> Option<Quantity> {
    let (used, limit) = (Amount::from(used), Amount::from(enforced));
    let twice = used.checked_add(need)?.checked_add(need)?;
    if twice <= limit {
        return None;
    }
    Some(used.max(limit).checked_add(need)?.quantity(enforced.format()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uid::Uid;
    use crate::{Charge, Format, ScopeFacts};

    fn units(units: i64) -> Quantity {
        Quantity::from_units(units, Format::DecimalSi)
    }

    fn quota(hard: i64, used: i64) -> NativeQuota {
        let amounts = |amount| Amounts::from([(Arc::from("requests.cpu"), units(amount))]);
        NativeQuota {
            spec_hard: amounts(hard),
            status_hard: amounts(hard),
            used: amounts(used),
            ..NativeQuota::new("q", Uid::parse("u"))
        }
    }

    fn most_of(hard: i64, used: i64) -> Option<String> {
        let charge = Charge::from_pairs([(Resource::Cpu, Amount::from(units(3)))]);
        let need = Need::new(charge, ScopeFacts::default());
        let raises = reserve(&need, &[quota(hard, used)]);
        raises.first().map(|raise| raise.keys[0].to.to_string())
    }

    #[test]
    fn the_room_that_is_left_may_be_used_up_before_the_lock() {
        assert_eq!(most_of(10, 4), None, "6 fit twice");
        assert_eq!(most_of(10, 5).as_deref(), Some("13"), "one fits now, 5 may be taken before");
        assert_eq!(most_of(10, 10).as_deref(), Some("13"));
        assert_eq!(most_of(10, 12).as_deref(), Some("15"), "over already");
    }
}
