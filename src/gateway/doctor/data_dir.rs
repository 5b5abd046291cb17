//! The data folder: whether this user may write there, others may read there, and there is free space.

use std::path::Path;

use super::CheckResult;
use crate::gateway::config::Config;
use crate::gateway::spool::FreeSpace;

const CHECK: &str = "disk";
const MEGABYTE: u64 = 1 << 20;

pub(super) fn check(config: &Config) -> Vec<CheckResult> {
    let folder = &config.data_dir;
    match std::fs::metadata(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("{} does not exist yet: the first start creates it", folder.display());
            let advice = "if a gateway has run here, give its --data-dir or --config, and run this command as its user";
            return vec![CheckResult::warning(CHECK, message, Some(advice))];
        }
        Err(error) => {
            let message = format!("{} cannot be read: {error}", folder.display());
            return vec![CheckResult::problem(CHECK, message, Some("run this command as the user of the gateway"))];
        }
        Ok(metadata) if !metadata.is_dir() => {
            let message = format!("{} is not a folder", folder.display());
            return vec![CheckResult::problem(CHECK, message, Some("set data_dir to a folder"))];
        }
        Ok(_) => {}
    }
    let mut results = check_permissions(folder);
    results.extend(check_free_space(config));
    if results.is_empty() {
        results.push(CheckResult::ok(CHECK, format!("{} can be written, and has enough free space", folder.display())));
    }
    results
}

fn check_free_space(config: &Config) -> Option<CheckResult> {
    let reserved = config.uploads.min_free;
    let free = FreeSpace::new(config.data_dir.clone(), reserved).available()?;
    let message = format!(
        "{} has {} MB of free space, and `min_free_megabytes` reserves {} MB for the database",
        config.data_dir.display(),
        free / MEGABYTE,
        reserved / MEGABYTE
    );
    if free < reserved / 2 {
        let advice = "free space, or move data_dir to a larger disk: the gateway reports that it is not ready";
        Some(CheckResult::problem(CHECK, message, Some(advice)))
    } else if free < reserved {
        Some(CheckResult::problem(CHECK, message, Some("free space: uploads and stored answers are refused")))
    } else if free < reserved.saturating_mul(2) {
        Some(CheckResult::warning(CHECK, message, Some("free space: answers are no longer stored for repeats")))
    } else {
        None
    }
}

#[cfg(unix)]
fn check_permissions(folder: &Path) -> Vec<CheckResult> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use rustix::fs::{Access, access};

    /// The files that hold secrets, or their hashes.
    const PRIVATE_FILES: [&str; 4] = ["master.key", "master.key.new", "imagate.db", "imagate.db-wal"];

    let mut results = Vec::new();
    if let Err(error) = access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        let message = format!("this user cannot write to {}: {error}", folder.display());
        let advice = "run this command as the user of the gateway, or give that user the folder";
        results.push(CheckResult::problem(CHECK, message, Some(advice)));
    }
    if std::fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0) {
        let (message, advice) = (
            format!("every user of this machine may enter {}", folder.display()),
            format!("chmod 700 {}", folder.display()),
        );
        results.push(CheckResult::warning(CHECK, message, Some(&advice)));
    }
    let files = PRIVATE_FILES.iter().filter_map(|name| Some((*name, std::fs::metadata(folder.join(name)).ok()?)));
    let files: Vec<_> = files.collect();
    for (name, metadata) in &files {
        let path = folder.join(name);
        if metadata.permissions().mode() & 0o077 != 0 {
            let message = format!("other users may read or write {}", path.display());
            results.push(CheckResult::problem(CHECK, message, Some(&format!("chmod 600 {}", path.display()))));
        }
        if access(&path, Access::READ_OK | Access::WRITE_OK).is_err() {
            let message = format!("this user cannot read and write {}", path.display());
            results.push(CheckResult::problem(CHECK, message, Some("run this command as the user of the gateway")));
        }
    }
    let mut owners: Vec<u32> = files.iter().map(|(_, metadata)| metadata.uid()).collect();
    owners.sort_unstable();
    owners.dedup();
    if owners.len() > 1 {
        let message = format!("the files in {} belong to different users", folder.display());
        let advice = "give all of them to the user of the gateway with chown, and run commands as that user";
        results.push(CheckResult::problem(CHECK, message, Some(advice)));
    }
    results
}

#[cfg(not(unix))]
fn check_permissions(_folder: &Path) -> Vec<CheckResult> {
    Vec::new()
}
