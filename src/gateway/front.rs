//! The HTTP layer: connections, extractors and responses.
//!
//! dropshot's own body extractors read a whole body, even beyond its limit, before the API key is checked. The
//! extractors of this module keep the body unread until the request is authenticated
//! ([`Caller`](crate::gateway::keys::Caller)), and then read it with a limit and a deadline. They provide dropshot with
//! the same metadata as its own extractors, so the generated API description matches the document. Only this module and
//! `endpoints` use dropshot.

mod api_error;
mod body;
mod client_connection;
mod connection_activity;
mod connections;
mod cors;
mod dispatch;
mod dropshot_server;
mod error_samples;
mod form;
mod form_body;
#[cfg(test)]
mod framed_body;
mod gathered_body;
mod listener;
mod local_dispatcher;
mod path_parameters;
mod query;
mod request;
mod request_body;
mod request_head;
mod request_id;
mod response;
mod route;
mod served_connection;
mod server;
mod spooled_response;

pub(crate) use api_error::ApiError;
pub(crate) use body::{JsonBody, UnreadRequestBody, json_text_error, spool_error};
pub(crate) use connections::ConnectionTable;
pub(crate) use cors::CorsSettings;
pub(crate) use dispatch::not_found;
pub(crate) use dropshot_server::{DropshotServer, register_routes, start_dropshot_server};
pub use error_samples::served_errors;
pub(crate) use form::{EditBody, FormNames, FormSettings, ImagePageForm};
pub(crate) use form_body::FormBody;
pub(crate) use gathered_body::GatheredBody;
pub(crate) use local_dispatcher::LocalDispatcher;
pub(crate) use path_parameters::PathParameters;
pub(crate) use query::{Query, QueryParameters, check_query};
pub(crate) use request::{AdmittingServer, RequestHead};
pub(crate) use response::{
    HandlerError, HandlerResponse, PageContent, ResponseCounter, ResponseKind, SchemaMarker, TypedResponse,
    error_content, run_handler, run_page_handler,
};
pub(crate) use route::{HandlerFuture, Route, RouteRequest, boxed_answer};
pub(crate) use server::{ServerError, start};
pub(crate) use spooled_response::spool_response;
