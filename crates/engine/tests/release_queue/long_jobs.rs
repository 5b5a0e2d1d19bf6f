//! Quotas in which pods end more seldom than patience lasts, by the simulation of [`crate::turns`].

use crate::turns::{
    HOUR, MINUTE, Mix, Quota, Small, assert_goes, assert_never_goes, churn, head, mix, own, shared,
};

fn jobs(quota: Quota, services: i128, cpu: i128) -> Mix {
    let jobs = churn(1, &[0], HOUR, 3 * HOUR);
    mix(vec![quota], &[(1, &[0], services)], vec![jobs], vec![head(2, &[0], cpu)])
}

/// One ends each 12 minutes, and patience lasts a minute.
#[test]
fn among_ten_jobs_of_hours_a_large_one_goes() {
    for cpu in [5, 8] {
        assert_goes(&format!("ten jobs, own, {cpu}"), &jobs(own(10), 0, cpu));
        assert_goes(&format!("ten jobs, shared, {cpu}"), &jobs(shared(10), 0, cpu));
    }
    assert_never_goes("jobs beside a service, own", &jobs(own(10), 1, 10));
    assert_never_goes("jobs beside a service, shared", &jobs(shared(10), 1, 10));
}

/// A pod that comes begins no turn, and takes what is free already. A turn begins when the next one ends.
#[test]
fn where_room_is_free_that_is_not_enough_a_large_one_goes() {
    for (every, lives, cpu) in [(3, (30 * MINUTE, 40 * MINUTE), 15), (10, (80 * MINUTE, 2 * HOUR), 14)] {
        let of = |quota| {
            let comes = Small { share: 1, quotas: &[0], lives, every: Some(every * MINUTE) };
            mix(vec![quota], &[], vec![comes], vec![head(2, &[0], cpu)])
        };
        assert_goes(&format!("one each {every} minutes, own"), &of(own(20)));
        assert_goes(&format!("one each {every} minutes, shared"), &of(shared(20)));
    }
}
