//! Backups and what is refused as one.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::*;
use crate::gateway::store::InstallationStore as _;
use crate::gateway::store::testing::{execute, new_store, running_record};
use crate::gateway::store::{NodeId, RecordStore as _, RowWrite, newest_schema_version};

const WITH_KEY: BackupOptions = BackupOptions { overwrite: false, with_master_key: true, recipients: Vec::new() };

/// An installation with one record, and a backup of it.
async fn backup_of_new_installation() -> (TempDir, TempDir, PathBuf) {
    let (dir, store) = new_store().await;
    let record = running_record("req_1");
    store.write_rows(&NodeId::only(), &[RowWrite::Open(&record)]).await.unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup.tar");
    // The store is still open, as beside a server.
    create(dir.path(), None, &file, &WITH_KEY).unwrap();
    store.close().await;
    (dir, folder, file)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Restores a file that must be refused, and returns the message.
#[track_caller]
fn refusal(file: &Path) -> String {
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("data");
    let error = restore(file, &[], &target, None).unwrap_err();
    assert!(!target.join("imagate.db").exists() && !target.join("master.key").exists(), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_backup_holds_the_database_the_marker_and_the_master_key() {
    let (dir, folder, file) = backup_of_new_installation().await;
    let target = folder.path().join("data");
    let RestoreReport { manifest, valid_keys } = restore(&file, &[], &target, None).unwrap();
    assert_eq!((manifest.listed_counts["records"], manifest.schema_version), (1, newest_schema_version()));
    assert_eq!((manifest.counts["users"], manifest.listed_counts["users"]), (1, 0), "no list shows the program's own");
    assert_eq!((manifest.master_key, valid_keys), (MasterKeyInclusion::Included, Vec::new()));
    assert_eq!(names(&target), ["imagate.db", "imagate.db.marker", "master.key", "open.lock", "serve.lock"]);
    assert_eq!(fs::read(target.join("master.key")).unwrap(), fs::read(dir.path().join("master.key")).unwrap());
    assert_eq!(names(folder.path()), ["backup.tar", "data"], "nothing else may be left");
}

#[cfg(unix)]
#[tokio::test]
async fn backups_and_restored_files_are_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let (_dir, folder, file) = backup_of_new_installation().await;
    let target = folder.path().join("data");
    fs::create_dir(&target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
    restore(&file, &[], &target, None).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(&target)), (0o600, 0o700));
    for name in names(&target) {
        assert_eq!(mode(&target.join(&name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn an_existing_file_is_replaced_only_on_request() {
    let (dir, folder, file) = backup_of_new_installation().await;
    fs::write(&file, "precious").unwrap();
    assert!(matches!(create(dir.path(), None, &file, &WITH_KEY), Err(BackupError::FileExists(_))));
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    create(dir.path(), None, &file, &BackupOptions { overwrite: true, ..WITH_KEY }).unwrap();
    restore(&file, &[], &folder.path().join("data"), None).unwrap();
    assert!(move_into_place(&dir.path().join("imagate.db"), &file, false).is_err(), "a file of the last moment");
}

#[tokio::test]
async fn a_changed_byte_is_detected_wherever_it_is() {
    let (_dir, folder, file) = backup_of_new_installation().await;
    let original = fs::read(&file).unwrap();
    let expected = BackupArchive::open(&file, &[]).unwrap().manifest;
    let target = folder.path().join("changed.tar");
    // Every byte of the headers, of the manifest and of the small files, and one byte of each kilobyte of the database.
    let database = original.len().saturating_sub(8192)..original.len();
    let places = (0..4096).chain((4096..original.len()).step_by(1021)).chain(database);
    let mut padding = 0;
    fs::write(&target, &original).unwrap();
    let mut changed = File::options().read(true).write(true).open(&target).unwrap();
    let mut put = |place: usize, byte: u8| {
        changed.seek(SeekFrom::Start(place as u64)).unwrap();
        changed.write_all(&[byte]).unwrap();
    };
    for place in places {
        put(place, original[place] ^ 0x15);
        match BackupArchive::open(&target, &[]).and_then(|archive| archive.check().map(|()| archive)) {
            Err(_) => {}
            // The zeros that fill the last block of a file are not part of it.
            Ok(archive) => {
                assert!(original[place] == 0 && archive.manifest == expected, "{place}");
                padding += 1;
            }
        }
        put(place, original[place]);
    }
    assert!(padding < 4096, "{padding} changes were not detected");
}

#[tokio::test]
async fn a_truncated_file_is_refused_wherever_it_ends() {
    let (_dir, folder, file) = backup_of_new_installation().await;
    let original = fs::read(&file).unwrap();
    let target = folder.path().join("truncated.tar");
    for length in (0..original.len()).step_by(509).chain([original.len() - 1]) {
        fs::write(&target, &original[..length]).unwrap();
        refusal(&target);
    }
    fs::write(&target, [&original[..], &[0]].concat()).unwrap();
    assert!(refusal(&target).contains("too long"));
    fs::write(&target, &original[..original.len() - 1]).unwrap();
    assert!(refusal(&target).contains("truncated"));
}

/// Writes an archive of entries, each with a name, a kind and contents.
fn write_entries(file: &Path, entries: &[(&str, EntryType, &[u8])]) {
    let mut builder = Builder::new(File::create(file).unwrap());
    for (name, kind, contents) in entries {
        let mut header = Header::new_ustar();
        // The name is written as it is: the library refuses names that lead out of a folder.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(contents.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        builder.append(&header, *contents).unwrap();
    }
    builder.into_inner().unwrap();
}

/// A manifest that lists these files, and its digest.
fn manifest_of(files: &[(&str, &[u8])], change: impl FnOnce(&mut BackupManifest)) -> (Vec<u8>, Vec<u8>) {
    let file = |(name, contents): &(&str, &[u8])| manifest::BackupFile {
        name: (*name).to_owned(),
        bytes: contents.len() as u64,
        sha256: manifest::sha256(contents),
    };
    let mut manifest = BackupManifest {
        format: manifest::FORMAT,
        version: "9.9.9".to_owned(),
        schema_version: 1,
        created_at: "2026-11-26T08:00:00.000Z".to_owned(),
        master_key: MasterKeyInclusion::Included,
        counts: std::collections::BTreeMap::new(),
        listed_counts: std::collections::BTreeMap::new(),
        files: files.iter().map(file).collect(),
    };
    change(&mut manifest);
    let bytes = manifest.to_bytes().unwrap();
    let digest = format!("{}  manifest.json\n", manifest::sha256(&bytes)).into_bytes();
    (bytes, digest)
}

#[test]
fn no_entry_leads_out_of_the_folder() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("hostile.tar");
    let contents = b"stolen".as_slice();
    for name in ["../evil", "/tmp/evil", "evil", "./imagate.db", "a/../../evil"] {
        let (manifest, digest) = manifest_of(&[(name, contents)], |_| {});
        let regular = EntryType::Regular;
        let head = [("manifest.json", regular, &manifest[..]), ("manifest.json.sha256", regular, &digest[..])];
        write_entries(&file, &[head[0], head[1], (name, regular, contents)]);
        assert!(refusal(&file).contains("names a file that no backup has"), "{name}");
    }
    // The manifest is right, but the entry is not.
    let (manifest, digest) = manifest_of(&[("imagate.db", contents)], |_| {});
    let regular = EntryType::Regular;
    let head = [("manifest.json", regular, &manifest[..]), ("manifest.json.sha256", regular, &digest[..])];
    for entry in [
        ("../imagate.db", regular, contents),
        ("imagate.db", EntryType::Symlink, contents),
        ("imagate.db", EntryType::Link, contents),
        ("imagate.db", EntryType::Directory, contents),
        ("imagate.db", EntryType::GNULongName, contents),
        ("imagate.db", EntryType::GNUSparse, contents),
    ] {
        write_entries(&file, &[head[0], head[1], entry]);
        let message = refusal(&file);
        assert!(message.contains("there is something else in the place of imagate.db"), "{entry:?}: {message}");
    }
    write_entries(&file, &[head[0], head[1], ("imagate.db", regular, b"foreign")]);
    refusal(&file);
    write_entries(&file, &[head[0], head[1], ("imagate.db", regular, b"STOLEN")]);
    assert!(refusal(&file).contains("SHA-256"));
    write_entries(&file, &[head[0], head[1], ("imagate.db", regular, contents)]);
    assert!(refusal(&file).contains("cannot be used"), "the bytes are those of the manifest, but no database");
}

#[test]
fn a_backup_of_a_newer_version_is_refused_with_that_version() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("newer.tar");
    let changes: [fn(&mut BackupManifest); 2] =
        [|manifest| manifest.format += 1, |manifest| manifest.schema_version = newest_schema_version() + 1];
    for change in changes {
        let (manifest, digest) = manifest_of(&[], change);
        let regular = EntryType::Regular;
        write_entries(
            &file,
            &[("manifest.json", regular, &manifest[..]), ("manifest.json.sha256", regular, &digest[..])],
        );
        let message = refusal(&file);
        assert!(message.contains("imagate 9.9.9, which is newer"), "{message}");
    }
}

#[test]
fn other_files_are_no_backups() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("other");
    let regular = EntryType::Regular;
    write_entries(&file, &[("readme.txt", regular, b"hello")]);
    assert!(refusal(&file).contains("is not a backup of imagate"));
    write_entries(&file, &[("manifest.json", regular, b"{}"), ("manifest.json.sha256", regular, b"x")]);
    assert!(refusal(&file).contains("its manifest was changed"));
    for bytes in [&b""[..], b"text", &[0x1f, 0x8b, 8, 0], &[0; 10_000], b"SQLite format 3\0"] {
        fs::write(&file, bytes).unwrap();
        assert!(refusal(&file).contains("is not a backup of imagate"), "{bytes:?}");
    }
    assert!(refusal(folder.path()).contains("is not a backup of imagate"));
    assert!(refusal(&folder.path().join("absent")).contains("reading"));
}

#[tokio::test]
async fn a_backup_is_never_restored_over_files() {
    let (dir, folder, file) = backup_of_new_installation().await;
    assert!(restore(&file, &[], dir.path(), None).unwrap_err().to_string().contains("it is not empty"));
    let target = folder.path().join("data");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("notes.txt"), "mine").unwrap();
    let message = restore(&file, &[], &target, None).unwrap_err().to_string();
    assert!(message.contains("it has notes.txt"), "{message}");
    assert_eq!(names(&target), ["notes.txt"], "not even a lock file may be left");
    // Lock files and the folder of a new volume are no data.
    fs::remove_file(target.join("notes.txt")).unwrap();
    fs::create_dir(target.join("lost+found")).unwrap();
    fs::write(target.join("open.lock"), "").unwrap();
    restore(&file, &[], &target, None).unwrap();
}

#[tokio::test]
async fn a_served_directory_is_refused_before_the_file_is_read() {
    let (dir, store) = new_store().await;
    let lock = store.lock_for_serving().unwrap();
    let error = restore(&dir.path().join("absent"), &[], dir.path(), None).unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::InUse { .. })), "{error}");
    drop(lock);
}

#[tokio::test]
async fn a_backup_without_its_master_key_needs_the_right_one() {
    let (dir, store) = new_store().await;
    store.close().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup.tar");
    let report = create(dir.path(), None, &file, &BackupOptions { with_master_key: false, ..WITH_KEY }).unwrap();
    assert_eq!(report.manifest.master_key, MasterKeyInclusion::LeftOut);
    let key = fs::read(dir.path().join("master.key")).unwrap();
    let mut bytes = Vec::new();
    File::open(&file).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(!bytes.windows(key.len()).any(|window| window == key), "the key is in the file");
    let target = folder.path().join("data");
    restore(&file, &[], &target, None).unwrap();
    assert!(!target.join("master.key").exists());
    // A wrong key of the installation makes no backup, because it would be worth nothing.
    fs::write(dir.path().join("master.key"), [7; 32]).unwrap();
    let other = folder.path().join("other.tar");
    assert!(create(dir.path(), None, &other, &WITH_KEY).unwrap_err().to_string().contains("master.key is not the key"));
    assert!(!other.exists());
}

#[tokio::test]
async fn a_master_key_of_the_settings_is_not_in_the_backup_and_is_checked() {
    let dir = TempDir::new().unwrap();
    let key = || MasterKey::for_test(3);
    crate::gateway::store::SqlStore::open_sqlite(dir.path(), Some(key())).await.unwrap().close().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup.tar");
    let report = create(dir.path(), Some(&key()), &file, &WITH_KEY).unwrap();
    assert_eq!(report.manifest.master_key, MasterKeyInclusion::Settings);
    let message = restore(&file, &[], &folder.path().join("a"), Some(&MasterKey::for_test(4))).unwrap_err().to_string();
    assert!(message.contains("the setting master_key is not the key"), "{message}");
    restore(&file, &[], &folder.path().join("b"), Some(&key())).unwrap();
    assert!(create(dir.path(), None, &folder.path().join("c"), &WITH_KEY).is_err(), "the key is unknown");
}

#[tokio::test]
async fn an_older_database_is_backed_up_without_a_migration() {
    let (dir, store) = new_store().await;
    store.close().await;
    execute(&dir, "UPDATE _sqlx_migrations SET version = version - 1").await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup.tar");
    let report = create(dir.path(), None, &file, &WITH_KEY).unwrap();
    assert_eq!(report.manifest.schema_version, newest_schema_version() - 1);
    restore(&file, &[], &folder.path().join("data"), None).unwrap();
}

#[test]
fn an_empty_directory_has_no_installation() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup.tar");
    let data_dir = folder.path().join("data");
    assert!(matches!(create(&data_dir, None, &file, &WITH_KEY), Err(BackupError::NoInstallation(_))));
    assert!(!data_dir.exists() && names(folder.path()).is_empty());
}

#[tokio::test]
async fn a_sealed_backup_shows_nothing_and_needs_its_key() {
    let (dir, store) = new_store().await;
    let (folder, identity) = (TempDir::new().unwrap(), BackupIdentity::random().unwrap());
    let other = BackupIdentity::random().unwrap();
    let file = folder.path().join("backup.age");
    let recipients = vec![other.recipient().unwrap(), identity.recipient().unwrap()];
    create(dir.path(), None, &file, &BackupOptions { recipients, ..WITH_KEY }).unwrap();
    store.close().await;
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"age-encryption.org/v1\n"));
    let master_key = fs::read(dir.path().join("master.key")).unwrap();
    for secret in [&master_key[..], b"SQLite format 3", b"master.key", b"manifest.json"] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret));
    }
    assert_eq!(names(folder.path()), ["backup.age"], "nothing else may be left");
    assert!(!names(dir.path()).iter().any(|name| name.starts_with(BACKUP_STAGING)));

    let target = folder.path().join("data");
    assert!(matches!(restore(&file, &[], &target, None), Err(BackupError::Sealed(_))));
    let stranger = [BackupIdentity::random().unwrap()];
    assert!(matches!(restore(&file, &stranger, &target, None), Err(BackupError::OtherIdentity(_))));
    restore(&file, &[identity], &target, None).unwrap();
    assert_eq!(fs::read(target.join("master.key")).unwrap(), master_key);

    let plain = folder.path().join("backup.tar");
    create(dir.path(), None, &plain, &WITH_KEY).unwrap();
    let refused = restore(&plain, &stranger, &folder.path().join("other"), None);
    assert!(matches!(refused, Err(BackupError::NotSealed(_))), "a plain file in the place of a sealed one");
}

#[tokio::test]
async fn a_sealed_backup_that_was_changed_or_cut_off_is_refused_before_anything_is_written() {
    let (dir, store) = new_store().await;
    let (folder, identity) = (TempDir::new().unwrap(), [BackupIdentity::random().unwrap()]);
    let file = folder.path().join("backup.age");
    let recipients = vec![identity[0].recipient().unwrap()];
    create(dir.path(), None, &file, &BackupOptions { recipients, ..WITH_KEY }).unwrap();
    store.close().await;
    let original = fs::read(&file).unwrap();
    let sealed_chunk = 64 * 1024 + 16;
    let target = folder.path().join("data");
    let refuse = |bytes: &[u8], what: &str| {
        fs::write(&file, bytes).unwrap();
        restore(&file, &identity, &target, None).expect_err(what);
        assert!(!target.join("imagate.db").exists() && !target.join("master.key").exists(), "{what}");
    };
    for place in (0..400).chain((400..original.len()).step_by(original.len() / 60)).chain([original.len() - 1]) {
        let mut changed = original.clone();
        changed[place] ^= 0x15;
        refuse(&changed, &format!("byte {place}"));
    }
    let head = original.windows(4).position(|window| window == b"--- ").unwrap() + 4 + 43 + 1 + 16;
    let whole_chunks = (original.len() - head) / sealed_chunk;
    let cuts = [0, 10, head, head + sealed_chunk, head + whole_chunks * sealed_chunk, original.len() - 1];
    for cut in cuts.into_iter().filter(|cut| *cut < original.len()) {
        refuse(&original[..cut], &format!("cut at {cut}"));
    }
    refuse(&[&original[..], b"x"].concat(), "one byte more");
    let swapped =
        [&original[..head], &original[head + sealed_chunk..head + 2 * sealed_chunk], &original[head..]].concat();
    refuse(&swapped, "a chunk twice");
    fs::write(&file, &original).unwrap();
    restore(&file, &identity, &target, None).unwrap();
}

#[test]
fn a_key_file_is_private_and_is_read_again() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup.key");
    let recipient = create_identity(&file).unwrap();
    assert!(matches!(create_identity(&file), Err(BackupError::FileExists(_))));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("AGE-SECRET-KEY-1") && text.contains(&recipient.to_string()), "its two forms");
    let identities = read_identities(&file).unwrap();
    assert_eq!(identities.iter().map(|key| key.recipient().unwrap()).collect::<Vec<_>>(), [recipient]);
    fs::write(&file, "age1x\n").unwrap();
    assert!(matches!(read_identities(&file), Err(BackupError::NotIdentities(_))));
}
