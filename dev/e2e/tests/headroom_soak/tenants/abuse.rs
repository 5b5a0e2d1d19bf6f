//! A tenant with `edit` in a namespace tries to take the room that is made for migrations.

mod flood;
mod forged;
mod locked;
mod pool;
