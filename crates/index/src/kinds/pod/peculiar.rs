//! What few pods have, kept apart so that the others take no room for it.

use std::sync::Arc;

use super::records::{PodRecord, Pods};
use super::types::{Ownership, Peculiar, PlatformPod};

impl PodRecord {
    /// What of it cannot be read; that is charged with the largest amount there is.
    #[must_use]
    pub fn unreadable(&self) -> Option<&Arc<str>> {
        self.peculiar.as_ref()?.unreadable.as_ref()
    }

    /// Of a pod that a VirtualMachineInstance controls.
    #[must_use]
    pub fn ownership(&self) -> Option<&Ownership> {
        self.peculiar.as_ref()?.ownership.as_ref()
    }

    /// Of a pod that the platform may have created.
    #[must_use]
    pub fn platform(&self) -> Option<&PlatformPod> {
        self.peculiar.as_ref()?.platform.as_ref()
    }
}

impl Pods {
    /// Creators' names are replaced by equal ones that are there already.
    pub(super) fn peculiar(
        &mut self,
        unreadable: Option<Arc<str>>,
        mut ownership: Option<Ownership>,
        mut platform: Option<PlatformPod>,
    ) -> Option<Box<Peculiar>> {
        let owner = ownership.as_mut().and_then(|ownership| ownership.created_by.as_mut());
        let creators = owner.into_iter().chain(platform.as_mut().map(|platform| &mut platform.created_by));
        creators.for_each(|name| self.share_creator(name));
        let peculiar = Peculiar { unreadable, ownership, platform };
        (peculiar != Peculiar::default()).then(|| Box::new(peculiar))
    }
}
