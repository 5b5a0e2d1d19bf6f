//! Which version of the operator writes an object, and what it leaves to a newer one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::names;
use sluice_manifests::InstallOptions;

/// Which version writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    /// Of this operator.
    pub(crate) own: &'a str,
    /// What a newer operator has written may be written again.
    pub(crate) may_downgrade: bool,
}

impl Version<'static> {
    /// Of this program, by these options.
    pub(crate) const fn of(options: &InstallOptions) -> Self {
        Self { own: env!("CARGO_PKG_VERSION"), may_downgrade: options.allow_downgrade }
    }
}

impl Version<'_> {
    /// Whether an object of this `writer` is left to it, because that is a newer operator.
    pub(crate) fn leaves(self, writer: Option<&str>) -> bool {
        let theirs = writer.and_then(numbers);
        let is_newer = theirs.zip(numbers(self.own)).is_some_and(|(theirs, ours)| theirs > ours);
        is_newer && !self.may_downgrade
    }

    /// What is said of these objects, which are left; `None` if there are none.
    pub(crate) fn left(self, objects: &[String]) -> Option<String> {
        (!objects.is_empty()).then(|| {
            format!(
                "an operator of a newer version than {} wrote what is there, and it is left: {}: \
                 install that version again, or set allowDowngrade",
                self.own,
                objects.join(", ")
            )
        })
    }
}

/// The version of the operator that has written the object last.
pub(crate) fn writer(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref()?.get(names::WRITER_VERSION_ANNOTATION).cloned()
}

/// Major, minor and patch of a version.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let plain = version.trim_start_matches('v').split(['-', '+']).next()?;
    let mut numbers = plain.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_operator_has_written_is_left_unless_it_may_go_back() {
        let leaves =
            |writer: &str, may_downgrade| Version { own: "1.2.3", may_downgrade }.leaves(Some(writer));
        for newer in ["1.2.4", "v1.10.0-rc.1", "2.0.0"] {
            assert!(leaves(newer, false) && !leaves(newer, true), "{newer}");
        }
        for other in ["1.2.3", "1.1.9", "nonsense", ""] {
            assert!(!leaves(other, false), "{other}");
        }
        assert!(!Version { own: "1.2.3", may_downgrade: false }.leaves(None));
    }
}
