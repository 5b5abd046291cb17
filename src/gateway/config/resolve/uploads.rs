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
        let limits = UploadLimits {
            memory,
            memory_per_key: bytes(raw.memory_megabytes_per_key, defaults.memory_per_key.min(memory)),
            disk,
            disk_per_key: bytes(raw.disk_megabytes_per_key, defaults.disk_per_key.min(disk)),
            min_free: bytes(raw.min_free_megabytes, defaults.min_free),
        };
        if limits.memory_per_key > memory {
            self.report("uploads.memory_megabytes_per_key", "must not be above `memory_megabytes`");
        }
        if limits.disk_per_key > disk {
            self.report("uploads.disk_megabytes_per_key", "must not be above `disk_megabytes`");
        }
        limits
    }
}
