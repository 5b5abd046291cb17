//! The statements that SQLite and PostgreSQL share.
//!
//! This folder is compiled once for each database: `sqlite.rs` and `postgres.rs` include it, and it takes the types of
//! the driver, and the few expressions that differ, from the `dialect` beside it. So one text is tested against both
//! databases, and a statement cannot be changed for one of them only.
//!
//! The writes of records and claims are not here: a local file and a server on the network need different ones.

use super::{dialect, error_conversion};

mod accounts;
mod alerts;
mod audit_trail;
pub(super) mod data_key_unlock;
pub(super) mod data_keys;
mod decode;
mod installation;
pub(super) mod keys;
mod master_key_rotation;
mod paging;
pub(super) mod people;
mod prices;
pub(super) mod records;
pub(super) mod replays;
pub(super) mod retention;
mod single_query;
mod tokens;
pub(super) mod transaction;
pub(super) mod usage;
pub(super) mod usage_details;
pub(super) mod usage_fold;
