//! The list of clients, and what came of their runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::DRIVERS;

/// The features that each client is asked for, in the order of the table.
pub(super) const FEATURES: [&str; 4] = ["generation", "edit", "error", "retry"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientList {
    clients: Vec<ZooClient>,
}

/// A client of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ZooClient {
    pub(super) name: String,
    /// The name in the table.
    pub(super) title: String,
    pub(super) ecosystem: PackageEcosystem,
    /// The folder of the installed packages; without it, the folder has the name of the client.
    pub(super) environment: Option<String>,
    /// The packages with their exact versions, as the installer of the ecosystem takes them.
    pub(super) packages: Vec<String>,
    /// The file in the folder of the drivers, or the folder of a Rust program.
    pub(super) driver: String,
    #[serde(default)]
    pub(super) arguments: Vec<String>,
    /// True if the gateway needs an account for `/v1/responses`.
    #[serde(default)]
    pub(super) responses: bool,
    /// True if the client runs only if it is named.
    #[serde(default)]
    pub(super) heavy: bool,
    /// The time limit of the driver.
    #[serde(default = "default_seconds")]
    pub(super) seconds: u64,
    #[serde(default)]
    pub(super) needs: ClientNeeds,
}

/// The installer of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PackageEcosystem {
    Python,
    Node,
    Rust,
    /// A program of the system.
    Program,
}

/// The part of the gateway that a client needs beyond the default settings.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClientNeeds {
    /// The dialects of its group.
    pub(super) dialects: Vec<String>,
    /// The names of settings that the gateway must know.
    pub(super) settings: Vec<String>,
    /// Lines at the beginning of the configuration.
    pub(super) top: String,
    /// Tables at the end of the configuration.
    pub(super) tables: String,
}

/// The verdict about one feature, as a driver prints it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct FeatureVerdict {
    pub(super) verdict: Verdict,
    /// The image, the shown error, or the reason.
    pub(super) detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Pass,
    /// The client showed an error.
    Error,
    /// The client does not retry by itself: it showed the error of the upstream, and nothing was paid.
    Shown,
    /// The client has no such feature.
    Absent,
    /// Something was paid twice, or not at all although the client got an image.
    Miscounted,
}

/// The verdicts of one run, by feature.
pub(super) type FeatureVerdicts = BTreeMap<String, FeatureVerdict>;

/// The result of a client.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct ClientOutcome {
    pub(super) not_installed: Option<String>,
    /// The run with the default settings.
    pub(super) strict: FeatureVerdicts,
    /// The run with the needs of the client; `None` if it has none, or the gateway cannot serve them.
    pub(super) declared: Option<FeatureVerdicts>,
}

fn default_seconds() -> u64 {
    120
}

/// Reads the list.
pub(super) fn read(root: &Path) -> Result<Vec<ZooClient>> {
    let path = root.join(DRIVERS).join("clients.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let list: ClientList = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(list.clients)
}

// === impl ZooClient ===

impl ZooClient {
    /// The folder of its packages below the target folder.
    pub(super) fn environment(&self) -> &str {
        self.environment.as_deref().unwrap_or(&self.name)
    }
}

// === impl ClientNeeds ===

impl ClientNeeds {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The first setting that the schema of the gateway does not have.
    pub(super) fn missing_settings(&self, schema: &str) -> Option<String> {
        let dialects = self.dialects.iter().map(String::as_str);
        let setting = (!self.dialects.is_empty()).then_some("dialects");
        let names = self.settings.iter().map(String::as_str).chain(setting).chain(dialects);
        names.map(|name| format!("\"{name}\"")).find(|name| !schema.contains(name.as_str()))
    }

    /// The needs as the table shows them.
    pub(super) fn describe(&self) -> String {
        let dialects = self.dialects.iter().map(|name| format!("`{name}`"));
        let settings = self.settings.iter().map(|name| format!("setting `{name}`"));
        dialects.chain(settings).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_client_has_a_name_of_its_own_and_a_driver() {
        let root = crate::tree::root();
        let clients = read(&root).unwrap();
        let names: BTreeSet<_> = clients.iter().map(|client| &client.name).collect();
        assert_eq!(names.len(), clients.len());
        for client in &clients {
            assert!(root.join(DRIVERS).join(&client.driver).exists(), "{}", client.driver);
        }
        let pinned = |package: &String| package.contains("==") || package.rfind('@').is_some_and(|at| at > 0);
        let ecosystems = [PackageEcosystem::Python, PackageEcosystem::Node];
        let installed = clients.iter().filter(|client| ecosystems.contains(&client.ecosystem));
        assert!(installed.flat_map(|client| &client.packages).all(pinned));
    }

    #[test]
    fn a_setting_that_the_schema_lacks_is_named() {
        let needs = ClientNeeds {
            dialects: vec!["sizes".into()],
            settings: vec!["cors_origins".into()],
            ..ClientNeeds::default()
        };
        assert_eq!(needs.missing_settings(r#"{"cors_origins":{},"dialects":{"enum":["sizes"]}}"#), None);
        assert_eq!(needs.missing_settings(r#"{"dialects":["sizes"]}"#).as_deref(), Some("\"cors_origins\""));
        assert_eq!(needs.missing_settings(r#"{"cors_origins":["sizes"]}"#).as_deref(), Some("\"dialects\""));
    }
}
