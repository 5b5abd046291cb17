//! CPU time and memory of another process with all its children, as /proc shows them.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use anyhow::{Context as _, Result};

/// The CPU nanoseconds of each living thread, by process and thread.
pub(crate) type ThreadTimes = BTreeMap<(u32, u32), u64>;

/// The process and all its descendants.
pub(crate) fn process_tree(root: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // The process may have ended since the folder was read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        if let Some(parent) = parse_parent(&stat) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut tree = vec![root];
    let mut index = 0;
    while let Some(process) = tree.get(index) {
        tree.extend(children.remove(process).unwrap_or_default());
        index += 1;
    }
    Ok(tree)
}

/// Reads the CPU times of a tree of processes.
pub(crate) fn thread_times(root: u32) -> Result<ThreadTimes> {
    let mut times = ThreadTimes::new();
    for process in process_tree(root)? {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in threads {
            let Some(thread) = thread?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Ok(text) = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")) else { continue };
            times.insert((process, thread), parse_schedstat(&text).context("/proc/PID/task/TID/schedstat")?);
        }
    }
    Ok(times)
}

/// The CPU seconds between two readings. A thread that has ended in between was idle before, so that it is left out.
pub(crate) fn seconds_between(before: &ThreadTimes, after: &ThreadTimes) -> f64 {
    let spent = after.iter().map(|(thread, time)| time.saturating_sub(before.get(thread).copied().unwrap_or(0)));
    spent.sum::<u64>() as f64 / 1e9
}

/// The sum of a field of /proc/PID/status over a tree of processes, in megabytes of a million bytes.
pub(crate) fn memory_mb(root: u32, field: &str) -> Result<f64> {
    let mut kibibytes = 0;
    for process in process_tree(root)? {
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/status")) else { continue };
        kibibytes += parse_status(&text, field).unwrap_or(0);
    }
    Ok(kibibytes as f64 * 1024.0 / 1e6)
}

/// Sets the peak of the memory (`VmHWM`) back to what is in use. Needs the same user or root.
pub(crate) fn reset_peak_memory(root: u32) -> Result<()> {
    for process in process_tree(root)? {
        fs::write(format!("/proc/{process}/clear_refs"), "5").context("/proc/PID/clear_refs")?;
    }
    Ok(())
}

/// The parent in /proc/PID/stat. The name before it is in parentheses, and can contain blanks and parentheses.
fn parse_parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The time on a CPU in /proc/PID/task/TID/schedstat, in nanoseconds.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// A field of /proc/PID/status, in KiB.
fn parse_status(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_follows_a_name_with_any_characters() {
        assert_eq!(parse_parent("12 (imagate) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parse_parent("12 (a) R 3 (b) x) S 7 12 12"), Some(7));
        assert_eq!(parse_parent("12 (imagate S"), None);
        assert_eq!(parse_parent(""), None);
    }

    #[test]
    fn the_first_number_of_schedstat_is_the_time() {
        assert_eq!(parse_schedstat("123456 789 10\n"), Some(123_456));
        assert_eq!(parse_schedstat("\n"), None);
    }

    #[test]
    fn a_field_of_status_is_found_by_its_whole_name() {
        let text = "Name:\tx\nVmHWM:\t  20480 kB\nVmRSS:\t  1024 kB\nThreads:\t5\n";
        assert_eq!(parse_status(text, "VmHWM"), Some(20_480));
        assert_eq!(parse_status(text, "VmRSS"), Some(1024));
        for missing in ["Vm", "VmH", "VmPeak", "Threads", "Name"] {
            assert_eq!(parse_status(text, missing), None, "{missing}");
        }
    }

    #[test]
    fn new_threads_count_in_full_and_ended_ones_not() {
        let before = ThreadTimes::from([((1, 1), 500_000_000), ((1, 2), 9_000_000_000)]);
        let after = ThreadTimes::from([((1, 1), 750_000_000), ((1, 3), 250_000_000)]);
        assert!((seconds_between(&before, &after) - 0.5).abs() < 1e-9);
        assert!(seconds_between(&after, &after).abs() < 1e-9);
    }

    #[test]
    fn the_own_process_has_threads_and_memory() {
        let own = std::process::id();
        assert!(process_tree(own).unwrap().contains(&own));
        assert!(!thread_times(own).unwrap().is_empty());
        assert!(memory_mb(own, "VmRSS").unwrap() > 0.1);
    }
}
