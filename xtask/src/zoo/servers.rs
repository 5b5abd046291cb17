//! The servers of a run: a gateway with the simulator, the upstream in front of it, and the gateway that the client
//! calls.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::DRIVERS;
use super::zoo_client::{ClientNeeds, ZooClient};
use crate::ci;

/// The variable with the key that the gateway sends to the upstream, which does not check it.
const UPSTREAM_KEY: &str = "ZOO_UPSTREAM_KEY";
/// The time limit of one call of the upstream's ledger.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A process that prints its address and ends with this value.
struct ServerProcess {
    process: Child,
    /// Held, so that the process never writes into a closed pipe.
    stdout: BufReader<ChildStdout>,
}

/// A running gateway.
pub(crate) struct GatewayProcess {
    _process: ServerProcess,
    pub(crate) base_url: String,
    pub(crate) api_key: String,
}

/// The upstream, which fails where a prompt says so, and counts the images.
pub(crate) struct UpstreamProcess {
    _process: ServerProcess,
    base_url: String,
}

/// The settings of the gateway that a client calls.
pub(super) struct GatewaySetup<'a> {
    /// The name of the folder of the run.
    pub(super) name: String,
    responses: bool,
    needs: Option<&'a ClientNeeds>,
}

// === impl ServerProcess ===

impl ServerProcess {
    fn start(command: &mut Command, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        command.env(UPSTREAM_KEY, "sk-zoo").env_remove("IMAGATE_CONFIG").current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(folder.join("log.txt"))?);
        let mut process = command.spawn().with_context(|| format!("{command:?}"))?;
        let stdout = process.stdout.take().context("the program has no standard output")?;
        Ok(Self { process, stdout: BufReader::new(stdout) })
    }

    /// The next line that begins with this text after spaces. `None` if the output ends before.
    fn line_with(&mut self, beginning: &str) -> Result<Option<String>> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line)? > 0 {
            if let Some(rest) = line.trim().strip_prefix(beginning) {
                return Ok(Some(rest.to_owned()));
            }
            line.clear();
        }
        Ok(None)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // If it has ended on its own, there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// === impl GatewayProcess ===

impl GatewayProcess {
    /// Starts a gateway with this configuration; without one, it has the simulator.
    pub(crate) fn start(program: &Path, folder: &Path, config: Option<&str>) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join("imagate.toml");
        fs::write(&path, config.unwrap_or_default())?;
        let place =
            ["--config".into(), path.into_os_string(), "--data-dir".into(), folder.join("data").into_os_string()];
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(&place);
        let mut process = ServerProcess::start(&mut command, folder)?;
        let origin = process.line_with("listening on ")?;
        let origin = origin.with_context(|| format!("no gateway; its log is in {}", folder.display()))?;
        let mut create = Command::new(program);
        create.args(["key", "create", "--name", "zoo", "--json"]).args(&place).env(UPSTREAM_KEY, "sk-zoo");
        let key: Value = serde_json::from_str(&ci::stdout_of(&mut create)?)?;
        let api_key = key["secret"].as_str().context("the new key has no secret")?.to_owned();
        Ok(Self { _process: process, base_url: format!("{origin}/v1"), api_key })
    }
}

// === impl UpstreamProcess ===

impl UpstreamProcess {
    pub(crate) fn start(root: &Path, simulator: &GatewayProcess) -> Result<Self> {
        let drivers = root.join(DRIVERS);
        let mut command = Command::new("python3");
        command.arg(drivers.join("upstream.py")).args([&simulator.base_url, &simulator.api_key]);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", &drivers);
        let folder = std::env::temp_dir().join(format!("imagate-zoo-{}", std::process::id()));
        let mut process = ServerProcess::start(&mut command, &folder)?;
        let rest = process.line_with("http://")?.context("the upstream does not start")?;
        Ok(Self { _process: process, base_url: format!("http://{rest}") })
    }

    /// The settings of an account at this upstream.
    pub(crate) fn account(&self, name: &str, more: &str) -> String {
        format!(
            "[[accounts]]\nname = \"{name}\"\nkind = \"api_key\"\nbase_url = \"{}\"\n\
             api_key = {{ env = \"{UPSTREAM_KEY}\" }}\n{more}",
            self.base_url
        )
    }

    /// The statuses of the requests with this word, one for each attempt that could make an image.
    pub(crate) fn statuses(&self, word: &str) -> Result<Vec<u64>> {
        let address = self.base_url.trim_start_matches("http://").trim_end_matches("/v1");
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(CALL_TIMEOUT))?;
        write!(stream, "GET /ledger HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("the ledger has no body")?;
        let ledger: Value = serde_json::from_str(body)?;
        Ok(ledger[word].as_array().into_iter().flatten().filter_map(Value::as_u64).collect())
    }
}

/// The schema of the settings that the program knows.
pub(super) fn settings_schema(program: &Path) -> Result<String> {
    let schema = ci::stdout_of(Command::new(program).args(["config", "schema"]))?;
    ensure!(!schema.is_empty(), "the gateway prints no schema of its settings");
    Ok(schema)
}

// === impl Setup ===

impl<'a> GatewaySetup<'a> {
    /// The default settings.
    pub(super) fn strict(client: &ZooClient) -> Self {
        Self { name: format!("{}-strict", client.name), responses: client.responses, needs: None }
    }

    /// The settings with what the client needs.
    pub(super) fn declared(client: &'a ZooClient) -> Self {
        let name = format!("{}-declared", client.name);
        Self { name, responses: client.responses, needs: Some(&client.needs) }
    }

    pub(super) fn config(&self, upstream: &UpstreamProcess) -> String {
        let mut config = self.needs.map(|needs| format!("{}\n", needs.top)).unwrap_or_default();
        config.push_str(&upstream.account("images", ""));
        if self.responses {
            config.push_str(&upstream.account("agents", "protocol = \"responses\"\ntier = \"free\"\n"));
        }
        if let Some(needs) = self.needs {
            if !needs.dialects.is_empty() {
                config.push_str(&format!("[[groups]]\nname = \"default\"\ndialects = {:?}\n", needs.dialects));
            }
            config.push_str(&needs.tables);
        }
        config
    }
}
