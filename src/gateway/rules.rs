//! Request → `Job`, or a rejection that names the parameter.
//!
//! Pure: no clock, no socket, no store. What one field may be stands in the document and reaches this room as a table
//! ([`fields`]); what fields may be together stands here ([`image`], [`response`]). A refused request has cost nothing
//! upstream.
//! It carries the size rules, the tables of request fields, and the combinations that are incompatible.

mod fields;
mod image;
mod job;
mod response;
mod task;

pub(crate) use fields::{check as check_fields, object as read_object};
pub(crate) use image::{edit, generation};
pub(crate) use job::Job;
pub(crate) use response::{ImageTool, ResponseJob, response};
pub(crate) use task::Task;
