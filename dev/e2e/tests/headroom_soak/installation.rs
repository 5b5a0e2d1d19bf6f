//! An installation is upgraded, its cluster is upgraded, and it is removed, while pods and machines go on.

mod kubernetes;
mod removal;
mod versions;
