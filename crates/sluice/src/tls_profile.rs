//! The TLS profile that the `AAQ` asks for, brought to the servers of a process.

use std::sync::Arc;

use serde_json::Value;
use sluice_api::TlsOffer;
use sluice_index::{AaqWire, Aaqs, Watched as _};
use sluice_operator::installation::Asked;
use sluice_runtime::tls::TlsProfile;
use sluice_runtime::watch::Event;
use tokio::sync::watch;

/// Takes over each profile that can be served; any other leaves the one before in use. The operator says so in the status of
/// the `AAQ`.
pub struct ProfileKeeper {
    profile: Arc<TlsProfile>,
    /// What was asked last.
    asked: Value,
}

impl ProfileKeeper {
    /// Until something is asked, servers accept what `profile` says.
    pub fn new(profile: Arc<TlsProfile>) -> Self {
        Self { profile, asked: Value::Null }
    }

    /// `asked`: `spec.tlsSecurityProfile`, null without one.
    fn take(&mut self, asked: &Value) {
        if self.asked == *asked {
            return;
        }
        self.asked = asked.clone();
        let taken = match TlsOffer::of(asked) {
            Ok(offer) => self.profile.accept(&offer.suites).map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = taken {
            tracing::warn!(%error, "spec.tlsSecurityProfile not taken; the profile before stays in use");
        }
    }

    /// Takes what is asked now and whenever that changes, as long as it is followed.
    pub async fn follow(mut self, mut asked: watch::Receiver<Option<Asked>>) {
        asked.mark_changed();
        while asked.changed().await.is_ok() {
            if let Some(asked) = &*asked.borrow_and_update() {
                self.take(&asked.tls_profile);
            }
        }
    }
}

/// The profile of the `AAQ` that counts, from the events of a watch.
pub struct ProfileWatch {
    keeper: ProfileKeeper,
    aaqs: Aaqs,
    is_complete: bool,
}

impl ProfileWatch {
    /// No `AAQ` was seen yet.
    pub fn new(profile: Arc<TlsProfile>) -> Self {
        Self { keeper: ProfileKeeper::new(profile), aaqs: Aaqs::default(), is_complete: false }
    }

    pub fn apply(&mut self, event: &Event<AaqWire>) {
        self.aaqs.apply(event);
        match event {
            Event::Init => self.is_complete = false,
            Event::InitDone => self.is_complete = true,
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
        // In the middle of a list the one that counts may be missing.
        if self.is_complete {
            let asked = self.aaqs.holding().map_or(&Value::Null, |aaq| &aaq.tls_profile);
            self.keeper.take(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn aaq(name: &str, created: &str, profile: &Value) -> AaqWire {
        let metadata = json!({ "name": name, "uid": name, "creationTimestamp": created });
        let spec = json!({ "tlsSecurityProfile": profile });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    /// What is accepted after each event: whether TLS 1.2 is.
    fn accepts(profile: &TlsProfile) -> bool {
        profile.suites().any(|code| code == 0xc02b)
    }

    #[test]
    fn servers_follow_the_aaq_that_counts_and_keep_what_they_have_where_it_cannot_be() {
        let profile = Arc::new(TlsProfile::default());
        let mut watch = ProfileWatch::new(Arc::clone(&profile));
        let (old, young) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        let modern = json!({ "type": "Modern" });
        for (event, expected) in [
            (Event::Init, true),
            (Event::InitApply(aaq("a", young, &json!(null))), true),
            (Event::InitApply(aaq("b", old, &modern)), true),
            (Event::InitDone, false),
            (Event::Apply(aaq("b", old, &json!({ "type": "Custom" }))), false),
            // A list is read again: what is not complete says nothing.
            (Event::Init, false),
            (Event::InitApply(aaq("a", young, &json!(null))), false),
            (Event::InitApply(aaq("b", old, &modern)), false),
            (Event::InitDone, false),
            (Event::Apply(aaq("b", old, &json!({ "type": "Old" }))), true),
            (Event::Apply(aaq("b", old, &modern)), false),
            (Event::Delete(aaq("b", old, &modern)), true),
        ] {
            watch.apply(&event);
            assert_eq!(accepts(&profile), expected, "{event:?}");
        }
    }

    #[tokio::test]
    async fn what_is_asked_before_it_is_followed_counts() {
        let profile = Arc::new(TlsProfile::default());
        let lifetimes = sluice_api::AskedLifetimes::of(&Value::Null);
        let asked = Asked { lifetimes, tls_profile: json!({ "type": "Modern" }) };
        let (sender, receiver) = watch::channel(Some(asked));
        drop(sender);
        ProfileKeeper::new(Arc::clone(&profile)).follow(receiver).await;
        assert!(!accepts(&profile));
    }
}
