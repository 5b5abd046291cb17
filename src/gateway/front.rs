//! The HTTP layer: connections, extractors and answers.
//!
//! dropshot's own body extractors read a whole body, past its limit, before the key is checked; the ones here hold it
//! unread until a [`Caller`](crate::gateway::keys::Caller) asks for it, then read with a limit and a deadline. They
//! describe themselves to dropshot, so the served description stays that of the document. Only this module and
//! `endpoints` name dropshot.

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

pub(crate) use answer::{HandlerResponse, Reply, ResponseCounter, ResponseKind, answer, respond};
pub(crate) use body::JsonBody;
pub(crate) use connections::ConnectionTable;
pub(crate) use dispatch::nothing_here;
pub(crate) use fault::ApiError;
pub(crate) use form::EditBody;
pub(crate) use form_body::FormBody;
pub(crate) use held::hold;
pub(crate) use listener::raise_descriptor_limit;
pub(crate) use param::Captured;
pub(crate) use query::{Parameters, Query, check_query};
pub use sampled::served_errors;
pub(crate) use server::{HttpServer, ServerError, start};
pub(crate) use unread::UnreadBody;
