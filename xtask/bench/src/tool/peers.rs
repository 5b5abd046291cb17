//! Other programs that the same load can be put on: proxies, and gateways that can be installed from registries.
//!
//! Each checks the key of the client and sends the upstream its own, but for Portkey's open gateway, which has no keys:
//! it passes the client's key on. None of them writes a log of requests.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Context as _, Result};
use tokio::process::Command;

use super::process::{Process, free_address};
use super::targets::{CLIENT_KEY, Target, authorization, find_program};
use super::upstream::UPSTREAM_KEY;

/// A program beside imagate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerProgram {
    Nginx,
    Envoy,
    LiteLlm,
    Portkey,
}

impl PeerProgram {
    /// All peers, in the order of the tables.
    pub(crate) const ALL: [Self; 4] = [Self::Nginx, Self::Envoy, Self::LiteLlm, Self::Portkey];

    /// The name in options and tables, which is also that of the program in `PATH`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
            Self::LiteLlm => "litellm",
            Self::Portkey => "portkey",
        }
    }

    /// Starts the program; `None` if it is not installed.
    pub(crate) async fn start(self, folder: &Path, upstream: SocketAddr) -> Result<Option<Target>> {
        let Some(program) = find_program(self.name()) else { return Ok(None) };
        let (address, home) = (free_address()?, folder.join(self.name()));
        fs::create_dir(&home)?;
        let mut command = self.command(&program, &home, address, upstream)?;
        let process = Process::start(self.name(), folder, &mut command)?;
        Ok(Some(Target::listening(self.name(), address, self.headers(upstream), process).await?))
    }

    /// Writes the configuration, and returns the command.
    fn command(self, program: &Path, home: &Path, address: SocketAddr, upstream: SocketAddr) -> Result<Command> {
        let (port, workers) = (address.port().to_string(), available_parallelism()?.to_string());
        let write = |name: &str, text: String| -> Result<PathBuf> {
            let file = home.join(name);
            fs::write(&file, text).with_context(|| file.display().to_string())?;
            Ok(file)
        };
        let mut command = Command::new(program);
        match self {
            Self::Nginx => {
                let file = write("nginx.conf", nginx_configuration(home, address, upstream))?;
                command.arg("-p").arg(home).arg("-c").arg(file)
            }
            Self::Envoy => {
                let file = write("envoy.yaml", envoy_configuration(address, upstream))?;
                let options = ["--concurrency", &workers, "--log-level", "error", "--disable-hot-restart"];
                command.arg("-c").arg(file).args(options)
            }
            Self::LiteLlm => {
                let file = write("litellm.yaml", litellm_configuration(upstream))?;
                command.arg("--config").arg(file).args(["--host", "127.0.0.1", "--port", &port]);
                command.args(["--num_workers", &workers, "--telemetry", "False"]).envs([
                    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
                    ("LITELLM_LOG", "ERROR"),
                    ("LITELLM_MODE", "PRODUCTION"),
                    ("DISABLE_ADMIN_UI", "True"),
                    ("NO_DOCS", "True"),
                ])
            }
            Self::Portkey => command
                .args([&format!("--port={port}"), "--headless"])
                .envs([("NODE_ENV", "production"), ("TRUSTED_CUSTOM_HOSTS", "127.0.0.1")]),
        };
        Ok(command)
    }

    /// The header lines of each request.
    fn headers(self, upstream: SocketAddr) -> String {
        match self {
            Self::Nginx | Self::Envoy | Self::LiteLlm => authorization(CLIENT_KEY),
            Self::Portkey => format!(
                "{}x-portkey-provider: openai\r\nx-portkey-custom-host: http://{upstream}/v1\r\n",
                authorization(UPSTREAM_KEY)
            ),
        }
    }
}

/// nginx does less than a gateway: it compares the key with one text.
fn nginx_configuration(home: &Path, address: SocketAddr, upstream: SocketAddr) -> String {
    let home = home.display();
    let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {home}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nworker_processes auto;\npid {home}/nginx.pid;\nerror_log {home}/error.log warn;\n\
         events {{ worker_connections 4096; }}\nhttp {{\n    access_log off;\n{folders}    \
         client_max_body_size 128m;\n    keepalive_requests 1000000000;\n    \
         map $http_authorization $is_known {{ default 0; \"Bearer {CLIENT_KEY}\" 1; }}\n    \
         upstream bench {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}\n    \
         server {{\n        listen {address} reuseport;\n        location / {{\n            \
         if ($is_known = 0) {{ return 401 '{{}}'; }}\n            \
         proxy_pass http://bench;\n            proxy_http_version 1.1;\n            \
         proxy_set_header Connection \"\";\n            \
         proxy_set_header Authorization \"Bearer {UPSTREAM_KEY}\";\n            \
         proxy_buffering off;\n            proxy_buffer_size 256k;\n            \
         proxy_buffers 8 256k;\n            proxy_busy_buffers_size 512k;\n        }}\n    }}\n}}\n"
    )
}

/// JSON, which is YAML too.
fn envoy_configuration(address: SocketAddr, upstream: SocketAddr) -> String {
    let at = |address: SocketAddr| serde_json::json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}});
    let typed = |package: &str, mut fields: serde_json::Value| {
        fields["@type"] = format!("type.googleapis.com/envoy.extensions.filters.{package}").into();
        fields
    };
    let authorization = serde_json::json!({
        "header": {"key": "authorization", "value": format!("Bearer {UPSTREAM_KEY}")},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    });
    let route = serde_json::json!({
        "match": {"prefix": "/v1/"}, "route": {"cluster": "upstream", "timeout": "300s"},
        "request_headers_to_add": [authorization],
    });
    let keys = serde_json::json!({
        "credentials": [{"key": CLIENT_KEY, "client": "bench"}], "key_sources": [{"header": "Authorization"}],
    });
    let manager = serde_json::json!({
        "stat_prefix": "bench", "generate_request_id": false,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "keys", "typed_config": typed("http.api_key_auth.v3.ApiKeyAuth", keys)},
            {"name": "router", "typed_config": typed("http.router.v3.Router", serde_json::json!({}))},
        ],
    });
    let manager = typed("network.http_connection_manager.v3.HttpConnectionManager", manager);
    let endpoint = serde_json::json!({"endpoint": {"address": at(upstream)}});
    serde_json::json!({"static_resources": {
        "listeners": [{
            "address": at(address),
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        }],
        "clusters": [{
            "name": "upstream", "type": "STATIC", "connect_timeout": "5s",
            "load_assignment": {"cluster_name": "upstream", "endpoints": [{"lb_endpoints": [endpoint]}]},
        }],
    }})
    .to_string()
}

fn litellm_configuration(upstream: SocketAddr) -> String {
    let model = |name: &str| {
        let parameters = serde_json::json!({
            "model": format!("openai/{name}"), "api_base": format!("http://{upstream}/v1"), "api_key": UPSTREAM_KEY,
        });
        serde_json::json!({"model_name": name, "litellm_params": parameters})
    };
    serde_json::json!({
        "model_list": [model("gpt-image-2"), model("gpt-5.5")],
        "litellm_settings": {"request_timeout": 300, "num_retries": 0, "telemetry": false},
        "router_settings": {"num_retries": 0},
        "general_settings": {"master_key": CLIENT_KEY, "disable_spend_logs": true},
    })
    .to_string()
}
