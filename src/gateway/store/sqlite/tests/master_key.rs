//! The master key: its place, its change, and the result if it is wrong.

use super::*;
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::testing::legacy_installation;
use crate::gateway::store::{AuditContext, KeyStore as _, NewAccount};

const BESIDE: &str = "master.key.new";
const CANARY: &[u8] = b"canary-credential-of-an-upstream";
const PLACE: &str = "account mine";

/// Stores an account with sealed credentials, and returns the bytes of the pepper.
async fn fill(store: &SqliteStore) -> Vec<u8> {
    let account = NewAccount {
        name: "mine".to_owned(),
        kind: "oauth".to_owned(),
        protocol: "images".to_owned(),
        tier: "paid".to_owned(),
        settings: "{}".to_owned(),
        sealed_credentials: Some(store.vault().seal(PLACE, CANARY).unwrap()),
    };
    store.insert_account(&AuditContext::command(), &account).await.unwrap();
    store.pepper_key().expose().to_vec()
}

async fn check(store: &SqliteStore, pepper: &[u8]) {
    let account = store.list_accounts().await.unwrap().remove(0);
    assert_eq!(store.vault().open(PLACE, &account.sealed_credentials.unwrap()).unwrap(), CANARY);
    assert!(store.pepper_key().expose() == pepper);
}

async fn open(dir: &TempDir) -> SqliteStore {
    SqliteStore::open(dir.path(), None).await.unwrap()
}

async fn open_given(dir: &TempDir, byte: u8) -> SqliteStore {
    SqliteStore::open(dir.path(), Some(MasterKey::for_test(byte))).await.unwrap()
}

fn file(dir: &TempDir) -> Vec<u8> {
    fs::read(dir.path().join(MASTER_KEY)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn no_file_of_the_database_holds_what_is_sealed_in_it() {
    let (dir, store) = new_store().await;
    fill(&store).await;
    let holds = |needle: &[u8]| {
        let files = fs::read_dir(dir.path()).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        files.filter(|file| file.windows(needle.len()).any(|window| window == needle)).count()
    };
    assert!(dir.path().join("imagate.db-wal").metadata().unwrap().len() > 0);
    assert_eq!(holds(CANARY), 0);
    // A text in plain form is found, so the search works.
    assert!(holds(b"mine") > 0);
    // Neither key is stored in plain form, and the master key is only in its own file.
    assert_eq!((holds(store.pepper_key().expose()), holds(&file(&dir))), (0, 1));
    store.close().await;
    assert_eq!((holds(CANARY), holds(store.pepper_key().expose()), holds(&file(&dir))), (0, 0, 1));
}

#[tokio::test]
async fn a_rotation_changes_the_file_and_nothing_that_is_stored() {
    let (dir, store) = new_store().await;
    let (pepper, before) = (fill(&store).await, file(&dir));
    store.rotate_master_key(None).await.unwrap();
    assert!(file(&dir) != before);
    let other = open(&dir).await;
    check(&other, &pepper).await;

    // The old key opens nothing any more.
    other.close().await;
    close(store).await;
    fs::write(dir.path().join(MASTER_KEY), before).unwrap();
    let error = refused(&dir).await;
    assert!(
        matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("restore the master.key"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_runs_beside_a_rotation_goes_on() {
    let (dir, server) = new_store().await;
    let pepper = fill(&server).await;
    let command = open(&dir).await;
    command.rotate_master_key(None).await.unwrap();
    check(&server, &pepper).await;
    let sealed = server.vault().seal(PLACE, CANARY).unwrap();
    assert!(server.claim_refresh("mine", "a", Timestamp::now(), Timestamp::now()).await.unwrap());
    assert!(server.store_token("mine", "a", &sealed).await.unwrap());
    // Each call reads the files again, so neither disturbs the other.
    server.rotate_master_key(None).await.unwrap();
    command.rotate_master_key(None).await.unwrap();
    let next = open(&dir).await;
    check(&next, &pepper).await;
    assert_eq!(
        next.vault().open(PLACE, &next.load_token("mine").await.unwrap().unwrap().sealed_token).unwrap(),
        CANARY
    );
}

#[tokio::test]
async fn a_rotation_that_dies_at_any_point_leaves_an_installation_that_opens() {
    let (dir, store) = new_store().await;
    let pepper = fill(&store).await;
    let next = MasterKey::for_test(9);
    let key_file = KeyFile(&store.data_dir);
    let beside = dir.path().join(BESIDE);

    // The process died while it wrote the next key.
    fs::write(&beside, [1; 31]).unwrap();
    let before = file(&dir);
    check(&open(&dir).await, &pepper).await;
    assert!(file(&dir) == before && !beside.exists());

    // The process died after writing it.
    key_file.write_next_key(&next).unwrap();
    check(&open(&dir).await, &pepper).await;
    assert!(file(&dir) == before && !beside.exists());

    // The process died after wrapping the data keys.
    key_file.write_next_key(&next).unwrap();
    let wrapped = data_keys::load(&store.writer).await.unwrap().unwrap();
    let keys = key_file.unlock(&wrapped).unwrap();
    key_file.write_next_key(&next).unwrap();
    data_keys::rewrap(&store.writer, &keys, &next).await.unwrap();
    check(&open(&dir).await, &pepper).await;
    assert!(file(&dir) == [9; 32] && !beside.exists());
}

#[tokio::test]
async fn the_next_key_may_be_given_for_the_file_too() {
    let (dir, store) = new_store().await;
    let pepper = fill(&store).await;
    store.rotate_master_key(Some(MasterKey::for_test(9))).await.unwrap();
    assert!(file(&dir) == [9; 32]);
    // An operator who moves the key to the configuration writes the bytes of the file there.
    fs::remove_file(dir.path().join(MASTER_KEY)).unwrap();
    check(&open_given(&dir, 9).await, &pepper).await;
}

#[tokio::test]
async fn the_key_of_a_file_opens_as_text_in_the_configuration() {
    let (dir, store) = new_store().await;
    let pepper = fill(&store).await;
    let key = MasterKey::from_text(&hex(&file(&dir))).unwrap();
    check(&SqliteStore::open(dir.path(), Some(key)).await.unwrap(), &pepper).await;
}

#[tokio::test]
async fn a_key_of_the_configuration_needs_no_file() {
    let dir = TempDir::new().unwrap();
    let store = open_given(&dir, 1).await;
    let pepper = fill(&store).await;
    let other = open_given(&dir, 1).await;
    check(&other, &pepper).await;
    assert!(!dir.path().join(MASTER_KEY).exists());
    other.close().await;
    store.close().await;
    let wrong = refused_with(&dir, Some(MasterKey::for_test(2))).await;
    assert!(matches!(wrong, StoreError::Damaged { .. }) && wrong.to_string().contains("the setting master_key"));
    // Without the file no other key is made in its place.
    let none = refused(&dir).await;
    assert!(matches!(none, StoreError::Damaged { .. }) && none.to_string().contains("master.key is missing"));
    assert!(!dir.path().join(MASTER_KEY).exists());
}

#[tokio::test]
async fn a_key_of_the_configuration_changes_only_to_one_that_is_given() {
    let dir = TempDir::new().unwrap();
    let (store, stale) = (open_given(&dir, 1).await, open_given(&dir, 1).await);
    let pepper = fill(&store).await;
    assert!(matches!(store.rotate_master_key(None).await, Err(StoreError::MasterKey { .. })));
    store.rotate_master_key(Some(MasterKey::for_test(2))).await.unwrap();
    // This one still has the former key in its configuration.
    let error = stale.rotate_master_key(Some(MasterKey::for_test(3))).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    check(&stale, &pepper).await;
    check(&open_given(&dir, 2).await, &pepper).await;
    assert!(!dir.path().join(MASTER_KEY).exists() && !dir.path().join(BESIDE).exists());
}

#[tokio::test]
async fn an_older_installation_keeps_its_pepper() {
    let dir = legacy_installation([7; 32], &[1; 32]).await;
    // HMAC-SHA-256 of "imagate key hash v1" under the master key, as the first release computed it.
    let pepper = "78510dd971feb903387c5c5df4d2687f1dd681d65dadc5883be7f075d6510785";
    let store = open(&dir).await;
    assert_eq!(hex(store.pepper_key().expose()), pepper);
    store.rotate_master_key(None).await.unwrap();
    assert_eq!(hex(open(&dir).await.pepper_key().expose()), pepper);
    assert_eq!(store.list_keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_older_installation_without_its_master_key_is_a_loss() {
    let dir = legacy_installation([7; 32], &[1; 32]).await;
    fs::remove_file(dir.path().join(MASTER_KEY)).unwrap();
    for given in [None, Some(MasterKey::for_test(7))] {
        let error = SqliteStore::open(dir.path(), given).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("master.key is missing"));
        assert!(!dir.path().join(MASTER_KEY).exists());
    }
}

#[tokio::test]
async fn an_older_installation_may_come_with_a_key_in_its_configuration() {
    let dir = legacy_installation([7; 32], &[1; 32]).await;
    let pepper = open_given(&dir, 1).await.pepper_key().expose().to_vec();
    assert!(MasterKey::for_test(7).derive(b"imagate key hash v1").expose() == pepper);
    fs::remove_file(dir.path().join(MASTER_KEY)).unwrap();
    assert!(open_given(&dir, 1).await.pepper_key().expose() == pepper);
}

#[tokio::test]
async fn a_new_installation_has_a_pepper_that_no_master_key_tells() {
    let (dir, store) = new_store().await;
    let master = MasterKey::from_text(&hex(&file(&dir))).unwrap();
    assert!(master.derive(b"imagate key hash v1").expose() != store.pepper_key().expose());
}

#[tokio::test]
async fn lost_data_keys_are_not_made_anew() {
    for sql in ["DELETE FROM data_keys", "DELETE FROM data_keys WHERE purpose = 'vault'"] {
        let (dir, store) = new_store().await;
        fill(&store).await;
        close(store).await;
        execute(&dir, sql).await;
        let error = refused(&dir).await;
        assert!(matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("restore it"), "{error}");
    }
}

const KILLS: usize = 12;

#[tokio::test]
async fn a_rotation_that_is_killed_leaves_an_installation_that_opens() {
    let (dir, store) = new_store().await;
    let pepper = fill(&store).await;
    for round in 0..KILLS {
        let mut child = spawn_child(module_path!(), "child_that_rotates", &dir);
        let mut told = child.stdout.take().unwrap();
        let mut rotations = 0;
        while rotations <= round {
            let mut byte = [0];
            told.read_exact(&mut byte).unwrap();
            rotations += usize::from(byte[0] == b'!');
        }
        // Every second round waits until the next key lies beside the present one.
        while round % 2 == 1 && !dir.path().join(BESIDE).exists() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        check(&open(&dir).await, &pepper).await;
        assert!(!dir.path().join(BESIDE).exists());
    }
}

#[tokio::test]
async fn child_that_rotates() {
    let Some(dir) = child_dir() else { return };
    let store = SqliteStore::open(&dir, None).await.unwrap();
    loop {
        store.rotate_master_key(None).await.unwrap();
        std::io::stdout().write_all(b"!").unwrap();
        std::io::stdout().flush().unwrap();
    }
}
