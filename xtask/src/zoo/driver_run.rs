//! One run of a driver against a gateway of its own, within a time limit.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::servers::{GatewayProcess, GatewaySetup, UpstreamProcess};
use super::zoo_client::{FEATURES, FeatureVerdict, FeatureVerdicts, PackageEcosystem, Verdict, ZooClient};
use super::{DRIVERS, installation, unique_word};

/// The port of the page of another origin, which `cors_origins` names.
const PAGE_PORT: &str = "18377";
/// The interval at which a running driver is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// The common part of all runs.
pub(super) struct DriverContext<'a> {
    pub(super) root: &'a Path,
    /// The folder with the installed packages.
    pub(super) target: &'a Path,
    /// The folder of this run of the zoo.
    pub(super) folder: &'a Path,
    /// The program of the gateway.
    pub(super) program: &'a Path,
    pub(super) upstream: &'a UpstreamProcess,
}

// === impl DriverContext ===

impl DriverContext<'_> {
    /// Starts a gateway, runs the driver, and returns its verdicts. A feature about which the driver says nothing gets
    /// the end of its output as an error.
    pub(super) fn run(
        &self,
        client: &ZooClient,
        environment: &Path,
        setup: &GatewaySetup<'_>,
    ) -> Result<FeatureVerdicts> {
        let folder = self.folder.join(&setup.name);
        let gateway = GatewayProcess::start(self.program, &folder, Some(&setup.config(self.upstream)))?;
        let home = folder.join("home");
        fs::create_dir_all(&home)?;
        let word = unique_word();
        let mut command = self.command(client, environment, &home)?;
        command.env("ZOO_BASE_URL", &gateway.base_url).env("ZOO_API_KEY", &gateway.api_key);
        command.env("ZOO_RETRY_WORD", format!("unpaid-once-{word}")).env("ZOO_FOLDER", &home);
        command.env("HOME", &home).stdin(Stdio::null());
        let printed = run_within(&mut command, Duration::from_secs(client.seconds), &folder)?;
        let mut verdicts = read_verdicts(&printed);
        for feature in FEATURES {
            let said_nothing = || FeatureVerdict { verdict: Verdict::Error, detail: last_words(&printed) };
            verdicts.entry(feature.to_owned()).or_insert_with(said_nothing);
        }
        if let Some(retry) = verdicts.get_mut("retry") {
            count(retry, &self.upstream.statuses(&word)?);
        }
        let origin = gateway.base_url.trim_end_matches("/v1");
        for (feature, found) in &mut verdicts {
            found.detail = found.detail.replace(origin, "http://gateway").replace(&word, "WORD");
            println!("{feature}: {:?}: {}", found.verdict, found.detail);
        }
        Ok(verdicts)
    }

    /// The command that starts the driver, with an environment that has no keys of other services.
    fn command(&self, client: &ZooClient, environment: &Path, home: &Path) -> Result<Command> {
        let drivers = self.root.join(DRIVERS);
        let mut command = match (client.ecosystem, extension(&client.driver)) {
            (_, "mjs") => {
                // Node resolves packages relative to the script.
                for name in ["kit.mjs", &client.driver] {
                    fs::copy(drivers.join(name), environment.join(name)).with_context(|| name.to_owned())?;
                }
                let mut command = Command::new(installation::node_folder(self.target).join("node"));
                command.arg(&client.driver).current_dir(environment);
                command
            }
            (PackageEcosystem::Python, _) => script(&environment.join("bin/python"), &drivers, client, home),
            (PackageEcosystem::Rust, _) => {
                let mut command = Command::new(environment.join("target/debug").join(&client.driver));
                command.current_dir(home);
                command
            }
            (_, "sh") => script(Path::new("sh"), &drivers, client, home),
            _ => script(Path::new("python3"), &drivers, client, home),
        };
        command.args(&client.arguments);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["OPENAI_", "AZURE_", "IMAGATE_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&*name);
            }
        }
        let folders = [environment.join("bin"), installation::node_folder(self.target)];
        command.env("PATH", installation::search_path(folders)?);
        command.env("ZOO_CLIENT", &client.name).env("ZOO_HOME", environment).env("ZOO_PROGRAM", self.program);
        command.env("ZOO_PICTURES", &drivers).env("ZOO_PAGE_PORT", PAGE_PORT).env("PYTHONDONTWRITEBYTECODE", "1");
        Ok(command)
    }
}

fn script(interpreter: &Path, drivers: &Path, client: &ZooClient, home: &Path) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(drivers.join(&client.driver)).current_dir(home);
    command
}

fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Runs the command until it ends or its time is over, and returns its output followed by its error output.
#[expect(clippy::disallowed_methods, reason = "a task waits for a program, and no request waits for it")]
fn run_within(command: &mut Command, limit: Duration, folder: &Path) -> Result<String> {
    let (output, errors): (PathBuf, PathBuf) = (folder.join("output.txt"), folder.join("errors.txt"));
    command.stdout(File::create(&output)?).stderr(File::create(&errors)?);
    let mut process = command.spawn().with_context(|| format!("{command:?}"))?;
    let start = Instant::now();
    while process.try_wait()?.is_none() {
        if start.elapsed() > limit {
            process.kill()?;
            process.wait()?;
            fs::write(&errors, format!("stopped after {} seconds", limit.as_secs()))?;
        }
        thread::sleep(PAUSE);
    }
    let text = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(format!("{}\n{}", text(&output)?, text(&errors)?))
}

/// The verdicts among the lines of a driver.
fn read_verdicts(printed: &str) -> FeatureVerdicts {
    let mut verdicts = BTreeMap::new();
    for line in printed.lines().filter(|line| line.starts_with('{')) {
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        let Some(feature) = value["feature"].as_str() else { continue };
        if let Ok(verdict) = serde_json::from_value(value.clone()) {
            verdicts.insert(feature.to_owned(), verdict);
        }
    }
    verdicts
}

fn last_words(printed: &str) -> String {
    let words: Vec<_> = printed.split_whitespace().collect();
    words[words.len().saturating_sub(40)..].join(" ")
}

/// Compares what the client got with what the upstream was paid: one image, or none.
fn count(retry: &mut FeatureVerdict, statuses: &[u64]) {
    let paid = statuses.iter().filter(|status| **status == 200).count();
    match retry.verdict {
        Verdict::Pass if paid == 1 => {}
        Verdict::Error if paid == 0 && !statuses.is_empty() => retry.verdict = Verdict::Shown,
        Verdict::Error if statuses.is_empty() => {}
        Verdict::Absent => return,
        _ => retry.verdict = Verdict::Miscounted,
    }
    retry.detail.push_str(&format!(" (attempts upstream: {statuses:?})"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(verdict: Verdict) -> FeatureVerdict {
        FeatureVerdict { verdict, detail: String::new() }
    }

    #[test]
    fn an_image_that_is_paid_twice_is_no_pass() {
        for (said, statuses, expected) in [
            (Verdict::Pass, &[503, 200][..], Verdict::Pass),
            (Verdict::Pass, &[503, 200, 200], Verdict::Miscounted),
            (Verdict::Pass, &[503], Verdict::Miscounted),
            (Verdict::Error, &[503], Verdict::Shown),
            (Verdict::Error, &[], Verdict::Error),
            (Verdict::Error, &[503, 200], Verdict::Miscounted),
        ] {
            let mut found = retry(said);
            count(&mut found, statuses);
            assert_eq!(found.verdict, expected, "{statuses:?}");
        }
    }

    #[test]
    fn verdicts_are_found_between_other_lines() {
        let printed =
            "noise\n{\"other\":1}\n{\"client\":\"a\",\"feature\":\"edit\",\"verdict\":\"pass\",\"detail\":\"x\"}\n";
        let found = read_verdicts(printed);
        assert_eq!(found["edit"], FeatureVerdict { verdict: Verdict::Pass, detail: "x".to_owned() });
        assert_eq!(found.len(), 1);
    }
}
