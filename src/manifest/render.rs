//! A report in the words of whoever reads it: a person, a program, a code host, a build server.
//!
//! Decides how a finding looks. Refuses to know where it is printed.

mod github;
mod human;
mod json;
mod junit;
mod sarif;

pub use github::github;
pub use human::{human, summary};
pub use json::json;
pub use junit::junit;
pub use sarif::sarif;
