//! `sluice dashboard`: quotas, what waits and why, in a browser on the same machine.
//!
//! ```text
//!  watches ──▶ Model ──▶ pages ──▶ sections ──▶ the changed ones to each open page
//!  answers ──────────────┘
//! ```
//! The model has no client, and pages are pure functions of the model, of the answer about the subject that is open, and of
//! the time. Who feeds the model and answers is the caller's ([`Cluster`]).

mod answer;
mod guard;
mod history;
mod model;
mod page;
mod pages;
mod seen;
mod server;
mod stream;
#[cfg(test)]
mod style_tests;
mod table;
mod treemap;

pub use answer::{
    Answer, Asked, Cluster, Drain, DrainRow, Followed, Link, QuotaTold, Recorded, SubjectKind, Told,
};
pub use model::{Interruption, Model, Shared};
pub use seen::{Condition, Kind, Line, Migration, Quota, Share};
pub use server::{Bound, bind};
pub use table::{Change, Name};
