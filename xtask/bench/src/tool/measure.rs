//! One measurement: a load, and what it costs the target.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::cases::{BenchCase, BenchCell};
use super::load::LoadReport;
use super::process::output;
use super::procfs;
use super::targets::Target;

/// The time in which slow readers read.
const SLOW_DURATION: Duration = Duration::from_secs(12);

/// The result of one cell in one round.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) target: String,
    pub(crate) cell: BenchCell,
    pub(crate) round: u32,
    pub(crate) load: LoadReport,
    /// The CPU time of the target and of its children.
    pub(crate) cpu_seconds: f64,
    /// The peak of their memory.
    pub(crate) peak_mb: f64,
}

impl Row {
    /// Puts the target under load. The load comes from a process of its own.
    pub(crate) async fn measure(target: &Target, cell: BenchCell, round: u32, duration: Duration) -> Result<Self> {
        let duration = if cell.case == BenchCase::Slow { SLOW_DURATION } else { duration };
        let (address, connections) = (target.address.to_string(), cell.connections.to_string());
        let seconds = duration.as_secs_f64().to_string();
        let mut arguments =
            vec!["load", "--address", &address, "--headers", &target.headers, "--case", cell.case.name()];
        arguments.extend(["--connections", &connections, "--seconds", &seconds]);
        procfs::reset_peak_memory(target.process.id())?;
        let before = procfs::thread_times(target.process.id())?;
        let tool = std::env::current_exe().context("the path of this program")?;
        let report = output(tool, &arguments, &std::env::temp_dir()).await?;
        let after = procfs::thread_times(target.process.id())?;
        Ok(Self {
            target: target.name.clone(),
            cell,
            round,
            load: serde_json::from_str(&report).context("the report of the load generator")?,
            cpu_seconds: procfs::seconds_between(&before, &after),
            peak_mb: procfs::memory_mb(target.process.id(), "VmHWM")?,
        })
    }

    /// Requests per second.
    pub(crate) fn throughput(&self) -> Option<f64> {
        (self.load.requests > 0).then(|| self.load.requests as f64 / self.load.seconds)
    }

    pub(crate) fn cpu_per_1000_requests(&self) -> Option<f64> {
        (self.load.requests > 0).then(|| self.cpu_seconds / self.load.requests as f64 * 1000.0)
    }

    pub(crate) fn cpu_per_gb(&self) -> Option<f64> {
        (self.load.bytes > 0).then(|| self.cpu_seconds / self.load.bytes as f64 * 1e9)
    }
}
