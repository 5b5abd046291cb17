//! Makes one call that creates an image or a response, for every protocol, and classifies an error status or a missing
//! response.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout};

use super::failure_cause::{AttemptFailure, FailureCause};
use super::failure_classification::{self, FaultScope};
use super::masked_body::MaskedBody;
use super::reply::{Reply, ReplyBody};
use super::transport::{RequestBody, ResponseBody, SendError, SendErrorKind, SendProgress, Transport};
use crate::gateway::accounts::SecretMask;
use crate::tables::{UPSTREAM_ERROR_BODY_BYTES, UPSTREAM_ERROR_BODY_SECONDS};

/// The limit for the size of an error's body. An error is classified even if its body never ends.
#[expect(clippy::cast_possible_truncation, reason = "the value is 64 KiB")]
const ERROR_BODY_MAX: usize = UPSTREAM_ERROR_BODY_BYTES as usize;
/// The most characters of an upstream's request id that are kept (our choice); known ids are shorter.
const REQUEST_ID_MAX: usize = 128;
/// The limit for the time to read an error's body.
const ERROR_BODY_TIME: Duration = Duration::from_secs(UPSTREAM_ERROR_BODY_SECONDS);

/// Makes the call, which ends at the deadline `until`. `fault_scope` decides which errors are the caller's fault. Whatever
/// the upstream says passes the mask of the account's secrets, so that none leaves or is stored.
pub(super) async fn send_request(
    transport: &Transport,
    secrets: Arc<SecretMask>,
    request: Result<Request<RequestBody>, impl std::fmt::Display>,
    until: Instant,
    fault_scope: FaultScope<'_>,
) -> Result<Reply, AttemptFailure> {
    let request = request.map_err(|error| {
        tracing::error!(%error, "an upstream request could not be built");
        AttemptFailure::new(FailureCause::NoConnection)
    })?;
    let response = transport.send(request, until).await.map_err(|error| classify_send_error(&error))?;
    if !response.status().is_success() {
        return Err(classify_error_response(response, &secrets, fault_scope).await);
    }
    let (status, request_id) = (response.status().as_u16(), request_id(response.headers(), &secrets));
    if response.body().has_unknown_coding() {
        tracing::warn!("the upstream's answer has a content coding that cannot be decoded");
        let failure = AttemptFailure::new(FailureCause::UnknownCoding).with_status(status);
        return Err(AttemptFailure { request_id, ..failure });
    }
    let body = ReplyBody::Network(Box::new(MaskedBody::new(response.into_body(), secrets)));
    Ok(Reply { body, is_from_image_tool: false, request_id, status })
}

/// Returns the upstream's id of a call, by which the support of the upstream can find the call. Characters that do not
/// occur in ids are removed, because a header can have any value. An id with a secret is none.
fn request_id(headers: &HeaderMap, secrets: &SecretMask) -> Option<String> {
    let text = headers.get("x-request-id")?.to_str().ok().filter(|text| !secrets.reveals(text))?;
    let is_id_character =
        |character: &char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | ':');
    let id: String = text.chars().filter(is_id_character).take(REQUEST_ID_MAX).collect();
    (!id.is_empty() && !secrets.reveals(&id)).then_some(id)
}

/// Classifies a call that failed before the headers of an answer arrived.
fn classify_send_error(error: &SendError) -> AttemptFailure {
    tracing::warn!(error = error as &dyn std::error::Error, sent = ?error.sent, "an upstream attempt failed");
    let cause = if error.kind == SendErrorKind::Timeout { FailureCause::Timeout } else { FailureCause::Broken };
    match error.sent {
        SendProgress::Nothing => AttemptFailure::new(FailureCause::NoConnection),
        SendProgress::Maybe => AttemptFailure::new(cause),
    }
}

/// Classifies an answer whose status is not a success.
async fn classify_error_response(
    response: Response<ResponseBody>,
    secrets: &SecretMask,
    fault_scope: FaultScope<'_>,
) -> AttemptFailure {
    let (head, body) = response.into_parts();
    let body = read_error_body(body).await;
    let mut error = serde_json::from_slice(&body).ok();
    if let Some(error) = &mut error {
        secrets.mask_value(error);
    }
    let failure = failure_classification::classify_status(head.status, &head.headers, error.as_ref(), fault_scope);
    let failure = AttemptFailure { request_id: request_id(&head.headers, secrets), ..failure };
    tracing::warn!(
        status = head.status.as_u16(),
        class = failure.class().as_str(),
        "the upstream answered with an error"
    );
    failure
}

/// Reads the body within the limits of time and size.
async fn read_error_body(mut body: ResponseBody) -> Bytes {
    let mut received = BytesMut::new();
    // A body that is cut off at a limit can still be used: the status alone is enough to classify the error.
    let _ = timeout(ERROR_BODY_TIME, async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            let remaining = ERROR_BODY_MAX - received.len();
            received.extend_from_slice(&data[..data.len().min(remaining)]);
            if received.len() == ERROR_BODY_MAX {
                break;
            }
        }
    })
    .await;
    received.freeze()
}
