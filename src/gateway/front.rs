//! The HTTP layer: connections, extractors and answers.
//!
//! dropshot's own body extractors read a body to its end before anybody has looked at the key, and past its limit; the
//! ones here hold it unread until a [`Caller`](crate::gateway::keys::Caller) asks for it, then read with a limit and a
//! deadline. They describe themselves in dropshot's words, so the served description stays that of the document.
//! Together with `endpoints` this is the only room that names dropshot.

mod activity;
mod answer;
mod body;
mod coding;
mod connections;
mod context;
mod dispatch;
mod fault;
mod form;
mod form_body;
#[cfg(test)]
mod framed;
mod held;
mod listener;
mod param;
mod query;
mod sampled;
mod server;
mod serving;
mod unread;

pub(crate) use answer::{Answer, Counts, Kind, Reply, answer, respond};
pub(crate) use body::JsonBody;
pub(crate) use connections::Connections;
pub(crate) use dispatch::nothing_here;
pub(crate) use fault::ApiError;
pub(crate) use form::EditBody;
pub(crate) use form_body::FormBody;
pub(crate) use held::hold;
pub(crate) use listener::raise_descriptor_limit;
pub(crate) use param::Captured;
pub(crate) use query::{Parameters, Query, check_query};
pub use sampled::served_errors;
pub(crate) use server::{Server, ServerError, start};
pub(crate) use unread::Unread;
