//! Resolves the limits on connections, and on the bytes that requests hold.

use super::ConfigResolver;
use crate::gateway::config::raw::RawUploads;
use crate::gateway::config::{ConnectionLimits, UploadLimits};

impl ConfigResolver<'_> {
    pub(super) fn connections(&mut self) -> ConnectionLimits {
        let Some(raw) = &self.layers.file.raw.connections else { return ConnectionLimits::default() };
        if let (Some(max), Some(per_address)) = (raw.max, raw.max_per_address)
            && per_address > max
        {
            self.report("connections.max_per_address", "must not be above `max`");
        }
        let count = |value: Option<u32>| value.and_then(|count| usize::try_from(count).ok());
        ConnectionLimits { max: count(raw.max), max_per_address: count(raw.max_per_address) }
    }

    pub(super) fn uploads(&mut self) -> UploadLimits {
        let empty = RawUploads::default();
        let raw = self.layers.file.raw.uploads.as_ref().unwrap_or(&empty);
        let bytes = |megabytes: Option<u32>, default| megabytes.map_or(default, |count| u64::from(count) << 20);
        let defaults = UploadLimits::DEFAULT;
        let memory = bytes(raw.memory_megabytes, defaults.memory);
        let disk = bytes(raw.disk_megabytes, defaults.disk);
        let memory_per_key = bytes(raw.memory_megabytes_per_key, defaults.memory_per_key.min(memory));
        let disk_per_key = bytes(raw.disk_megabytes_per_key, defaults.disk_per_key.min(disk));
        // A user may have as much as one of its keys, and the default leaves a half to the others.
        let per_user = |value, default: u64, all: u64, key: u64| bytes(value, default.min(all / 2).max(key).min(all));
        let limits = UploadLimits {
            memory,
            memory_per_user: per_user(raw.memory_megabytes_per_user, defaults.memory_per_user, memory, memory_per_key),
            memory_per_key,
            disk,
            disk_per_user: per_user(raw.disk_megabytes_per_user, defaults.disk_per_user, disk, disk_per_key),
            disk_per_key,
            min_free: bytes(raw.min_free_megabytes, defaults.min_free),
            response_body: bytes(raw.response_body_megabytes, defaults.response_body),
        };
        for (setting, part, all, name) in [
            ("uploads.memory_megabytes_per_key", limits.memory_per_key, memory, "memory_megabytes"),
            ("uploads.memory_megabytes_per_user", limits.memory_per_user, memory, "memory_megabytes"),
            ("uploads.disk_megabytes_per_key", limits.disk_per_key, disk, "disk_megabytes"),
            ("uploads.disk_megabytes_per_user", limits.disk_per_user, disk, "disk_megabytes"),
        ] {
            if part > all {
                self.report(setting, &format!("must not be above `{name}`"));
            }
        }
        limits
    }
}
