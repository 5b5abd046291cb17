//! The data folder of a gateway with one key, made once in each test program and written for each gateway.
//!
//! To make it takes a process and some seventy waits for the disk; to write it takes four small files. So the gateways
//! of a test program have the same master key, and their first keys have the same id and secret.

use std::fs::{self, Permissions};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tempfile::TempDir;

use super::{CommandOutput, Program, config};

/// The words of the command that makes the key.
pub(super) const CREATE_KEY: [&str; 7] = ["key", "create", "--name", "it", "--user", "admin", "--json"];

/// The files of the folder, and the output of the command that made the key.
pub(super) struct DataTemplate {
    files: Vec<(PathBuf, Vec<u8>, Permissions)>,
    folder_permissions: Permissions,
    pub(super) key: CommandOutput,
}

// === impl DataTemplate ===

impl DataTemplate {
    /// The template of this test program.
    pub(super) fn get() -> &'static Self {
        static TEMPLATE: LazyLock<DataTemplate> = LazyLock::new(DataTemplate::create);
        &TEMPLATE
    }

    #[track_caller]
    fn create() -> Self {
        let home = TempDir::new().expect("a directory");
        let (data, settings) = (home.path().join("data"), home.path().join("imagate.toml"));
        fs::write(&settings, config::file(&data.display().to_string(), "", &[])).expect("a configuration");
        let key = Program::new(home.path()).args(CREATE_KEY).args(["--config"]).args([&settings]).run();
        key.ok_stdout();
        let files = fs::read_dir(&data).expect("the data folder").map(|entry| {
            let entry = entry.expect("an entry");
            let permissions = entry.metadata().expect("an entry").permissions();
            (entry.file_name().into(), fs::read(entry.path()).expect("a file, not a folder"), permissions)
        });
        let folder_permissions = data.metadata().expect("the data folder").permissions();
        Self { files: files.collect(), folder_permissions, key }
    }

    /// Writes the folder, which must not exist.
    #[track_caller]
    pub(super) fn write_to(&self, data: &Path) {
        fs::create_dir(data).expect("a new folder");
        for (name, bytes, permissions) in &self.files {
            let path = data.join(name);
            fs::write(&path, bytes).expect("a file");
            fs::set_permissions(path, permissions.clone()).expect("permissions");
        }
        fs::set_permissions(data, self.folder_permissions.clone()).expect("permissions");
    }
}
