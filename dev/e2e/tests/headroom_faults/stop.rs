//! Requests that stand still together.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_testbed::proxy::{Action, FaultProxy, Rule};
use sluice_testbed::wait;

use crate::steps::Step;

const SOON: Duration = Duration::from_secs(60);

/// Holds requests back until all that are wanted are there and something was done.
#[derive(Default)]
pub struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wanted: usize,
    /// Namespaces in which a request stands.
    held: BTreeSet<String>,
    open: bool,
}

impl Stop {
    /// Holds requests of this kind in the namespace: before they reach the API server, or, if the answer is to be lost,
    /// after the API server has done what they ask for.
    pub fn hold(&self, proxy: &FaultProxy, namespace: &str, step: &Step, action: Action) {
        let step = step.clone();
        self.hold_all(proxy, namespace, action, move |other| *other == step);
    }

    /// Holds every kind of request in the namespace for which this is true.
    pub fn hold_all(
        &self,
        proxy: &FaultProxy,
        namespace: &str,
        action: Action,
        is_held: impl Fn(&Step) -> bool + Send + Sync + 'static,
    ) {
        self.0.state().wanted += 1;
        let (inner, name) = (Arc::clone(&self.0), namespace.to_owned());
        let rule = Rule::new(action).when(move |request| {
            !inner.state().open && Step::of(request, &name).is_some_and(|step| is_held(&step))
        });
        let (inner, name) = (Arc::clone(&self.0), namespace.to_owned());
        proxy.add(rule.then(move |_| inner.stand(&name)));
    }

    /// Returns when one stands still in every namespace.
    pub async fn until_all_stand(&self) {
        let all = || async {
            let state = self.0.state();
            (state.held.len() == state.wanted).then_some(())
        };
        let waited = wait::eventually(SOON, all, "every window to stand where it is wanted").await;
        waited.unwrap_or_else(|error| panic!("{error}; only: {:?}", self.0.state().held.clone()));
    }

    /// Lets them go, and holds no others.
    pub fn let_go(&self) {
        self.0.state().open = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Stop {
    /// A test that fails must not wait for those that stand.
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stand(&self, namespace: &str) {
        let mut state = self.state();
        state.held.insert(namespace.to_owned());
        drop(self.changed.wait_while(state, |state| !state.open));
    }
}
