//! Answers requests of the process itself, which come over no connection.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use dropshot::Body;
use http::header::HOST;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Collected};

use super::cors::CorsSettings;
use super::dispatch::RequestDispatcher;
use super::route::Route;
use super::server::ServerError;

/// The peer and the host of every request.
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const LOCAL_HOST: HeaderValue = HeaderValue::from_static("localhost");

/// The routes of a server that listens nowhere.
pub(crate) struct LocalDispatcher<C>(RequestDispatcher<C>);

// === impl LocalDispatcher ===

impl<C: CorsSettings> LocalDispatcher<C> {
    /// # Errors
    ///
    /// Returns an error if two routes contradict each other.
    pub(crate) fn new(routes: Vec<Route<C>>, server: C) -> Result<Self, ServerError> {
        Ok(Self(RequestDispatcher::new(routes, server)?))
    }

    /// Answers a request as a connection of the gateway would. An answer whose body breaks off has no body, so that its
    /// reader refuses it.
    pub(crate) async fn answer(&self, mut request: Request<Bytes>) -> Response<Bytes> {
        request.headers_mut().insert(HOST, LOCAL_HOST);
        let admission = self.0.begin_admission(PEER, request.headers());
        let (head, body) = self.0.dispatch(request.map(Body::from), PEER, admission).await.into_parts();
        Response::from_parts(head, body.collect().await.map(Collected::to_bytes).unwrap_or_default())
    }
}
