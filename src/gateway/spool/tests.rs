//! Tests of the spool, each in a temporary directory.

use tempfile::TempDir;

use super::*;

fn spool() -> (TempDir, Spool) {
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path()).unwrap();
    (folder, spool)
}

fn spool_file(spool: &Spool, chunks: &[&[u8]]) -> Arc<SpooledFile> {
    let mut writer = spool.create_writer_blocking().unwrap();
    for chunk in chunks {
        writer.write(chunk).unwrap();
    }
    writer.finish()
}

fn read_all(file: &SpooledFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len()).unwrap() + 10];
    let count = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

fn idle_files(spool: &Spool) -> usize {
    spool.pool.idle().len()
}

fn count_folder_entries(folder: &TempDir) -> usize {
    std::fs::read_dir(folder.path().join("spool")).unwrap().count()
}

/// Returns the number of files in the folder that this process has open, with or without a name.
#[cfg(target_os = "linux")]
fn count_open_files(folder: &TempDir) -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = fds.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(folder.path())).count()
}

#[test]
fn written_bytes_can_be_read_at_any_offset() {
    let (_folder, spool) = spool();
    let file = spool_file(&spool, &[b"red ", b"", b"cube"]);
    assert_eq!((file.len(), read_all(&file)), (8, b"red cube".to_vec()));
    let mut buffer = [0; 4];
    assert_eq!((file.read_at(6, &mut buffer).unwrap(), &buffer[..2]), (2, &b"be"[..]));
    assert_eq!(file.read_at(8, &mut buffer).unwrap(), 0);
    assert_eq!(file.read_at(u64::MAX, &mut buffer).unwrap(), 0);
}

#[test]
fn a_reused_file_shows_nothing_of_its_last_upload() {
    let (_folder, spool) = spool();
    drop(spool_file(&spool, &[b"an image of another user"]));
    assert_eq!(idle_files(&spool), 1);
    let file = spool_file(&spool, &[b"mine"]);
    assert_eq!(idle_files(&spool), 0, "the idle file must be used again, or this test proves nothing");
    assert_eq!(read_all(&file), b"mine");
    drop(file);
    assert_eq!(read_all(&spool_file(&spool, &[])), b"");
}

#[test]
fn concurrent_uploads_have_separate_files() {
    let (_folder, spool) = spool();
    let files: Vec<_> = (0..20_u8).map(|number| spool_file(&spool, &[&[number; 100]])).collect();
    for (number, file) in (0..).zip(&files) {
        assert_eq!(read_all(file), [number; 100]);
    }
}

#[test]
fn a_file_returns_to_the_pool_when_its_last_reference_is_dropped() {
    let (_folder, spool) = spool();
    let file = spool_file(&spool, &[b"a"]);
    let copy = Arc::clone(&file);
    drop(file);
    assert_eq!(idle_files(&spool), 0);
    drop(copy);
    assert_eq!(idle_files(&spool), 1);
    let mut writer = spool.clone().create_writer_blocking().unwrap();
    writer.write(b"half of an im").unwrap();
    drop(writer);
    assert_eq!(idle_files(&spool), 1);
}

#[test]
fn idle_files_are_limited_in_number_and_size() {
    let (_folder, spool) = spool();
    drop((0..50).map(|_| spool_file(&spool, &[b"a"])).collect::<Vec<_>>());
    assert_eq!(idle_files(&spool), IDLE_MAX);
    let (_folder, spool) = self::spool();
    let large = vec![1; 1024 * 1024];
    for (megabytes, length) in [(32, IDLE_FILE_BYTES_MAX), (33, 0)] {
        drop(spool_file(&spool, &vec![&large[..]; megabytes]));
        assert_eq!(spool.pool.idle()[0].file.metadata().unwrap().len(), length);
    }
    drop(spool_file(&spool, &[b"a"]));
    assert_eq!(spool.pool.idle()[0].extent, 1);
}

#[test]
#[cfg(target_os = "linux")]
fn spool_files_never_have_a_name() {
    let (folder, spool) = spool();
    let mut writer = spool.create_writer_blocking().unwrap();
    writer.write(b"a").unwrap();
    let file = spool_file(&spool, &[b"b"]);
    assert_eq!((count_folder_entries(&folder), count_open_files(&folder)), (0, 2));
    drop((writer, file));
    assert_eq!((count_folder_entries(&folder), count_open_files(&folder)), (0, 2), "the files are idle and still open");
    drop(spool);
    assert_eq!((count_folder_entries(&folder), count_open_files(&folder)), (0, 0));
}

#[test]
fn files_of_an_earlier_run_are_removed_only_from_the_spool_folder() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("imagate.db"), "").unwrap();
    std::fs::create_dir_all(folder.path().join("spool/subfolder")).unwrap();
    std::fs::write(folder.path().join("spool/.tmp123"), "").unwrap();
    let _spool = Spool::new(folder.path()).unwrap();
    assert_eq!(count_folder_entries(&folder), 1);
    assert!(folder.path().join("imagate.db").exists());
}

#[test]
#[cfg(unix)]
fn the_folder_is_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, _spool) = spool();
    let mode = std::fs::metadata(folder.path().join("spool")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
#[cfg(target_os = "linux")]
fn a_write_to_a_full_disk_drops_idle_files_and_then_fails() {
    let (_folder, spool) = spool();
    drop((0..3).map(|_| spool_file(&spool, &[b"a"])).collect::<Vec<_>>());
    // Every write to this file fails as if the disk were full.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut writer = spool.writer(AnonymousFile { file: full, extent: 0 });
    assert_eq!(writer.write(b"a").unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!((writer.len(), idle_files(&spool)), (0, 0));
}

#[tokio::test]
async fn a_small_body_stays_in_memory_and_a_large_body_goes_to_a_file() {
    let (_folder, spool) = spool();
    let write_body = async |chunks: &[usize]| {
        let admission = RequestBudgets::default_for_test().admit_for_test("usr_a", "key_a");
        let (mut writer, mut all) = (spool.bytes_writer(&admission), Vec::new());
        for (number, length) in chunks.iter().enumerate() {
            let chunk: Vec<u8> = (0..*length).map(|index| u8::try_from((index * 31 + number) % 256).unwrap()).collect();
            writer.write(Bytes::copy_from_slice(&chunk)).await.unwrap();
            all.extend(chunk);
        }
        (writer.finish().await.unwrap(), all)
    };
    for (chunks, on_disk) in [
        (&[][..], false),
        (&[10, 0, 20], false),
        (&[64 * 1024], false),
        (&[64 * 1024, 1], true),
        (&[200_000], true),
        (&[1000; 200], true),
    ] {
        let (body, all) = write_body(chunks).await;
        assert_eq!(matches!(body, SpooledBytes::Disk { .. }), on_disk, "{}", all.len());
        let mut read = vec![0; all.len()];
        assert_eq!((body.len(), body.read_at(0, &mut read).unwrap()), (all.len() as u64, all.len()));
        assert!(read == all);
        let (from, to) = (all.len() / 3, all.len() / 2);
        let part = body.slice(from as u64, to as u64).slice(1, u64::MAX);
        let mut read = vec![0; all.len() + 1];
        let count = part.read_at(0, &mut read).unwrap();
        assert_eq!((&read[..count], part.len()), (all.get(from + 1..to).unwrap_or_default(), count as u64));
        assert_eq!(part.read_at(count as u64, &mut read).unwrap(), 0);
    }
}

fn budget_error(result: io::Result<()>) -> Option<BudgetExceeded> {
    result.err().and_then(|error| error.get_ref()?.downcast_ref().copied())
}

#[test]
fn an_upload_counts_against_the_disk_budget_until_its_file_is_dropped() {
    let folder = TempDir::new().unwrap();
    let budgets = RequestBudgets::with_limits(|limits| limits.disk_per_key = 60);
    let spool = Spool::with_budgets(folder.path(), &budgets).unwrap();
    let for_key = spool.for_request(&budgets.admit_for_test("usr_a", "key_a"));
    let [mut first, mut second] = [(); 2].map(|()| for_key.create_writer_blocking().unwrap());
    first.write(&[0; 40]).unwrap();
    assert!(budget_error(second.write(&[0; 21])).is_some_and(BudgetExceeded::is_own));
    second.write(&[0; 20]).unwrap();
    let finished = first.finish();
    assert!(budget_error(second.write(&[0; 1])).is_some(), "a finished upload still counts");
    drop(finished);
    second.write(&[0; 40]).unwrap();
    drop(second);
    assert_eq!((budgets.usage().disk, budgets.usage().refused), (0, 2));
    // A spool without a request stores answers that were paid for, which no budget refuses.
    let mut answer = spool.create_writer_blocking().unwrap();
    answer.write(&[0; 1000]).unwrap();
    assert_eq!(budgets.usage().disk, 1000);
}

#[test]
#[cfg(unix)]
fn an_upload_does_not_get_the_space_reserved_for_the_database() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::without_free_space(folder.path()).unwrap();
    assert_eq!(
        budget_error(
            spool
                .for_request(&RequestBudgets::default_for_test().admit_for_test("usr_a", "key_a"))
                .create_writer_blocking()
                .map(drop)
        ),
        Some(BudgetExceeded::FreeSpace)
    );
    assert_eq!(idle_files(&spool), 0, "an upload is refused only after the idle files were dropped");
}

#[tokio::test]
#[cfg(unix)]
async fn only_a_paid_answer_may_use_the_reserved_space() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::without_free_space(folder.path()).unwrap();
    assert_eq!(budget_error(spool.create_writer_within_free_space().await.map(drop)), Some(BudgetExceeded::FreeSpace));
    let writer = spool.create_writer().await.unwrap().append(Bytes::from_static(b"an image")).await.unwrap();
    assert_eq!(read_all(&writer.finish()), b"an image");
}

#[tokio::test]
async fn only_a_body_on_disk_is_read_on_another_thread() {
    let (this_thread, reader) = (std::thread::current().id(), || std::thread::current().id());
    assert_ne!(SpooledBytes::on_disk(b"a body").read_with(reader).await.unwrap(), this_thread);
    assert_eq!(SpooledBytes::from(Bytes::from_static(b"a body")).read_with(reader).await.unwrap(), this_thread);
}

/// A request waits for its own disk access and delays no other request.
#[tokio::test]
async fn a_stalled_disk_does_not_block_other_tasks() {
    let (disk_sender, disk_receiver) = std::sync::mpsc::channel::<()>();
    let body = SpooledBytes::on_disk(b"a body");
    let stalled_read = body.read_with(move || disk_receiver.recv());
    let other_task = async {
        tokio::task::yield_now().await;
        disk_sender.send(()).unwrap();
    };
    let (read, ()) = tokio::join!(stalled_read, other_task);
    read.unwrap().unwrap();
}

/// Returns a file that takes this long to close, a TCP connection with unsent bytes, and its listener. The listener
/// never accepts or reads; it must live as long as the file.
#[cfg(target_os = "linux")]
fn slow_to_close(duration: std::time::Duration) -> (File, std::net::TcpListener) {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 64 * 1024]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(duration)).unwrap();
    (File::from(std::os::fd::OwnedFd::from(stream)), listener)
}

#[test]
#[cfg(target_os = "linux")]
fn idle_files_are_closed_without_the_lock() {
    use std::time::{Duration, Instant};
    const CLOSE_TIME: Duration = Duration::from_secs(4);
    let (_folder, spool) = spool();
    let (file, _listener) = slow_to_close(CLOSE_TIME);
    spool.pool.idle().push(AnonymousFile { file, extent: 0 });
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| spool.pool.drop_idle());
        while idle_files(&spool) > 0 {
            std::thread::yield_now();
        }
        assert!(begun.elapsed() < CLOSE_TIME / 2, "the lock must not be held while the files are closed");
        closing.join().unwrap();
    });
    assert!(begun.elapsed() > CLOSE_TIME / 2, "closing must take long, or this test proves nothing");
}
