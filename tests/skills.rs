//! Tests of skills registry manifests: a corpus with a folder for each rule, a comparison with an independent JSON
//! Schema validator, the Rust types, and the commands of `imagate`.
#![expect(clippy::expect_used, clippy::panic, reason = "a failed assumption fails the test")]
#![expect(clippy::incompatible_msrv, reason = "the program needs a newer Rust than the SDK")]

#[path = "skills/agree.rs"]
mod agree;
#[path = "skills/cases.rs"]
mod cases;
#[cfg(feature = "cli")]
#[path = "skills/cli.rs"]
mod cli;
#[path = "skills/corpus.rs"]
mod corpus;
#[cfg_attr(not(feature = "cli"), expect(dead_code, reason = "the tests of the commands use the remaining items"))]
#[path = "skills/hostile.rs"]
mod hostile;
#[cfg(feature = "cli")]
#[path = "skills/manage.rs"]
mod manage;
#[path = "skills/models.rs"]
mod models;
#[path = "skills/mutate.rs"]
mod mutate;
#[path = "skills/outside.rs"]
mod outside;
#[cfg(feature = "cli")]
#[path = "skills/own.rs"]
mod own;
#[cfg(feature = "cli")]
#[path = "skills/packages.rs"]
mod packages;
#[path = "skills/reference.rs"]
mod reference;
#[path = "skills/repositories.rs"]
mod repositories;
#[path = "skills/required.rs"]
mod required;
