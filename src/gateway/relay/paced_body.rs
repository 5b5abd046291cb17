//! An answer that is read from disk: its reader must keep the minimum rate, and a stop of the process ends it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::caller_pace::CallerPace;
use super::image_relay::RelayError;

/// The time after the cutoff (our choice) for the end of an answer that is still being written: an event about the stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The reason why a paced answer broke off.
type PacedBodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body whose reader must keep the rate that all callers must keep.
pub(crate) struct PacedBody<B> {
    /// `None` after the body was broken off.
    body: Option<B>,
    pace: CallerPace,
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
        Self { body: Some(body), pace: CallerPace::default(), cutoff }
    }

    fn abort<T>(&mut self, broken: RelayError) -> Poll<Option<Result<T, PacedBodyError>>> {
        // The dropped body releases the job that waits for this reader.
        self.body = None;
        Poll::Ready(Some(Err(broken.into())))
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
        let (_, enough) = this.pace.record_return(Instant::now());
        if !enough {
            tracing::warn!("a caller reads its answer too slowly and is disconnected");
            return this.abort(RelayError::CallerTooSlow);
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if this.cutoff.as_mut().poll(cx).is_ready() {
            return this.abort(RelayError::Cutoff);
        }
        let frame = Pin::new(body).poll_frame(cx).map_err(Into::into);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            this.pace.record_sent(frame.data_ref().map_or(0, Bytes::len), Instant::now());
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

    const PIECE: usize = 64 * 1024;

    /// A body that is sent piece by piece.
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

    /// Returns a body of `pieces` pieces and of those that are sent later. It has no end as long as there is a sender.
    fn body(pieces: usize) -> (mpsc::Sender<Bytes>, ChannelBody) {
        let (sender, receiver) = mpsc::channel(128);
        (0..pieces).for_each(|_| sender.try_send(Bytes::from(vec![0; PIECE])).unwrap());
        (sender, ChannelBody(receiver))
    }

    /// Reads with this pause after each frame. Returns the number of frames, and the reason for the end.
    async fn take(
        body: &mut (impl Body<Data = Bytes, Error = PacedBodyError> + Unpin),
        pause: u64,
    ) -> (usize, Option<RelayError>) {
        let mut taken = 0;
        while let Some(frame) = body.frame().await {
            if let Err(broken) = frame {
                return (taken, broken.downcast_ref().copied());
            }
            taken += 1;
            sleep(Duration::from_secs(pause)).await;
        }
        (taken, None)
    }

    #[tokio::test(start_paused = true)]
    async fn who_keeps_the_least_rate_gets_all_of_it_and_who_does_not_is_cut_off() {
        for (pause, expected) in [(8, (100, None)), (9, (4, Some(RelayError::CallerTooSlow)))] {
            let (sender, body) = body(100);
            drop(sender);
            let mut body = PacedBody::new(body, &CancellationToken::new());
            assert_eq!(take(&mut body, pause).await, expected, "{pause} seconds");
            assert!(body.frame().await.is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_next_piece_is_not_held_against_the_reader() {
        let (sender, body) = body(1);
        let later = async {
            sleep(Duration::from_secs(300)).await;
            sender.try_send(Bytes::from_static(b"the rest")).unwrap();
            drop(sender);
        };
        let mut body = PacedBody::new(body, &CancellationToken::new());
        assert_eq!(tokio::join!(take(&mut body, 0), later).0, (2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_it_after_its_last_words() {
        let (sender, body) = body(1);
        let cutoff = CancellationToken::new();
        let mut body = PacedBody::new(body, &cutoff);
        let stop = async {
            sleep(Duration::from_secs(5)).await;
            cutoff.cancel();
            sender.try_send(Bytes::from_static(b"an event that says so")).unwrap();
        };
        let begun = Instant::now();
        assert_eq!(tokio::join!(take(&mut body, 0), stop).0, (2, Some(RelayError::Cutoff)));
        assert_eq!(begun.elapsed().as_secs(), 6);
        assert!(body.frame().await.is_none());
        drop(sender);
    }
}
