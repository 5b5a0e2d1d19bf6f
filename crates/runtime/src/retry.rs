//! What a failed API call means for the caller, and how long to wait before the next one.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Outcome of a failed API call, by what the caller must do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// 409: the object changed. Read again and decide again; never send the same write again.
    Conflict,
    /// 404: the object (or its kind) does not exist.
    NotFound,
    /// 422: the server refuses the content; the same request will never succeed.
    Invalid,
    /// 403: not allowed (RBAC, admission, a terminating namespace).
    Forbidden,
    /// 409 with reason `AlreadyExists`: another client created it first.
    AlreadyExists,
    /// 429: not applied; wait at least `retry_after`.
    Throttled {
        /// Wait that the server asked for.
        retry_after: Option<Duration>,
    },
    /// 5xx with this code; the write may have been applied.
    Server(u16),
    /// Connection lost, deadline passed or the answer was unreadable: the write may have been applied.
    Unknown,
    /// Any other refusal, by its code; 0 if the request was never sent.
    Other(u16),
}

impl Failure {
    /// The write may have taken effect although the call failed: read again before repeating it.
    pub fn may_have_applied(self) -> bool {
        matches!(self, Self::Server(_) | Self::Unknown)
    }

    /// Time alone may cure it: the same plan can be tried again after a backoff.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Server(_) | Self::Unknown)
    }

    /// Label for metrics: the HTTP code, or `unknown`.
    pub fn code(self) -> String {
        match self {
            Self::Conflict | Self::AlreadyExists => "409".to_owned(),
            Self::NotFound => "404".to_owned(),
            Self::Invalid => "422".to_owned(),
            Self::Forbidden => "403".to_owned(),
            Self::Throttled { .. } => "429".to_owned(),
            Self::Unknown | Self::Other(0) => "unknown".to_owned(),
            Self::Server(code) | Self::Other(code) => code.to_string(),
        }
    }
}

/// Sorts an error of a call into a [`Failure`].
pub fn classify(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => classify_status(status),
        // The request was never sent: wrong content, or no credentials to send it with.
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) | kube::Error::Auth(_) => Failure::Other(0),
        _ => Failure::Unknown,
    }
}

fn classify_status(status: &kube::core::Status) -> Failure {
    let retry_after = status
        .details
        .as_ref()
        .map(|details| details.retry_after_seconds)
        .filter(|seconds| *seconds > 0)
        .map(|seconds| Duration::from_secs(u64::from(seconds)));
    match status.code {
        409 if status.reason == "AlreadyExists" => Failure::AlreadyExists,
        409 => Failure::Conflict,
        404 => Failure::NotFound,
        422 => Failure::Invalid,
        403 => Failure::Forbidden,
        429 => Failure::Throttled { retry_after },
        code if code >= 500 => Failure::Server(code),
        // A status without a code, cut off on its way, proves nothing about the write.
        0 => Failure::Unknown,
        code => Failure::Other(code),
    }
}

/// Exponential backoff with jitter: the nth wait is between half and all of `base * 2^n`, at most `cap`.
///
/// Pure: the same seed gives the same waits.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    seed: u64,
    failures: u32,
}

impl Backoff {
    /// A fresh backoff. `seed` spreads several of them apart; any value is fine.
    pub fn new(base: Duration, cap: Duration, seed: u64) -> Self {
        Self { base, cap, seed, failures: 0 }
    }

    /// Notes one more failure and says how long to wait.
    pub fn failed(&mut self) -> Duration {
        let whole = self
            .base
            .checked_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX))
            .map_or(self.cap, |wait| wait.min(self.cap));
        let draw = mix(self.seed.wrapping_add(u64::from(self.failures))) % 1024;
        self.failures = self.failures.saturating_add(1);
        let half = whole / 2;
        // draw < 1024, so the conversion keeps the value.
        half + half.mul_f64(f64::from(u32::try_from(draw).unwrap_or(0)) / 1024.0)
    }

    /// Forgets all failures; to be called on success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// One [`Backoff`] per key; keys that succeed cost nothing.
#[derive(Debug)]
pub struct Backoffs<K> {
    base: Duration,
    cap: Duration,
    seed: u64,
    failing: HashMap<K, Backoff>,
}

impl<K: Hash + Eq> Backoffs<K> {
    /// Backoffs from `base` up to 60 s.
    pub fn new(base: Duration, seed: u64) -> Self {
        Self { base, cap: Duration::from_secs(60), seed, failing: HashMap::new() }
    }

    /// Notes a failure of `key` and says how long to leave it alone.
    pub fn failed(&mut self, key: K) -> Duration {
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        let seed = self.seed ^ hasher.finish();
        let (base, cap) = (self.base, self.cap);
        self.failing.entry(key).or_insert_with(|| Backoff::new(base, cap, seed)).failed()
    }

    /// Forgets the failures of `key`: it succeeded or is gone.
    pub fn reset<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.failing.remove(key);
    }

    /// How many keys are failing now.
    pub fn len(&self) -> usize {
        self.failing.len()
    }

    /// No key is failing.
    pub fn is_empty(&self) -> bool {
        self.failing.is_empty()
    }
}

/// A seed that differs between processes, for jitter.
pub fn process_seed() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(std::process::id())
}

/// The finaliser of splitmix64: spreads neighbouring inputs over all 64 bits.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api(code: u16, reason: &str) -> Failure {
        classify(&kube::Error::Api(Status::failure("x", reason).with_code(code).boxed()))
    }

    #[test]
    fn codes_and_reasons_are_told_apart() {
        assert_eq!(api(409, "Conflict"), Failure::Conflict);
        assert_eq!(api(409, "AlreadyExists"), Failure::AlreadyExists);
        assert_eq!(api(404, "NotFound"), Failure::NotFound);
        assert_eq!(api(422, "Invalid"), Failure::Invalid);
        assert_eq!(api(403, "Forbidden"), Failure::Forbidden);
        assert_eq!(api(429, "TooManyRequests"), Failure::Throttled { retry_after: None });
        assert_eq!(api(500, "InternalError"), Failure::Server(500));
        assert_eq!(api(504, "Timeout"), Failure::Server(504));
        assert_eq!(api(410, "Expired"), Failure::Other(410));
        assert_eq!(api(0, ""), Failure::Unknown);
    }

    #[test]
    fn only_unsure_outcomes_may_have_applied() {
        assert!(api(503, "").may_have_applied());
        assert!(Failure::Unknown.may_have_applied());
        assert!(!api(429, "").may_have_applied());
        assert!(!api(409, "Conflict").may_have_applied());
        let unreadable = serde_json::from_str::<u8>("x").unwrap_err();
        assert!(classify(&kube::Error::SerdeError(unreadable)).may_have_applied());
    }

    #[test]
    fn waits_double_up_to_the_cap_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60), 7);
        let waits: Vec<_> = (0..80).map(|_| backoff.failed()).collect();
        for (n, wait) in waits.iter().enumerate() {
            let whole = Duration::from_millis(100)
                .saturating_mul(2_u32.saturating_pow(n as u32))
                .min(Duration::from_secs(60));
            assert!(
                *wait >= whole / 2 && *wait <= whole,
                "wait {n} is {wait:?}, want {:?}..={whole:?}",
                whole / 2
            );
        }
        backoff.reset();
        assert_eq!(backoff.failed(), waits[0], "the same seed gives the same waits");
        let mut other = Backoff::new(Duration::from_millis(100), Duration::from_secs(60), 8);
        assert_ne!(other.failed(), waits[0], "another seed gives other waits");
    }

    #[test]
    fn keys_do_not_disturb_each_other() {
        let mut backoffs = Backoffs::new(Duration::from_secs(1), 1);
        for _ in 0..10 {
            backoffs.failed("poison".to_owned());
        }
        assert!(backoffs.failed("poison".to_owned()) >= Duration::from_secs(30));
        assert!(backoffs.failed("fresh".to_owned()) <= Duration::from_secs(1));
        backoffs.reset("poison");
        assert!(backoffs.failed("poison".to_owned()) <= Duration::from_secs(1));
        assert_eq!(backoffs.len(), 2);
    }
}
