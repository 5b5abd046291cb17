//! The body of an answer that is read from disk: it breaks off if its reader is slower than the minimum rate, and when
//! the process stops.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::pace::Pace;
use super::relay_error::RelayError;

/// The time after the cutoff in which an answer may still send its last event, which reports the stop (our choice).
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The reason why a paced answer broke off.
type PacedBodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body that breaks off if its reader is slower than the minimum rate ([`Pace`]).
pub(crate) struct PacedBody<B> {
    /// `None` after the body was broken off.
    body: Option<B>,
    pace: Pace,
    /// Resolves when the answer must end because the process stops.
    cutoff: Pin<Box<dyn Future<Output = ()> + Send>>,
}

// === impl PacedBody ===

impl<B> PacedBody<B> {
    /// Makes a body that breaks off if its reader is too slow, and shortly after `cutoff` is cancelled.
    pub(crate) fn new(body: B, cutoff: &CancellationToken) -> Self {
        let cutoff = cutoff.clone().cancelled_owned();
        let cutoff = Box::pin(async move {
            cutoff.await;
            sleep(SHUTDOWN_GRACE).await;
        });
        Self { body: Some(body), pace: Pace::default(), cutoff }
    }

    /// Returns the body without the minimum rate.
    ///
    /// # Errors
    ///
    /// Returns the value itself if the body was broken off.
    pub(crate) fn into_body(mut self) -> Result<B, Self> {
        self.body.take().ok_or(self)
    }

    fn abort<T>(&mut self, error: RelayError) -> Poll<Option<Result<T, PacedBodyError>>> {
        // The dropped body releases the job that waits for this reader.
        self.body = None;
        Poll::Ready(Some(Err(error.into())))
    }
}

impl<B> Body for PacedBody<B>
where
    B: Body<Data = Bytes, Error: Into<PacedBodyError>> + Unpin,
{
    type Data = Bytes;
    type Error = PacedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, PacedBodyError>>> {
        let this = &mut *self;
        this.pace.end_wait(Instant::now(), Duration::MAX);
        if this.pace.is_too_slow() {
            tracing::warn!("a caller reads its answer too slowly and is disconnected");
            return this.abort(RelayError::CallerTooSlow);
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if this.cutoff.as_mut().poll(cx).is_ready() {
            return this.abort(RelayError::Cutoff);
        }
        let frame = Pin::new(body).poll_frame(cx).map_err(Into::into);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            this.pace.add_bytes(frame.data_ref().map_or(0, Bytes::len));
            this.pace.begin_wait(Instant::now());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc;

    use super::*;

    const PIECE_BYTES: usize = 64 * 1024;

    /// A body whose pieces come from a channel.
    struct ChannelBody(mpsc::Receiver<Bytes>);

    impl Body for ChannelBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
        }
    }

    /// Returns a body that begins with `pieces` pieces, and the sender of its later pieces. The body ends when the
    /// sender is dropped.
    fn body(pieces: usize) -> (mpsc::Sender<Bytes>, ChannelBody) {
        let (sender, receiver) = mpsc::channel(128);
        (0..pieces).for_each(|_| sender.try_send(Bytes::from(vec![0; PIECE_BYTES])).unwrap());
        (sender, ChannelBody(receiver))
    }

    /// Reads with a pause of `pause` seconds after each frame. Returns the number of frames, and the error that ended
    /// the body.
    async fn read_with_pauses(
        body: &mut (impl Body<Data = Bytes, Error = PacedBodyError> + Unpin),
        pause: u64,
    ) -> (usize, Option<RelayError>) {
        let mut frames = 0;
        while let Some(frame) = body.frame().await {
            if let Err(error) = frame {
                return (frames, error.downcast_ref().copied());
            }
            frames += 1;
            sleep(Duration::from_secs(pause)).await;
        }
        (frames, None)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_reader_above_the_minimum_rate_gets_the_whole_body() {
        for (pause, expected) in [(8, (100, None)), (9, (4, Some(RelayError::CallerTooSlow)))] {
            let (sender, body) = body(100);
            drop(sender);
            let mut body = PacedBody::new(body, &CancellationToken::new());
            assert_eq!(read_with_pauses(&mut body, pause).await, expected, "{pause} seconds");
            assert!(body.frame().await.is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_next_piece_does_not_count_against_the_reader() {
        let (sender, body) = body(1);
        let send_later = async {
            sleep(Duration::from_secs(300)).await;
            sender.try_send(Bytes::from_static(b"the last piece")).unwrap();
            drop(sender);
        };
        let mut body = PacedBody::new(body, &CancellationToken::new());
        assert_eq!(tokio::join!(read_with_pauses(&mut body, 0), send_later).0, (2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_body_after_its_last_event() {
        let (sender, body) = body(1);
        let cutoff = CancellationToken::new();
        let mut body = PacedBody::new(body, &cutoff);
        let stop = async {
            sleep(Duration::from_secs(5)).await;
            cutoff.cancel();
            sender.try_send(Bytes::from_static(b"an event that reports the stop")).unwrap();
        };
        let start = Instant::now();
        assert_eq!(tokio::join!(read_with_pauses(&mut body, 0), stop).0, (2, Some(RelayError::Cutoff)));
        assert_eq!(start.elapsed().as_secs(), 6);
        assert!(body.frame().await.is_none());
        drop(sender);
    }
}
