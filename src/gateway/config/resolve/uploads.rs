//! Resolves the limits on connections, and on the bytes that requests hold.

use super::ConfigResolver;
use crate::gateway::config::{ConnectionLimits, UploadLimits};

impl ConfigResolver<'_> {
    pub(super) fn connections(&mut self) -> ConnectionLimits {
        let raw = self.raw.connections.clone().unwrap_or_default();
        if let (Some(max), Some(per_address)) = (raw.max, raw.max_per_address)
            && per_address > max
        {
            self.report("connections.max_per_address", "must not be above `max`");
        }
        let mut count = |name, value: Option<u32>| {
            self.value("connections", name, value).and_then(|count| usize::try_from(count).ok())
        };
        ConnectionLimits { max: count("max", raw.max), max_per_address: count("max_per_address", raw.max_per_address) }
    }

    pub(super) fn uploads(&mut self) -> UploadLimits {
        let raw = self.raw.uploads.clone().unwrap_or_default();
        let defaults = UploadLimits::DEFAULT;
        let bytes = |count: Option<u32>, default| count.map_or(default, |count| u64::from(count) << 20);
        let memory = bytes(raw.memory_megabytes, defaults.memory);
        let disk = bytes(raw.disk_megabytes, defaults.disk);
        let memory_key = bytes(raw.memory_megabytes_per_key, defaults.memory_per_key.min(memory));
        let disk_key = bytes(raw.disk_megabytes_per_key, defaults.disk_per_key.min(disk));
        // A user may have as much as one of its keys, and the default leaves a half to the others.
        let memory_user = defaults.memory_per_user.min(memory / 2).max(memory_key).min(memory);
        let disk_user = defaults.disk_per_user.min(disk / 2).max(disk_key).min(disk);
        let mut read = |name, count, default, (all, all_name): (u64, &str)| {
            let bytes = self.megabytes("uploads", name, count, default);
            if bytes > all {
                self.report(&format!("uploads.{name}"), &format!("must not be above `{all_name}`"));
            }
            bytes
        };
        let (all, all_memory, all_disk) = ((u64::MAX, ""), (memory, "memory_megabytes"), (disk, "disk_megabytes"));
        UploadLimits {
            memory: read("memory_megabytes", raw.memory_megabytes, memory, all),
            memory_per_user: read("memory_megabytes_per_user", raw.memory_megabytes_per_user, memory_user, all_memory),
            memory_per_key: read("memory_megabytes_per_key", raw.memory_megabytes_per_key, memory_key, all_memory),
            disk: read("disk_megabytes", raw.disk_megabytes, disk, all),
            disk_per_user: read("disk_megabytes_per_user", raw.disk_megabytes_per_user, disk_user, all_disk),
            disk_per_key: read("disk_megabytes_per_key", raw.disk_megabytes_per_key, disk_key, all_disk),
            min_free: read("min_free_megabytes", raw.min_free_megabytes, defaults.min_free, all),
            response_body: read("response_body_megabytes", raw.response_body_megabytes, defaults.response_body, all),
        }
    }
}
