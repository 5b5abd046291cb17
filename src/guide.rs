//! The guide to the SDK: a page for each task, with whole programs.
//!
//! The programs are compiled, and run if they need no service.
//!
//! Begin with [clients] and [images]. A program that pays for its images also needs [errors] and [retries], and its tests
//! need [testing]. Those who come from `async-openai` find its calls in [migration].
//!
//! This module has no items. It exists only in the documentation, if the features that it describes are on.

use crate::client::*;
use crate::image::{Format, Size, SizeError, SizeRequest};
use crate::wire::types::CostEstimate;

#[doc = include_str!("guide/admin.md")]
pub mod admin {}

#[doc = include_str!("guide/clients.md")]
pub mod clients {}

#[doc = include_str!("guide/edits.md")]
pub mod edits {}

#[doc = include_str!("guide/errors.md")]
pub mod errors {}

#[doc = include_str!("guide/images.md")]
pub mod images {}

#[doc = include_str!("guide/migration.md")]
pub mod migration {}

#[doc = include_str!("guide/responses.md")]
pub mod responses {}

#[doc = include_str!("guide/retries.md")]
pub mod retries {}

#[doc = include_str!("guide/sizes.md")]
pub mod sizes {}

#[doc = include_str!("guide/streams.md")]
pub mod streams {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}
