//! A body whose first bytes are gathered before the head of the answer is sent. A small answer that is complete by then
//! is sent together with its head, in one write and with its length.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

/// The number of bytes from which an answer is no longer gathered (our choice): a larger one needs several writes anyway.
const GATHERED_MAX: usize = 64 * 1024;

/// The gathered frames of a body, and the rest of it.
#[derive(Debug)]
pub(crate) struct GatheredBody<B: Body> {
    frames: VecDeque<Bytes>,
    /// The error with which the body breaks off after the gathered frames.
    error: Option<B::Error>,
    /// The body; `None` if all of it is gathered or it has broken off.
    rest: Option<B>,
}

// === impl GatheredBody ===

impl<B: Body<Data = Bytes> + Unpin> GatheredBody<B> {
    /// Gathers the frames that are there without waiting. Waits only while `ends_soon`, which states that all bytes have
    /// arrived and the body only waits for its end to be recorded.
    pub(crate) async fn gather(mut body: B, ends_soon: impl Fn(&B) -> bool) -> Self {
        let (mut frames, mut length) = (VecDeque::<Bytes>::new(), 0);
        while length < GATHERED_MAX {
            let next = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
                Poll::Pending if !ends_soon(&body) => Poll::Ready(None),
                polled => polled.map(Some),
            });
            match next.await {
                // An answer has no trailers.
                Some(Some(Ok(frame))) => frames.extend(frame.into_data().ok()),
                Some(Some(Err(error))) => return Self { frames, error: Some(error), rest: None },
                Some(None) => return Self { frames, error: None, rest: None },
                None => break,
            }
            length += frames.back().map_or(0, Bytes::len);
        }
        Self { frames, error: None, rest: Some(body) }
    }

    /// Returns all bytes of the body if it is complete, and the body otherwise.
    pub(crate) fn into_whole(self) -> Result<Bytes, Self> {
        if self.rest.is_some() || self.error.is_some() {
            return Err(self);
        }
        let mut whole = BytesMut::with_capacity(self.frames.iter().map(Bytes::len).sum());
        for frame in &self.frames {
            whole.extend_from_slice(frame);
        }
        Ok(whole.freeze())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for GatheredBody<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.error.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// A body of these results, with a pause before each `None`.
    #[derive(Debug)]
    struct ScriptedBody(VecDeque<Option<Result<&'static str, &'static str>>>);

    impl Body for ScriptedBody {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            match self.0.pop_front() {
                Some(None) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Some(Some(result)) => Poll::Ready(Some(result.map(|text| Frame::data(Bytes::from(text))))),
                None => Poll::Ready(None),
            }
        }
    }

    async fn gather(
        results: &[Option<Result<&'static str, &'static str>>],
        ends_soon: bool,
    ) -> GatheredBody<ScriptedBody> {
        GatheredBody::gather(ScriptedBody(results.iter().copied().collect()), |_| ends_soon).await
    }

    #[tokio::test]
    async fn a_body_that_is_there_is_whole() {
        let whole = gather(&[Some(Ok("a")), Some(Ok("b"))], false).await.into_whole();
        assert_eq!(whole.ok().as_deref(), Some(b"ab".as_slice()));
        let whole = gather(&[Some(Ok("a")), None, Some(Ok("b"))], true).await.into_whole();
        assert_eq!(whole.ok().as_deref(), Some(b"ab".as_slice()));
    }

    #[tokio::test]
    async fn a_body_that_waits_for_bytes_is_not_held_back() {
        let body = gather(&[Some(Ok("a")), None, Some(Ok("b"))], false).await.into_whole().expect_err("a rest");
        assert_eq!(body.frames.len(), 1);
        assert_eq!(body.collect().await.expect("no error").to_bytes(), "ab");
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_keeps_its_error() {
        let body = gather(&[Some(Ok("a")), Some(Err("broken"))], false).await.into_whole();
        let mut body = body.expect_err("no whole body");
        assert!(!body.is_end_stream());
        assert_eq!(
            body.frame().await.expect("a frame").expect("bytes").into_data().ok().as_deref(),
            Some(b"a".as_slice())
        );
        assert_eq!(body.frame().await.expect("an error").err(), Some("broken"));
    }

    #[tokio::test]
    async fn a_large_body_is_not_gathered_to_its_end() {
        let piece: &'static str = Box::leak("x".repeat(GATHERED_MAX / 2).into_boxed_str());
        let body = gather(&[Some(Ok(piece)), Some(Ok(piece)), Some(Ok(piece))], false).await;
        assert_eq!((body.frames.len(), body.rest.is_some()), (2, true));
    }
}
