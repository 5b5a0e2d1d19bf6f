//! How large a guest is.

use std::fmt;

use super::{VmError, VmFacts};
use crate::charge::Amount;

/// `cpu` and `memory` of a resource list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAndMemory {
    pub cpu: Option<Amount>,
    pub memory: Option<Amount>,
}

/// The CPUs of a guest; 0 stands for a field that is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    pub cores: u32,
    pub sockets: u32,
    pub threads: u32,
}

impl CpuTopology {
    /// How many CPUs that are: the product of what is not 0; 0 if all are. `None` above 32 bits, where KubeVirt's own
    /// multiplication wraps.
    // KubeVirt 1.7: pkg/util/hardware/hw_utils.go, GetNumberOfVCPUs.
    #[must_use]
    pub fn vcpus(self) -> Option<u32> {
        let factors = [self.cores, self.sockets, self.threads];
        let mut factors = factors.into_iter().filter(|factor| *factor != 0).peekable();
        if factors.peek().is_none() {
            return Some(0);
        }
        factors.try_fold(1_u32, u32::checked_mul)
    }
}

/// Where a size is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the VM is to have.
    Spec,
    /// What the VM has: the status, and where that says nothing the specification.
    Status,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spec => "spec.domain.cpu",
            Self::Status => "status.currentCPUTopology",
        })
    }
}

/// CPUs and memory of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSize {
    pub cpu: Amount,
    /// Bytes.
    pub memory: Amount,
}

impl GuestSize {
    /// Of both amounts the larger one.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

impl VmFacts {
    /// The larger of what it has and what it is to have: KubeVirt gives it the latter without asking again.
    ///
    /// # Errors
    /// See [`VmError`].
    pub fn size(&self) -> Result<GuestSize, VmError> {
        Ok(self.size_in(Side::Status)?.max(self.size_in(Side::Spec)?))
    }

    /// Whether it is to have more than it has: more CPUs or more memory.
    ///
    /// # Errors
    /// It is to have something that cannot be counted, and has something that can be.
    pub fn is_growing(&self) -> Result<bool, VmError> {
        let is_more = |has: Result<Amount, VmError>, wanted: Result<Amount, VmError>| match has {
            Ok(has) => wanted.map(|wanted| wanted > has),
            Err(_) => Ok(false),
        };
        let cpu = is_more(self.cpu(Side::Status), self.cpu(Side::Spec))?;
        Ok(is_more(self.memory(Side::Status), self.memory(Side::Spec))? || cpu)
    }

    /// How much memory was plugged in that its present pod was not made for; 0 where that is not known.
    #[must_use]
    pub fn plugged_memory(&self) -> Amount {
        match (self.memory(Side::Spec), self.memory(Side::Status)) {
            (Ok(wanted), Ok(has)) => wanted.saturating_sub(has).max(Amount::ZERO),
            _ => Amount::ZERO,
        }
    }

    /// The CPUs of its present pod, those of its I/O threads among them.
    ///
    /// # Errors
    /// See [`VmError`].
    pub fn present_cpus(&self) -> Result<Amount, VmError> {
        let threads = Amount::from_nanos(i128::from(self.io_threads).saturating_mul(Amount::ONE.nanos()));
        Ok(self.cpu(Side::Status)?.saturating_add(threads))
    }

    fn size_in(&self, side: Side) -> Result<GuestSize, VmError> {
        Ok(GuestSize { cpu: self.cpu(side)?, memory: self.memory(side)? })
    }

    fn memory(&self, side: Side) -> Result<Amount, VmError> {
        let requested = self.requested_memory.filter(|_| side == Side::Status);
        let stated = [requested, self.guest_memory, self.requests.memory, self.limits.memory];
        let memory = stated.into_iter().flatten().find(|amount| !amount.is_zero());
        in_range("memory", memory.ok_or(VmError::NoMemory)?)
    }

    fn cpu(&self, side: Side) -> Result<Amount, VmError> {
        let current = self.current_topology.filter(|_| side == Side::Status);
        let topologies = [(Side::Status, current), (Side::Spec, self.topology)];
        let stated = topologies.into_iter().find_map(|(side, topology)| Some((side, topology?)));
        let cpu = match stated {
            Some((side, topology)) => {
                let vcpus = topology.vcpus().ok_or(VmError::TooManyCpus { side, topology })?;
                Amount::from_nanos(i128::from(vcpus) * Amount::ONE.nanos())
            }
            None => self.requests.cpu.or(self.limits.cpu).unwrap_or_default(),
        };
        // KubeVirt gives a guest that says nothing one CPU.
        in_range("cpu", if cpu.is_zero() { Amount::ONE } else { cpu })
    }
}

fn in_range(resource: &'static str, amount: Amount) -> Result<Amount, VmError> {
    let is_in_range = (Amount::ZERO..=Amount::LIMIT).contains(&amount);
    if is_in_range { Ok(amount) } else { Err(VmError::OutOfRange { resource }) }
}
