//! The transport of a command that makes images: it knows if the service may have been asked for an image.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::client::reqwest::{self, Method, Request, Response};
use crate::client::{Transport, TransportFuture};

/// The header with which a service allows a request again.
const SHOULD_RETRY: &str = "x-should-retry";

/// Watches the requests for images.
#[derive(Default)]
pub(super) struct PaymentWatch {
    /// True if an attempt has been sent in part, and no answer has shown that nothing was paid for.
    may_be_paid: Arc<AtomicBool>,
}

/// The body of a request. Its first part is asked for when there is a connection.
struct WatchBody {
    body: reqwest::Body,
    may_be_paid: Arc<AtomicBool>,
}

// === impl PaymentWatch ===

impl PaymentWatch {
    pub(super) fn may_be_paid(&self) -> bool {
        self.may_be_paid.load(Ordering::Relaxed)
    }
}

impl Transport for PaymentWatch {
    fn send<'a>(&'a self, mut request: Request, http: &'a reqwest::Client) -> TransportFuture<'a> {
        Box::pin(async move {
            let before = self.may_be_paid();
            if *request.method() == Method::POST {
                let may_be_paid = Arc::clone(&self.may_be_paid);
                let body = request.body_mut().take();
                *request.body_mut() = body.map(|body| reqwest::Body::wrap(WatchBody { body, may_be_paid }));
            }
            let response = http.execute(request).await?;
            if costs_nothing(&response) {
                self.may_be_paid.store(before, Ordering::Relaxed);
            }
            Ok(response)
        })
    }
}

/// Returns true if the answer shows that the attempt made nothing, and will make nothing. A 409 may mean that the image is
/// still being made.
fn costs_nothing(response: &Response) -> bool {
    let status = response.status().as_u16();
    let allows_retry = response.headers().get(SHOULD_RETRY).is_some_and(|value| value == "true");
    status == 429 || (allows_retry && status != 409)
}

impl Body for WatchBody {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        self.may_be_paid.store(true, Ordering::Relaxed);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
