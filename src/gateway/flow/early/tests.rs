use http_body_util::BodyExt as _;
use tokio::time::sleep;

use super::*;

const LATE: Duration = Duration::from_secs(40);

async fn text(made: Made) -> (u16, String) {
    let status = made.head.status;
    let bytes = made.body.collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_first_heartbeat_keeps_its_status() {
    let begun = Instant::now();
    let failed = begin(async { Err(Error::NoAccounts) }).await;
    assert_eq!(failed.err(), Some(Error::NoAccounts));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_later_failure_is_an_event_after_the_heartbeats() {
    let begun = Instant::now();
    let made = begin(async {
        sleep(LATE).await;
        Err(Error::Upstream(Fault::Timeout))
    });
    let made = made.await.unwrap();
    assert!(made.is_stream());
    assert_eq!(begun.elapsed(), BEAT, "the stream begins when the first heartbeat is due");
    let (status, text) = text(made).await;
    let error = Error::Upstream(Fault::Timeout).event();
    assert_eq!((status, text), (200, format!(": keep-alive\n\n: keep-alive\n\nevent: error\ndata: {error}\n\n")));
    assert_eq!(begun.elapsed(), LATE);
}

#[tokio::test(start_paused = true)]
async fn the_work_ends_with_its_caller() {
    struct Work(std::sync::Arc<()>);
    let alive = std::sync::Arc::new(());
    let work = Work(std::sync::Arc::clone(&alive));
    let made = begin(async move {
        let _work = work.0;
        std::future::pending().await
    });
    let made = made.await.unwrap();
    assert_eq!(std::sync::Arc::strong_count(&alive), 2);
    drop(made);
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
}
