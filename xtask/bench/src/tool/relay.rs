//! The lower bound: a relay that only checks the client's key, sends the upstream's, and passes the bodies on.

use std::convert::Infallible;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::upstream::UPSTREAM_KEY;

/// The size of a connection's buffers: large ones cost memory, small ones cost time.
const BUFFER_BYTES: usize = 512 << 10;

type RelayBody = Either<Incoming, Full<Bytes>>;

/// The state that all connections share.
#[derive(Clone)]
struct Relay {
    client: Client<HttpConnector, Incoming>,
    authorization: HeaderValue,
    upstream_port: u16,
}

/// Relays requests with this key until the process is ended.
pub(crate) async fn serve(listener: TcpListener, key: &str, upstream_port: u16) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).http1_max_buf_size(BUFFER_BYTES).build(connector);
    let authorization = HeaderValue::from_str(&format!("Bearer {key}"))?;
    let relay = Relay { client, authorization, upstream_port };
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let relay = relay.clone();
        let service = service_fn(move |request| relay.clone().answer(request));
        let mut server = hyper::server::conn::http1::Builder::new();
        let connection = server.max_buf_size(BUFFER_BYTES).serve_connection(TokioIo::new(stream), service);
        // The connection ends with its client, and all of them with the process.
        tokio::runtime::Handle::current().spawn(async {
            let _ = connection.await;
        });
    }
}

impl Relay {
    async fn answer(self, mut request: Request<Incoming>) -> Result<Response<RelayBody>, Infallible> {
        if request.headers().get(AUTHORIZATION) != Some(&self.authorization) {
            return Ok(failure(StatusCode::UNAUTHORIZED));
        }
        let path = request.uri().path();
        let Ok(uri) = format!("http://127.0.0.1:{}{path}", self.upstream_port).parse::<Uri>() else {
            return Ok(failure(StatusCode::BAD_REQUEST));
        };
        *request.uri_mut() = uri;
        let Ok(upstream_key) = HeaderValue::from_str(&format!("Bearer {UPSTREAM_KEY}")) else {
            return Ok(failure(StatusCode::BAD_REQUEST));
        };
        request.headers_mut().insert(AUTHORIZATION, upstream_key);
        request.headers_mut().remove(HOST);
        match self.client.request(request).await {
            Ok(response) => Ok(response.map(Either::Left)),
            Err(_) => Ok(failure(StatusCode::BAD_GATEWAY)),
        }
    }
}

fn failure(status: StatusCode) -> Response<RelayBody> {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from_static(b"{}"))));
    *response.status_mut() = status;
    response
}
