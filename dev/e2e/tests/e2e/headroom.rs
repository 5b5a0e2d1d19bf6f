//! Live migrations under native quotas, with the real virt-controller.

mod reactive;
mod sweep;
mod window;
