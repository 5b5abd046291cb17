//! Readers of one answer, each at its own pace.

use super::super::answer_folder::AnswerFolder;
use super::super::answer_head::error_answer;
use super::super::answer_recorder::AnswerRecorder;
use super::super::disk_budget::{DiskBudget, EvictableStorage};
use super::super::stored_answer::StoredAnswer;
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
    let frames = shelf.create_file_blocking(&"key_1".into(), None).map(|(_, frames, _)| frames);
    AnswerRecorder::begin(Arc::clone(tape), head(), frames, Arc::clone(shelf) as _)
}

#[tokio::test]
async fn a_fast_reader_has_each_piece_at_once_and_a_slow_one_finds_all_of_it() {
    let (_dir, shelf) = shelf(MIB);
    let (tape, all) = (Arc::<StoredAnswer>::default(), bytes(300_000));
    let (mut fast, slow) = (AnswerReader::new(&tape), AnswerReader::new(&tape));
    let mut recorder = recorder(&shelf, &tape);
    let mut seen = Vec::new();
    for piece in all.chunks(777) {
        recorder.record_body(ChannelAnswer::complete(piece)).await.unwrap();
        seen.extend(read_some(&mut fast, piece.len()).await);
    }
    assert_eq!(seen, all);
    let late = AnswerReader::new(&tape);
    let mut half = AnswerReader::new(&tape);
    assert_eq!(read_some(&mut half, 100_000).await, all[..131_072], "whole frames from the file");
    recorder.finish_file().await.unwrap();
    recorder.mark_complete();
    assert!(fast.frame().await.is_none());
    assert_eq!(read(slow).await.unwrap(), all);
    assert_eq!(read(half).await.unwrap(), all[131_072..]);
    assert_eq!((late.size_hint().exact(), read(late).await.unwrap()), (Some(300_000), all));
}

#[tokio::test]
async fn nobody_sees_the_end_before_it_is_said() {
    let (_dir, shelf) = shelf(MIB);
    let tape = Arc::<StoredAnswer>::default();
    let mut reader = AnswerReader::new(&tape);
    let mut recorder = recorder(&shelf, &tape);
    recorder.record_body(ChannelAnswer::complete(b"all of it")).await.unwrap();
    recorder.finish_file().await.unwrap();
    assert_eq!(read_some(&mut reader, 9).await, b"all of it");
    assert!(tokio::time::timeout(Duration::ZERO, reader.frame()).await.is_err());
    recorder.mark_complete();
    assert!(reader.frame().await.is_none());
}

#[tokio::test]
async fn a_recorder_that_is_dropped_has_broken_off() {
    let (dir, shelf) = shelf(MIB);
    let tape = Arc::<StoredAnswer>::default();
    let reader = AnswerReader::new(&tape);
    let mut recorder = recorder(&shelf, &tape);
    recorder.record_body(ChannelAnswer::complete(&bytes(70_000))).await.unwrap();
    drop(recorder);
    assert_eq!(read(reader).await, Err(AnswerReaderError));
    wait_until_empty(&dir.path().join(FOLDER)).await;
}

#[tokio::test(start_paused = true)]
async fn from_hand_to_hand_the_slowest_sets_the_pace_but_not_for_ever() {
    let (_dir, shelf) = shelf(100_000);
    let (tape, all) = (Arc::<StoredAnswer>::default(), bytes(500_000));
    let (reader, mut stuck) = (AnswerReader::new(&tape), AnswerReader::new(&tape));
    let mut recorder = recorder(&shelf, &tape);
    let begun = Instant::now();
    let (written, read_all) = tokio::join!(
        async {
            recorder.record_body(ChannelAnswer::complete(&all)).await.unwrap();
            let file = recorder.finish_file().await;
            recorder.mark_complete();
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
    let (reader, stuck) = (AnswerReader::new(&tape), AnswerReader::new(&tape));
    let mut recorder = recorder(&shelf, &tape);
    let writing = async {
        recorder.record_body(ChannelAnswer::complete(&all)).await.unwrap();
        recorder.mark_complete();
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
    let (head, body) = error_answer(&Error::Upstream(UpstreamFault::Timeout));
    let tape = Arc::new(StoredAnswer::from_bytes(head, body));
    assert_eq!(reason(AnswerReader::new(&tape)).await, "timeout");
    assert_eq!(reason(AnswerReader::new(&tape)).await, "timeout", "as often as asked");
}

#[tokio::test]
async fn a_disk_that_has_no_thread_free_is_not_waited_for_for_ever() {
    let (_dir, shelf) = shelf(MIB);
    let stalled = shelf.free().stall().await;
    tokio::time::pause();
    for fingerprint in [None, Some([7; 32])] {
        let begun = shelf.create_file(&"key_1".into(), fingerprint).await;
        assert_eq!(begun.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }
    assert_eq!(shelf.create_nameless_file().await.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    drop(stalled);
    assert!(shelf.create_nameless_file().await.is_ok());
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
    let frames = shelf.create_file_blocking(&"key_1".into(), None).map(|(_, frames, _)| frames);
    let mut recorder = AnswerRecorder::begin(Arc::clone(&tape), head(), frames, Arc::new(room));
    let reader = AnswerReader::new(&tape);
    let reading = tokio::runtime::Handle::current().spawn(read(reader));
    let body = ChannelAnswer::complete(&all);
    let recording = tokio::runtime::Handle::current().spawn(async move {
        recorder.record_body(body).await.unwrap();
        recorder.finish_file().await;
        recorder.mark_complete();
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
