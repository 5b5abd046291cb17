//! The spool in a directory of its own.

use tempfile::TempDir;

use super::*;

fn spool() -> (TempDir, Spool) {
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path()).unwrap();
    (folder, spool)
}

fn put(spool: &Spool, pieces: &[&[u8]]) -> Arc<SpooledFile> {
    let mut writer = spool.create_writer_blocking().unwrap();
    for piece in pieces {
        writer.write(piece).unwrap();
    }
    writer.finish()
}

fn bytes(file: &SpooledFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len()).unwrap() + 10];
    let count = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

fn idle(spool: &Spool) -> usize {
    spool.pool.idle().len()
}

fn names(folder: &TempDir) -> usize {
    std::fs::read_dir(folder.path().join("spool")).unwrap().count()
}

/// Returns the files in the folder that this process has open, with or without a name.
#[cfg(target_os = "linux")]
fn open_files(folder: &TempDir) -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = fds.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(folder.path())).count()
}

#[test]
fn what_was_written_is_read_at_any_place() {
    let (_folder, spool) = spool();
    let file = put(&spool, &[b"red ", b"", b"cube"]);
    assert_eq!((file.len(), bytes(&file)), (8, b"red cube".to_vec()));
    let mut four = [0; 4];
    assert_eq!((file.read_at(6, &mut four).unwrap(), &four[..2]), (2, &b"be"[..]));
    assert_eq!(file.read_at(8, &mut four).unwrap(), 0);
    assert_eq!(file.read_at(u64::MAX, &mut four).unwrap(), 0);
}

#[test]
fn a_file_that_is_used_again_shows_nothing_of_its_last_upload() {
    let (_folder, spool) = spool();
    drop(put(&spool, &[b"somebody else's picture"]));
    assert_eq!(idle(&spool), 1);
    let file = put(&spool, &[b"mine"]);
    assert_eq!(idle(&spool), 0, "the same file, or this test shows nothing");
    assert_eq!(bytes(&file), b"mine");
    drop(file);
    assert_eq!(bytes(&put(&spool, &[])), b"");
}

#[test]
fn uploads_at_the_same_time_have_files_of_their_own() {
    let (_folder, spool) = spool();
    let files: Vec<_> = (0..20_u8).map(|number| put(&spool, &[&[number; 100]])).collect();
    for (number, file) in (0..).zip(&files) {
        assert_eq!(bytes(file), [number; 100]);
    }
}

#[test]
fn a_file_goes_back_with_its_last_copy_also_when_it_was_never_finished() {
    let (_folder, spool) = spool();
    let file = put(&spool, &[b"a"]);
    let copy = Arc::clone(&file);
    drop(file);
    assert_eq!(idle(&spool), 0);
    drop(copy);
    assert_eq!(idle(&spool), 1);
    let mut writer = spool.clone().create_writer_blocking().unwrap();
    writer.write(b"half of a pict").unwrap();
    drop(writer);
    assert_eq!(idle(&spool), 1);
}

#[test]
fn at_most_so_many_files_wait_and_none_of_them_is_large() {
    let (_folder, spool) = spool();
    drop((0..50).map(|_| put(&spool, &[b"a"])).collect::<Vec<_>>());
    assert_eq!(idle(&spool), IDLE_MAX);
    let (_folder, spool) = self::spool();
    let large = vec![1; 1024 * 1024];
    for (megabytes, kept) in [(32, IDLE_FILE_BYTES_MAX), (33, 0)] {
        drop(put(&spool, &vec![&large[..]; megabytes]));
        assert_eq!(spool.pool.idle()[0].file.metadata().unwrap().len(), kept);
    }
    drop(put(&spool, &[b"a"]));
    assert_eq!(spool.pool.idle()[0].extent, 1);
}

#[test]
#[cfg(target_os = "linux")]
fn no_file_has_a_name_while_it_is_used_or_afterwards() {
    let (folder, spool) = spool();
    let mut writer = spool.create_writer_blocking().unwrap();
    writer.write(b"a").unwrap();
    let file = put(&spool, &[b"b"]);
    assert_eq!((names(&folder), open_files(&folder)), (0, 2));
    drop((writer, file));
    assert_eq!((names(&folder), open_files(&folder)), (0, 2), "they wait for the next");
    drop(spool);
    assert_eq!((names(&folder), open_files(&folder)), (0, 0));
}

#[test]
fn leftovers_are_removed_and_only_from_the_folder_of_the_spool() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("imagate.db"), "").unwrap();
    std::fs::create_dir_all(folder.path().join("spool/kept")).unwrap();
    std::fs::write(folder.path().join("spool/.tmp123"), "").unwrap();
    let _spool = Spool::new(folder.path()).unwrap();
    assert_eq!(names(&folder), 1);
    assert!(folder.path().join("imagate.db").exists());
}

#[test]
#[cfg(unix)]
fn the_folder_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, _spool) = spool();
    let mode = std::fs::metadata(folder.path().join("spool")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_lets_go_of_the_files_that_wait_and_says_so_if_that_does_not_help() {
    let (_folder, spool) = spool();
    drop((0..3).map(|_| put(&spool, &[b"a"])).collect::<Vec<_>>());
    // Every write to this file fails as if the disk were full.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut writer = spool.writer(AnonymousFile { file: full, extent: 0 });
    assert_eq!(writer.write(b"a").unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!((writer.len(), idle(&spool)), (0, 0));
}

#[tokio::test]
async fn a_little_stays_in_memory_and_more_than_that_goes_into_one_file() {
    let (_folder, spool) = spool();
    let keep = async |pieces: &[usize]| {
        let (mut keeper, mut all) = (spool.bytes_writer(), Vec::new());
        for (number, length) in pieces.iter().enumerate() {
            let piece: Vec<u8> = (0..*length).map(|at| u8::try_from((at * 31 + number) % 256).unwrap()).collect();
            keeper.write(Bytes::copy_from_slice(&piece)).await.unwrap();
            all.extend(piece);
        }
        (keeper.finish().await.unwrap(), all)
    };
    for (pieces, on_disk) in [
        (&[][..], false),
        (&[10, 0, 20], false),
        (&[64 * 1024], false),
        (&[64 * 1024, 1], true),
        (&[200_000], true),
        (&[1000; 200], true),
    ] {
        let (kept, all) = keep(pieces).await;
        assert_eq!(matches!(kept, SpooledBytes::Disk { .. }), on_disk, "{}", all.len());
        let mut read = vec![0; all.len()];
        assert_eq!((kept.len(), kept.read_at(0, &mut read).unwrap()), (all.len() as u64, all.len()));
        assert!(read == all);
        let (from, to) = (all.len() / 3, all.len() / 2);
        let part = kept.slice(from as u64, to as u64).slice(1, u64::MAX);
        let mut read = vec![0; all.len() + 1];
        let count = part.read_at(0, &mut read).unwrap();
        assert_eq!((&read[..count], part.len()), (all.get(from + 1..to).unwrap_or_default(), count as u64));
        assert_eq!(part.read_at(count as u64, &mut read).unwrap(), 0);
    }
}

fn limits() -> UploadLimits {
    UploadLimits { memory: 100, memory_per_key: 60, disk: 100, disk_per_key: 60, min_free: 0 }
}

fn why(result: io::Result<()>) -> Option<BudgetExceeded> {
    result.err().and_then(|error| error.get_ref()?.downcast_ref().copied())
}

#[test]
fn what_a_key_holds_on_disk_is_bounded_and_comes_back() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::open_in(folder.path(), &limits()).unwrap();
    let [mut first, mut second, mut other] =
        ["key_a", "key_a", "key_b"].map(|key| spool.owned_by(Some(key)).create_writer_blocking().unwrap());
    first.write(&[0; 40]).unwrap();
    assert_eq!(why(second.write(&[0; 21])), Some(BudgetExceeded::KeyDisk));
    second.write(&[0; 20]).unwrap();
    other.write(&[0; 40]).unwrap();
    assert_eq!(why(other.write(&[0; 1])), Some(BudgetExceeded::Disk));
    assert_eq!((spool.usage().disk, spool.usage().refused), (100, 2));
    let whole = first.finish();
    assert_eq!(why(other.write(&[0; 1])), Some(BudgetExceeded::Disk), "until its job is over");
    drop(whole);
    other.write(&[0; 20]).unwrap();
    drop((second, other));
    assert_eq!(spool.usage().disk, 0);
    // Answers that were paid for are not refused.
    spool.create_writer_blocking().unwrap().write(&[0; 1000]).unwrap();
}

#[test]
fn what_a_key_holds_in_memory_is_bounded_and_comes_back() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::open_in(folder.path(), &limits()).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| spool.owned_by(Some("key_a")).memory());
    first.set_bytes(40).unwrap();
    assert_eq!(why(second.set_bytes(21)), Some(BudgetExceeded::KeyMemory));
    first.set_bytes(10).unwrap();
    second.set_bytes(21).unwrap();
    assert_eq!(why(spool.owned_by(Some("key_b")).memory().set_bytes(70)), Some(BudgetExceeded::KeyMemory));
    let mut third = spool.owned_by(Some("key_b")).memory();
    third.set_bytes(60).unwrap();
    assert_eq!(why(spool.owned_by(Some("key_c")).memory().set_bytes(10)), Some(BudgetExceeded::Memory));
    drop((first, second, third));
    assert_eq!(spool.usage().memory, 0);
}

#[test]
#[cfg(unix)]
fn the_last_free_space_belongs_to_the_database() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::on_short_disk(folder.path()).unwrap();
    assert_eq!(why(spool.owned_by(Some("key_a")).create_writer_blocking().map(drop)), Some(BudgetExceeded::FreeSpace));
    assert_eq!(idle(&spool), 0, "the files that wait were let go first");
}

#[tokio::test]
#[cfg(unix)]
async fn an_answer_has_the_last_free_space_only_if_it_was_paid_for() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::on_short_disk(folder.path()).unwrap();
    assert_eq!(why(spool.create_writer_within_free_space().await.map(drop)), Some(BudgetExceeded::FreeSpace));
    let writer = spool.create_writer().await.unwrap().append(Bytes::from_static(b"an image")).await.unwrap();
    assert_eq!(bytes(&writer.finish()), b"an image");
}

#[tokio::test]
async fn a_body_on_disk_is_read_on_a_thread_that_may_wait_and_one_in_memory_here() {
    let (here, reader) = (std::thread::current().id(), || std::thread::current().id());
    assert_ne!(SpooledBytes::on_disk(b"a body").read_with(reader).await.unwrap(), here);
    assert_eq!(SpooledBytes::from(Bytes::from_static(b"a body")).read_with(reader).await.unwrap(), here);
}

/// The work of a request takes as long as its disk, and delays no other request.
#[tokio::test]
async fn a_disk_that_stalls_stops_only_who_waits_for_it() {
    let (stalled, disk) = std::sync::mpsc::channel::<()>();
    let body = SpooledBytes::on_disk(b"a body");
    let waiting = body.read_with(move || disk.recv());
    let others = async {
        tokio::task::yield_now().await;
        stalled.send(()).unwrap();
    };
    let (read, ()) = tokio::join!(waiting, others);
    read.unwrap().unwrap();
}

/// Returns a file that takes this long to close: a connection with bytes that its other end does not read.
#[cfg(target_os = "linux")]
fn slow_to_close(time: std::time::Duration) -> (File, std::net::TcpListener) {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 64 * 1024]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(time)).unwrap();
    (File::from(std::os::fd::OwnedFd::from(stream)), listener)
}

#[test]
#[cfg(target_os = "linux")]
fn nobody_waits_for_idle_files_that_are_closed() {
    use std::time::{Duration, Instant};
    const TIME: Duration = Duration::from_secs(4);
    let (_folder, spool) = spool();
    let (file, _listener) = slow_to_close(TIME);
    spool.pool.idle().push(AnonymousFile { file, extent: 0 });
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| spool.pool.drop_idle());
        while idle(&spool) > 0 {
            std::thread::yield_now();
        }
        assert!(begun.elapsed() < TIME / 2, "the lock is held while they are closed");
        closing.join().unwrap();
    });
    assert!(begun.elapsed() > TIME / 2, "closing takes long, or this test shows nothing");
}
