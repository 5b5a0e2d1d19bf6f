//! Pods that KubeVirt and CDI create in the namespaces of tenants, beside the launchers of VMs: which of them are exempt.
//!
//! Who creates what, in KubeVirt 1.3 to 1.9 and CDI 1.66:
//!
//! * `<KubeVirt's namespace>:kubevirt-controller` (`pkg/virt-operator/resource/generate/components/serviceaccountnames.go`)
//!   creates launchers (`virt-launcher-…`), attachment pods of volumes that are plugged into a running VM (`hp-volume-…`,
//!   one or a few per launcher, controlled by that: `pkg/virt-controller/services/template.go`, `RenderHotplugAttachment…`)
//!   and servers of exports (`virt-export-…`, one per VirtualMachineExport: `RenderExporterManifest`).
//! * `<CDI's namespace>:cdi-sa` (`pkg/operator/resources/cluster/controller.go`) creates importers, uploaders, cloners,
//!   populators and pods that find out sizes, one or a few per PersistentVolumeClaim (`pkg/controller`).
//!
//! Evidence is the creator's stamp, which nothing but admission writes, and the name, which is the creator's choice and
//! cannot be changed: KubeVirt's pods begin with a constant. All else can be written by a client that may update pods, and
//! CDI copies labels of claims onto its pods. So labels, annotations and the reference to an owner are claims: with them
//! alone an export's pod, or a launcher, could be made to look like an attachment.

use std::collections::BTreeSet;

use sluice_api::names;

/// What is done with pods that controllers of the platform create in namespaces of tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlatformPods {
    /// None is charged. How many there are is the choice of tenants, by exports and claims.
    Exempt,
    /// Each is charged as the pod that it is, as in application-aware-quota.
    Counted,
    /// Those that a VM cannot do without are not charged while the VM is. A migration waits without limit for the attachment
    /// pods of its target (`pkg/virt-controller/watch/migration/migration.go`, `MigrationScheduling`), also in a full quota
    /// in which the target costs nothing. The others have no VM that is charged and bounds their number:
    /// they are charged, and wait.
    #[default]
    WithMachine,
}

/// Whether a pod of the platform is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// As any other pod.
    Never,
    /// It is not.
    Always,
    /// It is not while the VM of the launcher that controls it is charged, by whichever calculator: in all of them a
    /// migration that takes nothing has to go on, and what is given away is as small as KubeVirt's administrator wants (10
    /// millicores and 2 MB by default).
    WithMachine,
}

/// Which pods are the platform's, and what is done with them.
#[derive(Clone, Debug, Default)]
pub struct Platform {
    pods: PlatformPods,
    accounts: BTreeSet<Box<str>>,
}

/// Pods that attach volumes to a running VM.
const ATTACHMENT: &str = "hp-volume-";
/// Pods that serve the volumes of an export.
const EXPORT: &str = "virt-export-";

impl Platform {
    /// `accounts` are the names of users whose pods are all the platform's, beside KubeVirt's controller, of which some are.
    pub fn new(pods: PlatformPods, accounts: impl IntoIterator<Item = String>) -> Self {
        Self { pods, accounts: accounts.into_iter().map(String::into_boxed_str).collect() }
    }

    /// Whether a pod of this name and creator is exempt. `kubevirt` is the name of KubeVirt's controller.
    pub fn exemption(&self, name: &str, creator: &str, kubevirt: Option<&str>) -> Exemption {
        let is_kubevirts = kubevirt == Some(creator);
        match self.pods {
            PlatformPods::Exempt
                if is_kubevirts && [ATTACHMENT, EXPORT].iter().any(|it| name.starts_with(it)) =>
            {
                Exemption::Always
            }
            PlatformPods::WithMachine if is_kubevirts && name.starts_with(ATTACHMENT) => {
                Exemption::WithMachine
            }
            PlatformPods::Exempt if !is_kubevirts && self.accounts.contains(creator) => Exemption::Always,
            _ => Exemption::Never,
        }
    }

    /// Whether a pod of this name and creator may be exempt, wherever KubeVirt turns out to be installed.
    pub fn may_be_exempt(&self, name: &str, creator: &str) -> bool {
        let account = creator.rsplit(':').next();
        let kubevirt = (account == Some(names::KUBEVIRT_CONTROLLER_ACCOUNT)).then_some(creator);
        self.exemption(name, creator, kubevirt) != Exemption::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBEVIRT: &str = "system:serviceaccount:kubevirt:kubevirt-controller";
    const CDI: &str = "system:serviceaccount:cdi:cdi-sa";
    const TENANT: &str = "system:serviceaccount:team:kubevirt-controller";

    /// For attachment, export, launcher and importer.
    fn exemptions(pods: PlatformPods, creator: &str, kubevirt: Option<&str>) -> [Exemption; 4] {
        let platform = Platform::new(pods, [CDI.to_owned()]);
        ["hp-volume-x7d9k", "virt-export-nightly", "virt-launcher-vm-x7d9k", "importer-prime-5f1c"]
            .map(|name| platform.exemption(name, creator, kubevirt))
    }

    #[test]
    fn who_has_created_a_pod_and_how_it_called_it_says_whether_it_is_exempt() {
        use Exemption::{Always, Never, WithMachine};
        use PlatformPods::{Counted, Exempt};
        let default = PlatformPods::default();
        for (pods, creator, expected) in [
            (default, KUBEVIRT, [WithMachine, Never, Never, Never]),
            (default, CDI, [Never; 4]),
            (default, TENANT, [Never; 4]),
            (Exempt, KUBEVIRT, [Always, Always, Never, Never]),
            (Exempt, CDI, [Always; 4]),
            (Exempt, TENANT, [Never; 4]),
            (Counted, KUBEVIRT, [Never; 4]),
            (Counted, CDI, [Never; 4]),
        ] {
            assert_eq!(exemptions(pods, creator, Some(KUBEVIRT)), expected, "{pods:?} {creator}");
        }
    }

    #[test]
    fn while_kubevirts_controller_is_not_known_no_pod_is_its_own() {
        assert_eq!(exemptions(PlatformPods::default(), KUBEVIRT, None), [Exemption::Never; 4]);
        assert_eq!(exemptions(PlatformPods::Exempt, KUBEVIRT, None), [Exemption::Never; 4]);
    }

    #[test]
    fn what_may_be_exempt_is_known_before_kubevirt_is() {
        let platform = Platform::default();
        assert!(platform.may_be_exempt("hp-volume-x7d9k", KUBEVIRT));
        assert!(platform.may_be_exempt("hp-volume-x7d9k", TENANT));
        assert!(!platform.may_be_exempt("virt-launcher-x7d9k", KUBEVIRT));
        assert!(!platform.may_be_exempt("hp-volume-x7d9k", "system:serviceaccount:team:builder"));
        assert!(!platform.may_be_exempt("hp-volume-x7d9k", "someone"));
        assert!(!platform.may_be_exempt("importer-prime-5f1c", CDI));
        let exempt = Platform::new(PlatformPods::Exempt, [CDI.to_owned()]);
        assert!(exempt.may_be_exempt("importer-prime-5f1c", CDI));
        assert!(!exempt.may_be_exempt("web-0", "system:serviceaccount:kube-system:replicaset-controller"));
    }
}
