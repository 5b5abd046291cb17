//! Tests of the master key: where it is stored, its rotation, and the errors if it is wrong or missing.

use super::*;
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::{AuditContext, NewAccount};

const NEXT_KEY_FILE: &str = "master.key.new";
const CANARY: &[u8] = b"canary-credential-of-an-upstream";
const SEALING_CONTEXT: &str = "account mine";

/// Stores an account with sealed credentials, and returns the bytes of the pepper.
async fn add_sealed_account(store: &SqlStore) -> Vec<u8> {
    let account = NewAccount {
        name: "mine".to_owned(),
        kind: "oauth".to_owned(),
        protocol: "images".to_owned(),
        tier: "paid".to_owned(),
        settings: "{}".to_owned(),
        sealed_credentials: Some(store.vault().seal(SEALING_CONTEXT, CANARY).unwrap()),
    };
    store.insert_account(&AuditContext::command(), &account).await.unwrap();
    store.pepper_key().expose().to_vec()
}

async fn assert_readable(store: &SqlStore, pepper: &[u8]) {
    let account = store.list_accounts().await.unwrap().remove(0);
    assert_eq!(store.vault().open(SEALING_CONTEXT, &account.sealed_credentials.unwrap()).unwrap(), CANARY);
    assert!(store.pepper_key().expose() == pepper);
}

async fn open(dir: &TempDir) -> SqlStore {
    SqlStore::open_sqlite(dir.path(), None).await.unwrap()
}

async fn open_with_key(dir: &TempDir, byte: u8) -> SqlStore {
    SqlStore::open_sqlite(dir.path(), Some(MasterKey::for_test(byte))).await.unwrap()
}

fn key_file_bytes(dir: &TempDir) -> Vec<u8> {
    fs::read(dir.path().join(MASTER_KEY)).unwrap()
}

#[tokio::test]
async fn no_file_contains_a_sealed_secret_in_plain_form() {
    let (dir, store) = new_store().await;
    add_sealed_account(&store).await;
    let count_files_with = |needle: &[u8]| {
        let files = fs::read_dir(dir.path()).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        files.filter(|file| file.windows(needle.len()).any(|window| window == needle)).count()
    };
    assert!(dir.path().join("imagate.db-wal").metadata().unwrap().len() > 0);
    assert_eq!(count_files_with(CANARY), 0);
    // The name of the account is not sealed and is found, so the search works.
    assert!(count_files_with(b"mine") > 0);
    // The pepper is in no file in plain form, and the master key is only in its own file.
    assert_eq!((count_files_with(store.pepper_key().expose()), count_files_with(&key_file_bytes(&dir))), (0, 1));
    store.close().await;
    assert_eq!(
        (
            count_files_with(CANARY),
            count_files_with(store.pepper_key().expose()),
            count_files_with(&key_file_bytes(&dir))
        ),
        (0, 0, 1)
    );
}

#[tokio::test]
async fn a_rotation_changes_the_key_file_but_no_stored_data() {
    let (dir, store) = new_store().await;
    let (pepper, before) = (add_sealed_account(&store).await, key_file_bytes(&dir));
    store.rotate_master_key(None).await.unwrap();
    assert!(key_file_bytes(&dir) != before);
    let second_store = open(&dir).await;
    assert_readable(&second_store, &pepper).await;

    // The old key no longer works.
    second_store.close().await;
    close(store).await;
    fs::write(dir.path().join(MASTER_KEY), before).unwrap();
    let error = open_error(&dir).await;
    assert!(
        matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("restore the master.key"),
        "{error}"
    );
}

#[tokio::test]
async fn a_running_server_is_not_affected_by_a_rotation() {
    let (dir, server) = new_store().await;
    let pepper = add_sealed_account(&server).await;
    let command = open(&dir).await;
    command.rotate_master_key(None).await.unwrap();
    assert_readable(&server, &pepper).await;
    let sealed = server.vault().seal(SEALING_CONTEXT, CANARY).unwrap();
    assert!(server.claim_refresh("mine", "a", Timestamp::now(), Timestamp::now()).await.unwrap());
    assert!(server.store_token("mine", "a", &sealed).await.unwrap());
    // Each rotation reads `master.key` and the data keys again, so both processes can rotate the key.
    server.rotate_master_key(None).await.unwrap();
    command.rotate_master_key(None).await.unwrap();
    let next = open(&dir).await;
    assert_readable(&next, &pepper).await;
    assert_eq!(
        next.vault().open(SEALING_CONTEXT, &next.load_token("mine").await.unwrap().unwrap().sealed_token).unwrap(),
        CANARY
    );
}

#[tokio::test]
async fn an_interrupted_rotation_leaves_a_readable_installation() {
    let (dir, store) = new_store().await;
    let pepper = add_sealed_account(&store).await;
    let next = MasterKey::for_test(9);
    let key_file = KeyFile(&store.data_dir);
    let next_key_path = dir.path().join(NEXT_KEY_FILE);

    // The process died while it wrote the next key.
    fs::write(&next_key_path, [1; 31]).unwrap();
    let before = key_file_bytes(&dir);
    assert_readable(&open(&dir).await, &pepper).await;
    assert!(key_file_bytes(&dir) == before && !next_key_path.exists());

    // The process died after it wrote the next key, before it wrapped the data keys with it.
    key_file.write_next_key(&next).unwrap();
    assert_readable(&open(&dir).await, &pepper).await;
    assert!(key_file_bytes(&dir) == before && !next_key_path.exists());

    // The process died after it wrapped the data keys with the next key, before it replaced `master.key`.
    key_file.write_next_key(&next).unwrap();
    let wrapped = sql::data_keys::load(&store.writer).await.unwrap().unwrap();
    let keys = key_file.unlock(&wrapped).unwrap();
    key_file.write_next_key(&next).unwrap();
    sql::data_keys::rewrap(&store.writer, &keys, &next).await.unwrap();
    assert_readable(&open(&dir).await, &pepper).await;
    assert!(key_file_bytes(&dir) == [9; 32] && !next_key_path.exists());
}

#[tokio::test]
async fn a_rotation_of_the_key_file_accepts_a_given_key() {
    let (dir, store) = new_store().await;
    let pepper = add_sealed_account(&store).await;
    store.rotate_master_key(Some(MasterKey::for_test(9))).await.unwrap();
    assert!(key_file_bytes(&dir) == [9; 32]);
    // An operator may move the key to the configuration: the bytes of the file are the configured key.
    fs::remove_file(dir.path().join(MASTER_KEY)).unwrap();
    assert_readable(&open_with_key(&dir, 9).await, &pepper).await;
}

#[tokio::test]
async fn the_key_of_the_file_works_as_text_in_the_configuration() {
    let (dir, store) = new_store().await;
    let pepper = add_sealed_account(&store).await;
    let key = MasterKey::from_text(&hex::encode(key_file_bytes(&dir))).unwrap();
    assert_readable(&SqlStore::open_sqlite(dir.path(), Some(key)).await.unwrap(), &pepper).await;
}

#[tokio::test]
async fn a_key_of_the_configuration_needs_no_file() {
    let dir = TempDir::new().unwrap();
    let store = open_with_key(&dir, 1).await;
    let pepper = add_sealed_account(&store).await;
    let second_store = open_with_key(&dir, 1).await;
    assert_readable(&second_store, &pepper).await;
    assert!(!dir.path().join(MASTER_KEY).exists());
    second_store.close().await;
    store.close().await;
    let wrong_key_error = open_error_with(&dir, Some(MasterKey::for_test(2))).await;
    assert!(
        matches!(wrong_key_error, StoreError::Damaged { .. })
            && wrong_key_error.to_string().contains("the setting master_key")
    );
    // If neither the configuration nor a file has a key, no new key is made.
    let missing_key_error = open_error(&dir).await;
    assert!(
        matches!(missing_key_error, StoreError::Damaged { .. })
            && missing_key_error.to_string().contains("master.key is missing")
    );
    assert!(!dir.path().join(MASTER_KEY).exists());
}

#[tokio::test]
async fn a_configured_key_is_rotated_only_to_a_given_key() {
    let dir = TempDir::new().unwrap();
    let (store, stale) = (open_with_key(&dir, 1).await, open_with_key(&dir, 1).await);
    let pepper = add_sealed_account(&store).await;
    assert!(matches!(store.rotate_master_key(None).await, Err(StoreError::MasterKey { .. })));
    store.rotate_master_key(Some(MasterKey::for_test(2))).await.unwrap();
    // The process of this store still has the former key in its configuration.
    let error = stale.rotate_master_key(Some(MasterKey::for_test(3))).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert_readable(&stale, &pepper).await;
    assert_readable(&open_with_key(&dir, 2).await, &pepper).await;
    assert!(!dir.path().join(MASTER_KEY).exists() && !dir.path().join(NEXT_KEY_FILE).exists());
}

#[tokio::test]
async fn lost_data_keys_are_not_replaced() {
    for sql in ["DELETE FROM data_keys", "DELETE FROM data_keys WHERE purpose = 'vault'"] {
        let (dir, store) = new_store().await;
        add_sealed_account(&store).await;
        close(store).await;
        execute(&dir, sql).await;
        let error = open_error(&dir).await;
        assert!(matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("restore it"), "{error}");
    }
}

const KILLS: usize = 12;

#[tokio::test]
async fn a_killed_rotation_leaves_a_readable_installation() {
    let (dir, store) = new_store().await;
    let pepper = add_sealed_account(&store).await;
    for round in 0..KILLS {
        let mut child = spawn_child(module_path!(), "child_that_rotates", &dir);
        let mut child_output = child.stdout.take().unwrap();
        let mut rotations = 0;
        while rotations <= round {
            let mut byte = [0];
            child_output.read_exact(&mut byte).unwrap();
            rotations += usize::from(byte[0] == b'!');
        }
        // Every second round waits until the file of the next key exists, so that the kill interrupts a rotation.
        while round % 2 == 1 && !dir.path().join(NEXT_KEY_FILE).exists() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_readable(&open(&dir).await, &pepper).await;
        assert!(!dir.path().join(NEXT_KEY_FILE).exists());
    }
}

#[tokio::test]
async fn child_that_rotates() {
    let Some(dir) = child_dir() else { return };
    let store = SqlStore::open_sqlite(&dir, None).await.unwrap();
    loop {
        store.rotate_master_key(None).await.unwrap();
        std::io::stdout().write_all(b"!").unwrap();
        std::io::stdout().flush().unwrap();
    }
}
