//! Readers of one answer, each at its own pace.

use super::super::head::written;
use super::super::recorder::AnswerRecorder;
use super::super::room::{DiskBudget, EvictableStorage};
use super::super::shelf::AnswerFolder;
use super::super::tape::StoredAnswer;
use super::*;

fn shelf(max_bytes: u64) -> (TempDir, Arc<AnswerFolder>) {
    let dir = TempDir::new().unwrap();
    let shelf = AnswerFolder::open(
        FreeSpace::new(dir.path().to_owned(), 0),
        max_bytes,
        RetentionWindows { answers: Duration::from_secs(86_400), orphans: Duration::from_secs(300) },
    )
    .unwrap();
    (dir, shelf)
}

fn recorder(shelf: &Arc<AnswerFolder>, tape: &Arc<StoredAnswer>) -> AnswerRecorder {
    let frames = shelf.create(&"key_1".into(), None).map(|(_, frames, _)| frames);
    AnswerRecorder::begin(Arc::clone(tape), head(), frames, Arc::clone(shelf) as _)
}

#[tokio::test]
async fn a_fast_reader_has_each_piece_at_once_and_a_slow_one_finds_all_of_it() {
    let (_dir, shelf) = shelf(MIB);
    let (tape, all) = (Arc::<StoredAnswer>::default(), bytes(300_000));
    let (mut fast, slow) = (AnswerReader::of(&tape), AnswerReader::of(&tape));
    let mut recorder = recorder(&shelf, &tape);
    let mut seen = Vec::new();
    for piece in all.chunks(777) {
        recorder.pump(ChannelAnswer::whole(piece)).await.unwrap();
        seen.extend(read_some(&mut fast, piece.len()).await);
    }
    assert_eq!(seen, all);
    let late = AnswerReader::of(&tape);
    let mut half = AnswerReader::of(&tape);
    assert_eq!(read_some(&mut half, 100_000).await, all[..131_072], "whole frames from the file");
    recorder.close().await.unwrap();
    recorder.end();
    assert!(fast.frame().await.is_none());
    assert_eq!(read(slow).await.unwrap(), all);
    assert_eq!(read(half).await.unwrap(), all[131_072..]);
    assert_eq!((late.size_hint().exact(), read(late).await.unwrap()), (Some(300_000), all));
}

#[tokio::test]
async fn nobody_sees_the_end_before_it_is_said() {
    let (_dir, shelf) = shelf(MIB);
    let tape = Arc::<StoredAnswer>::default();
    let mut reader = AnswerReader::of(&tape);
    let mut recorder = recorder(&shelf, &tape);
    recorder.pump(ChannelAnswer::whole(b"all of it")).await.unwrap();
    recorder.close().await.unwrap();
    assert_eq!(read_some(&mut reader, 9).await, b"all of it");
    assert!(tokio::time::timeout(Duration::ZERO, reader.frame()).await.is_err());
    recorder.end();
    assert!(reader.frame().await.is_none());
}

#[tokio::test]
async fn a_recorder_that_is_dropped_has_broken_off() {
    let (dir, shelf) = shelf(MIB);
    let tape = Arc::<StoredAnswer>::default();
    let reader = AnswerReader::of(&tape);
    let mut recorder = recorder(&shelf, &tape);
    recorder.pump(ChannelAnswer::whole(&bytes(70_000))).await.unwrap();
    drop(recorder);
    assert_eq!(read(reader).await, Err(AnswerReaderError));
    cleared(&dir.path().join(FOLDER)).await;
}

#[tokio::test(start_paused = true)]
async fn from_hand_to_hand_the_slowest_sets_the_pace_but_not_for_ever() {
    let (_dir, shelf) = shelf(100_000);
    let (tape, all) = (Arc::<StoredAnswer>::default(), bytes(500_000));
    let (reader, mut stuck) = (AnswerReader::of(&tape), AnswerReader::of(&tape));
    let mut recorder = recorder(&shelf, &tape);
    let begun = Instant::now();
    let (written, read_all) = tokio::join!(
        async {
            recorder.pump(ChannelAnswer::whole(&all)).await.unwrap();
            let file = recorder.close().await;
            recorder.end();
            file.is_some()
        },
        read(reader)
    );
    assert!(!written, "it does not fit");
    assert_eq!(read_all.unwrap(), all);
    assert!(begun.elapsed() >= Duration::from_secs(60), "the stuck one was waited for");
    assert!(begun.elapsed() < Duration::from_secs(120), "once, not for each frame");
    // Bytes that were written to the file before can still be read; the gap after them is never hidden.
    assert_eq!(read_some(&mut stuck, 65_536).await, all[..65_536]);
    assert!(stuck.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn a_reader_who_leaves_holds_nobody_back() {
    let (_dir, shelf) = shelf(0);
    let (tape, all) = (Arc::<StoredAnswer>::default(), bytes(500_000));
    let (reader, stuck) = (AnswerReader::of(&tape), AnswerReader::of(&tape));
    let mut recorder = recorder(&shelf, &tape);
    let writing = async {
        recorder.pump(ChannelAnswer::whole(&all)).await.unwrap();
        recorder.end();
    };
    let leaving = async {
        tokio::task::yield_now().await;
        drop(stuck);
    };
    let (_, read_all, ()) = tokio::join!(writing, read(reader), leaving);
    assert_eq!(read_all.unwrap(), all);
}

#[tokio::test]
async fn a_small_answer_needs_no_file() {
    let (head, body) = written(&Error::Upstream(UpstreamFault::Timeout));
    let tape = Arc::new(StoredAnswer::from_bytes(head, body));
    assert_eq!(reason(AnswerReader::of(&tape)).await, "timeout");
    assert_eq!(reason(AnswerReader::of(&tape)).await, "timeout", "as often as asked");
}

#[tokio::test]
async fn a_disk_that_has_no_thread_free_is_not_waited_for_for_ever() {
    let (_dir, shelf) = shelf(MIB);
    let stalled = shelf.free().stall().await;
    tokio::time::pause();
    for fingerprint in [None, Some([7; 32])] {
        let begun = shelf.begin(&"key_1".into(), fingerprint).await;
        assert_eq!(begun.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }
    assert_eq!(shelf.nameless().await.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    drop(stalled);
    assert!(shelf.nameless().await.is_ok());
}

/// Disk space on a disk that stalls until the test is over.
struct StalledRoom {
    budget: Arc<DiskBudget>,
    free: FreeSpace,
    stalled: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl EvictableStorage for StalledRoom {
    fn budget(&self) -> &Arc<DiskBudget> {
        &self.budget
    }

    fn free(&self) -> &FreeSpace {
        &self.free
    }

    fn evict(&self) -> bool {
        self.stalled.lock().unwrap().recv().is_ok()
    }
}

#[tokio::test]
async fn a_disk_that_stalls_in_the_middle_of_an_answer_does_not_keep_it_from_its_reader() {
    let (dir, shelf) = shelf(MIB);
    let (tape, all) = (Arc::<StoredAnswer>::default(), bytes(200_000));
    let (disk, stalled) = std::sync::mpsc::channel();
    let (budget, free) = (DiskBudget::new(0), FreeSpace::new(dir.path().to_owned(), 0));
    let room = StalledRoom { budget, free, stalled: std::sync::Mutex::new(stalled) };
    let frames = shelf.create(&"key_1".into(), None).map(|(_, frames, _)| frames);
    let mut recorder = AnswerRecorder::begin(Arc::clone(&tape), head(), frames, Arc::new(room));
    let reader = AnswerReader::of(&tape);
    let reading = tokio::runtime::Handle::current().spawn(read(reader));
    let body = ChannelAnswer::whole(&all);
    let recording = tokio::runtime::Handle::current().spawn(async move {
        recorder.pump(body).await.unwrap();
        recorder.close().await;
        recorder.end();
    });
    tokio::time::pause();
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(11)).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let is_read = reading.is_finished();
    drop(disk);
    assert!(is_read, "it waits for the disk");
    recording.await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), all);
}
