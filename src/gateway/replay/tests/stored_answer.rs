//! Tests of the readers of one answer, each at its own pace.

use super::super::answer_folder::AnswerFolder;
use super::super::answer_head::error_answer;
use super::super::answer_recorder::AnswerRecorder;
use super::super::disk_budget::EvictableStorage as _;
use super::super::stored_answer::StoredAnswer;
use super::*;

fn answer_folder(max_bytes: u64) -> (TempDir, Arc<AnswerFolder>) {
    let dir = TempDir::new().unwrap();
    let folder = AnswerFolder::open(FreeSpace::new(dir.path().to_owned(), 0), max_bytes).unwrap();
    (dir, folder)
}

fn recorder(folder: &Arc<AnswerFolder>, answer: &Arc<StoredAnswer>) -> AnswerRecorder {
    let file = folder.create_file_blocking(&"key_1".into(), None);
    AnswerRecorder::new(folder, answer, head(), file)
}

#[tokio::test]
async fn fast_slow_and_late_readers_get_the_whole_answer() {
    let (_dir, folder) = answer_folder(MIB);
    let (answer, all) = (Arc::<StoredAnswer>::default(), bytes(300_000));
    let (mut fast, slow) = (AnswerReader::new(&answer), AnswerReader::new(&answer));
    let mut recorder = recorder(&folder, &answer);
    let mut received = Vec::new();
    for piece in all.chunks(777) {
        recorder.record_body(ChannelAnswer::complete(piece)).await.unwrap();
        received.extend(read_some(&mut fast, piece.len()).await);
    }
    assert_eq!(received, all);
    let late = AnswerReader::new(&answer);
    let mut partial = AnswerReader::new(&answer);
    assert_eq!(read_some(&mut partial, 100_000).await, all[..131_072], "complete frames from the file");
    recorder.finish_file().await.unwrap();
    recorder.mark_complete();
    assert!(fast.frame().await.is_none());
    assert_eq!(read(slow).await.unwrap(), all);
    assert_eq!(read(partial).await.unwrap(), all[131_072..]);
    assert_eq!((late.size_hint().exact(), read(late).await.unwrap()), (Some(300_000), all));
}

#[tokio::test]
async fn readers_see_the_end_only_after_mark_complete() {
    let (_dir, folder) = answer_folder(MIB);
    let answer = Arc::<StoredAnswer>::default();
    let mut reader = AnswerReader::new(&answer);
    let mut recorder = recorder(&folder, &answer);
    recorder.record_body(ChannelAnswer::complete(b"all of it")).await.unwrap();
    recorder.finish_file().await.unwrap();
    assert_eq!(read_some(&mut reader, 9).await, b"all of it");
    assert!(tokio::time::timeout(Duration::ZERO, reader.frame()).await.is_err());
    recorder.mark_complete();
    assert!(reader.frame().await.is_none());
}

#[tokio::test]
async fn a_dropped_recorder_breaks_the_answer_off() {
    let (dir, folder) = answer_folder(MIB);
    let answer = Arc::<StoredAnswer>::default();
    let reader = AnswerReader::new(&answer);
    let mut recorder = recorder(&folder, &answer);
    recorder.record_body(ChannelAnswer::complete(&bytes(70_000))).await.unwrap();
    drop(recorder);
    assert_eq!(read(reader).await, Err(AnswerReaderError));
    wait_until_empty(&dir.path().join(FOLDER)).await;
}

#[tokio::test(start_paused = true)]
async fn without_disk_space_a_slow_reader_is_waited_for_once() {
    let (_dir, folder) = answer_folder(100_000);
    let (answer, all) = (Arc::<StoredAnswer>::default(), bytes(500_000));
    let (reader, mut slow) = (AnswerReader::new(&answer), AnswerReader::new(&answer));
    let mut recorder = recorder(&folder, &answer);
    let start = Instant::now();
    let (has_file, read_all) = tokio::join!(
        async {
            recorder.record_body(ChannelAnswer::complete(&all)).await.unwrap();
            let file = recorder.finish_file().await;
            recorder.mark_complete();
            file.is_some()
        },
        read(reader)
    );
    assert!(!has_file, "the answer has no disk space");
    assert_eq!(read_all.unwrap(), all);
    assert!(start.elapsed() >= Duration::from_secs(60), "the writer waited for the slow reader");
    assert!(start.elapsed() < Duration::from_secs(120), "the writer waited once, not for each frame");
    // The slow reader can still read the bytes in the file, and gets an error at the gap after them.
    assert_eq!(read_some(&mut slow, 65_536).await, all[..65_536]);
    assert!(slow.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn a_reader_that_leaves_does_not_delay_others() {
    let (_dir, folder) = answer_folder(0);
    let (answer, all) = (Arc::<StoredAnswer>::default(), bytes(500_000));
    let (reader, slow) = (AnswerReader::new(&answer), AnswerReader::new(&answer));
    let mut recorder = recorder(&folder, &answer);
    let writing = async {
        recorder.record_body(ChannelAnswer::complete(&all)).await.unwrap();
        recorder.mark_complete();
    };
    let leaving = async {
        tokio::task::yield_now().await;
        drop(slow);
    };
    let (_, read_all, ()) = tokio::join!(writing, read(reader), leaving);
    assert_eq!(read_all.unwrap(), all);
}

/// Returns the bytes before the error with which the answer ends for this reader.
async fn read_until_error(reader: &mut AnswerReader) -> Vec<u8> {
    let mut received = Vec::new();
    while let Ok(frame) = reader.frame().await.unwrap() {
        received.extend_from_slice(frame.data_ref().unwrap());
    }
    received
}

#[tokio::test]
async fn a_restarted_reader_gets_all_of_an_answer_that_is_not_stored() {
    for (max_bytes, bytes_before) in [(0, 0), (100_000, 65_536), (250_000, 196_608)] {
        let (_dir, folder) = answer_folder(max_bytes);
        let (answer, all) = (Arc::<StoredAnswer>::default(), bytes(300_000));
        let mut reader = AnswerReader::new(&answer);
        reader.make_restartable();
        let mut recorder = recorder(&folder, &answer);
        let writing = async {
            recorder.record_body(ChannelAnswer::complete(&all)).await.unwrap();
            recorder.finish_file().await;
            recorder.mark_complete();
        };
        let reading = async {
            let received = read_until_error(&mut reader).await;
            assert!(received == all[..bytes_before], "{} bytes", received.len());
            read(reader.restart()).await.unwrap()
        };
        let ((), received) = tokio::join!(writing, reading);
        assert!(received == all, "{} of {} bytes", received.len(), all.len());
    }
}

#[tokio::test]
async fn a_reader_restarts_after_the_end_of_an_answer_whose_file_is_removed() {
    let (_dir, folder) = answer_folder(MIB);
    let (answer, all) = (Arc::<StoredAnswer>::default(), bytes(300_000));
    let mut reader = AnswerReader::new(&answer);
    reader.make_restartable();
    let mut recorder = recorder(&folder, &answer);
    recorder.record_body(ChannelAnswer::complete(&all)).await.unwrap();
    let file = recorder.finish_file().await.unwrap();
    answer.mark_unstored();
    file.frames.spawn_unlink();
    recorder.mark_complete();
    let mut length = 0;
    while let Some(frame) = reader.frame().await {
        length += frame.unwrap().data_ref().unwrap().len();
    }
    assert_eq!(length, all.len());
    assert!(read(reader.restart()).await.unwrap() == all);
}

#[tokio::test]
async fn a_small_answer_needs_no_file() {
    let (head, body) = error_answer(&Error::Upstream(UpstreamFault::Timeout));
    let answer = Arc::new(StoredAnswer::from_bytes(head, body));
    assert_eq!(reason(AnswerReader::new(&answer)).await, "timeout");
    assert_eq!(reason(AnswerReader::new(&answer)).await, "timeout", "every reader gets the answer");
}

#[tokio::test]
async fn creating_a_file_on_a_stalled_disk_times_out() {
    let (_dir, folder) = answer_folder(MIB);
    let stalled = folder.free().stall().await;
    tokio::time::pause();
    for fingerprint in [None, Some([7; 32])] {
        let result = folder.create_file(&"key_1".into(), fingerprint).await;
        assert_eq!(result.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }
    drop(stalled);
    assert!(folder.create_file(&"key_1".into(), None).await.is_ok());
}

#[tokio::test]
async fn a_disk_that_stalls_does_not_keep_an_answer_from_its_reader() {
    let (_dir, folder) = answer_folder(MIB);
    let (answer, all) = (Arc::<StoredAnswer>::default(), bytes(200_000));
    let mut recorder = recorder(&folder, &answer);
    let stalled = folder.free().stall().await;
    let reader = AnswerReader::new(&answer);
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
    drop(stalled);
    assert!(is_read, "the reader does not wait for the disk");
    recording.await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), all);
}
