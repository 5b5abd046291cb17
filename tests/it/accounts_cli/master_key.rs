//! `master-key rotate`: the new key opens what the old key sealed.

use super::*;
use crate::kit::Call;

#[test]
fn a_rotated_master_key_in_the_data_folder_opens_sealed_secrets() {
    let mut gateway = Gateway::simulated();
    let folder = gateway.home().join("data");
    let stored_key = || std::fs::read(folder.join("master.key")).expect("the key");
    let words = ["account", "add", "--name", "kept", "--base-url", ADDRESS, "--api-key-env", "PATH"];
    gateway.run_command(&words).ok_stdout();
    let before = stored_key();
    gateway.run_command(&["master-key", "rotate"]).ok_stdout();
    assert_ne!(before, stored_key());
    let next = "0123456789abcdef".repeat(4);
    let rotate = gateway.program().env("NEXT", &next).args(["master-key", "rotate", "--new-key-env", "NEXT", "--json"]);
    let rotated = rotate.args(["--config"]).args([gateway.config()]).run();
    assert_eq!(rotated.json()["kept_in"], "data_dir");
    assert_eq!(stored_key(), [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(4));
    // The restarted server still accepts the keys of callers, also a key that was made after the rotation.
    let secret = gateway.make_key("later")["secret"].as_str().expect("a secret").to_owned();
    gateway.kill();
    gateway.start();
    for secret in [gateway.secret(), &secret] {
        Call::get("/v1/models").key(secret).send(gateway.address()).ok_json();
    }
    let listed = gateway.run_command(&["account", "list", "--json"]).json();
    assert!(listed.as_array().is_some_and(|all| all.iter().all(|account| account["state"] == "enabled")), "{listed}");
}

#[test]
fn a_lost_database_is_reported_if_the_settings_give_the_master_key() {
    let home = CliFixture::with_settings("master_key = { env = \"MASTER\" }");
    let master = "11".repeat(32);
    let run = |words: &[&str]| home.program(words).env("MASTER", &master).run();
    run(&["key", "create", "--name", "first", "--user", "admin"]).ok_stdout();
    let data = home.0.path().join("data");
    for name in ["imagate.db", "imagate.db-wal", "imagate.db-shm"] {
        drop(std::fs::remove_file(data.join(name)));
    }
    for words in [&["serve"][..], &["key", "list"]] {
        let output = run(words);
        assert_eq!(output.code, FAILED, "{output:#?}");
        for part in ["imagate.db is missing or empty", "imagate.db.marker", "restore the database from a backup"] {
            assert!(output.stderr.contains(part), "{part}: {output:#?}");
        }
        assert!(!data.join("imagate.db").exists());
    }
    std::fs::remove_file(data.join("imagate.db.marker")).expect("the marker");
    run(&["key", "list"]).ok_stdout();
}

#[test]
fn a_master_key_of_the_settings_is_rotated_to_a_given_key() {
    let home = CliFixture::with_settings("master_key = { env = \"MASTER\" }");
    let keys = ["11".repeat(32), "22".repeat(32)];
    let run = |master: &str, words: &[&str]| home.program(words).env("MASTER", master).env("NEXT", &keys[1]).run();
    let base = ["account", "add", "--name", "kept", "--base-url", ADDRESS, "--api-key-env", "IT_SECRET"];
    run(&keys[0], &base).ok_stdout();
    let without_key = run(&keys[0], &["master-key", "rotate"]);
    assert_eq!(without_key.code, FAILED, "{without_key:#?}");
    let rotated = run(&keys[0], &["master-key", "rotate", "--new-key-env", "NEXT"]);
    rotated.ok_stdout();
    assert!(rotated.stderr.contains("replace it there"), "{rotated:#?}");
    let old = run(&keys[0], &["account", "list"]);
    assert_eq!(old.code, FAILED, "{old:#?}");
    let listed = run(&keys[1], &["account", "list", "--json"]).json();
    let all = listed.as_array().expect("a list");
    assert!(all.len() == 2 && all.iter().all(|account| account["state"] == "enabled"), "{listed}");
    let printed = format!("{without_key:?}{rotated:?}{old:?}{listed}");
    assert!(keys.iter().all(|key| !printed.contains(key.as_str())), "a key was shown");
    let invalid =
        home.program(&["master-key", "rotate", "--new-key-env", "BAD"]).env("MASTER", &keys[1]).env("BAD", "short");
    assert_eq!(invalid.run().code, USAGE);
}
