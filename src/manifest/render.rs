//! Formats a report for its reader: a person, a program, a code host or a build server.
//!
//! The module decides the appearance of a finding. It must not know the destination of the text.

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
