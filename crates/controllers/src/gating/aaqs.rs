//! The `AAQ`s, and what they say about virtual machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::{Pause, PauseError, read_pause};
use sluice_engine::vm::Calculator;
use sluice_index::{AaqRecord, AaqSpecWire, AaqWire, Aaqs, Watched as _};
use sluice_runtime::watch::Event;

const FIELD: &str = "spec.configuration.vmiCalculatorConfiguration";
/// Longest part of a name that is repeated.
const MAX_SHOWN: usize = 100;

/// All `AAQ`s.
#[derive(Debug, Default)]
pub(super) struct KnownAaqs {
    aaqs: Aaqs,
    /// What is told, by the name of the `AAQ`, of a calculator that is not known.
    unknown: BTreeMap<String, String>,
}

/// How virtual machines are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InForce {
    pub calculator: Calculator,
    /// For people.
    pub message: String,
}

impl KnownAaqs {
    /// Applies an event of the watch. Returns whether it was news.
    pub fn apply(&mut self, event: &Event<AaqWire>) -> bool {
        if let Event::InitApply(aaq) | Event::Apply(aaq) | Event::Delete(aaq) = event {
            let name = aaq.metadata.name.clone().unwrap_or_default();
            match unknown(&aaq.spec) {
                Some(told) => self.unknown.insert(name, told),
                None => self.unknown.remove(&name),
            };
        }
        !self.aaqs.apply(event).is_empty()
    }

    /// All of them by name.
    pub fn all(&self) -> &[Arc<AaqRecord>] {
        self.aaqs.all()
    }

    /// What the one that counts says of a pause, if it does.
    pub fn pause(&self, now: Timestamp) -> Result<Option<Pause>, PauseError> {
        read_pause(self.aaqs.holding().and_then(|aaq| aaq.pause.as_ref()), now)
    }

    /// How the one that counts says that virtual machines are counted.
    pub fn in_force(&self) -> Option<InForce> {
        let aaq = self.aaqs.holding()?;
        let unknown = self.unknown.get(&*aaq.name).into_iter().map(String::as_str);
        let said: Vec<&str> = unknown.chain([aaq.calculator.explanation()]).collect();
        Some(InForce { calculator: aaq.calculator, message: said.join("; ") })
    }
}

/// What is told of a calculator that is not known. The schema of the kind knows them all, but others may have installed it.
fn unknown(spec: &AaqSpecWire) -> Option<String> {
    let names = spec.configuration.as_ref()?.vmi_calculator_configuration.as_ref()?;
    let fields = [("vmiCalcConfigName", &names.vmi_calc_config_name), ("configName", &names.config_name)];
    let (field, name) = fields.into_iter().find_map(|(field, name)| {
        let name = name.as_deref().filter(|name| !name.is_empty())?;
        Some((field, name))
    })?;
    if Calculator::from_name(name).is_some() {
        return None;
    }
    let shown = name.get(..name.floor_char_boundary(MAX_SHOWN)).unwrap_or_default();
    let known = Calculator::ALL.map(Calculator::name).join(", ");
    Some(format!(
        "{FIELD}.{field}: \"{shown}\" is no calculator, VmiPodUsage is used: set it to one of {known}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn aaq(name: &str, created: &str, names: Value) -> AaqWire {
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": name, "creationTimestamp": created },
            "spec": { "configuration": { "vmiCalculatorConfiguration": names } },
        }))
        .unwrap()
    }

    #[test]
    fn the_calculator_of_the_aaq_that_counts_is_in_force() {
        let mut aaqs = KnownAaqs::default();
        assert_eq!(aaqs.in_force(), None);
        aaqs.apply(&Event::InitDone);
        for (name, created, calculator) in
            [("b", "2026-01-02T00:00:00Z", "Guess"), ("a", "2026-01-01T00:00:00Z", "VirtualResources")]
        {
            assert!(aaqs.apply(&Event::Apply(aaq(name, created, json!({ "configName": calculator })))));
        }
        let calculator = Calculator::VirtualResources;
        let message = calculator.explanation().to_owned();
        assert_eq!(aaqs.in_force(), Some(InForce { calculator, message }));
    }

    #[test]
    fn a_name_that_is_not_known_is_told_with_its_field_until_it_is_gone() {
        let told = |names: Value| {
            let mut aaqs = KnownAaqs::default();
            aaqs.apply(&Event::Apply(aaq("a", "2026-01-01T00:00:00Z", names)));
            let told = aaqs.in_force().unwrap();
            aaqs.apply(&Event::Apply(aaq(
                "a",
                "2026-01-01T00:00:00Z",
                json!({ "configName": "VmiPodUsage" }),
            )));
            assert_eq!(aaqs.in_force().unwrap().message, Calculator::VmiPodUsage.explanation());
            told
        };
        let guessed = told(json!({ "configName": "Guess" }));
        assert_eq!(guessed.calculator, Calculator::VmiPodUsage);
        assert!(
            guessed.message.starts_with(
                "spec.configuration.vmiCalculatorConfiguration.configName: \"Guess\" is no calculator, VmiPodUsage is \
                 used: set it to one of VmiPodUsage, VirtualResources, DedicatedVirtualResources, \
                 GuestEffectiveResources, IgnoreVmiCalculator; a virtual machine takes what"
            ),
            "{}",
            guessed.message
        );
        let other = told(json!({ "configName": "VirtualResources", "vmiCalcConfigName": "ä".repeat(1_000) }));
        assert!(
            other.message.contains(".vmiCalcConfigName: \"ä") && other.message.len() < 1_000,
            "{other:?}"
        );
        for known in [json!(null), json!({}), json!({ "configName": "" })] {
            assert!(!told(known).message.contains("is no calculator"));
        }
    }
}
