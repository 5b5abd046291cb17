//! Checks one package: its file, its archive, and its agreement with its entry and its folder.

use super::{CheckScope, CheckWorker, FolderFileSizes, VerifiedPackage};
use crate::manifest::files::FileKind;
use crate::manifest::located::LocatedNode;
use crate::manifest::package::archive::{ArchiveFault, ArchiveFaultKind, ArchiveFormat};
use crate::manifest::package::{PackageContents, PackageFile, Sha256Sum, UnwantedFileKind, skill, unwanted};
use crate::manifest::rules::{
    M071, M072, M073, M075, M080, M081, M082, M083, M084, M085, M086, M090, M091, M092, M094, M097, Rule,
};

/// The maximum number of differences that are listed (our choice); the remaining ones are only counted.
const MAX_LISTED: usize = 5;

impl CheckWorker<'_, '_> {
    /// Judges the package of a skill: its file, its archive, its `SKILL.md` and, if the folder is given, its agreement
    /// with that. Returns the package if nothing forbids to install it.
    pub(super) fn check_package(
        &mut self,
        skill: &LocatedNode<'_>,
        folder_files: Option<&FolderFileSizes>,
    ) -> Option<VerifiedPackage> {
        let errors_before = self.findings.count_errors();
        let Some((location, bytes, contents)) = self.read_package(skill) else {
            // The skill itself can be checked without its package.
            self.check_skill_files(skill, folder_files, None);
            return None;
        };
        self.check_unwanted(&location, &contents);
        let Some(root) = contents.root() else {
            let message = match contents.skills.len() {
                0 => "the package has no `SKILL.md` at its root or in one folder",
                _ => "the package has more than one `SKILL.md`, or files outside of the folder of its skill",
            };
            self.findings.report_at(&M086, &location, message);
            self.check_skill_files(skill, folder_files, None);
            return None;
        };
        if let Some((name, _)) = skill.text_of("name")
            && let Some(inner_folder) = root.strip_suffix('/')
            && !skill::is_same_name(inner_folder, name)
        {
            self.findings.report_at(
                &M086,
                &location,
                format!("the folder in the package is `{inner_folder}`, but the skill is `{name}`"),
            );
        }
        self.check_skill_files(skill, folder_files, Some((&contents, root)));
        if let Some(folder_files) = folder_files {
            self.compare_with_folder(skill, &location, (&contents, root), folder_files);
        }
        let root = root.to_owned();
        (self.findings.count_errors() == errors_before).then_some(VerifiedPackage { bytes, contents, root })
    }

    /// Reads the package, reports a wrong size or checksum, and returns its contents if they are safe.
    fn read_package<'p>(&mut self, skill: &LocatedNode<'p>) -> Option<(LocatedNode<'p>, Vec<u8>, PackageContents)> {
        let location = skill.get("package")?;
        let (path, kind, size) = self.find_path(&location, &M071)?;
        if kind != FileKind::File {
            self.findings.report_at(&M071, &location, format!("`{path}` is not a regular file"));
            return None;
        }
        if self.scope == CheckScope::Everything && self.tree.files().is_tracked(path) == Some(false) {
            self.findings
                .report_at(&M075, &location, format!("`{path}` is not committed"))
                .with_help(format!("git add {path}"));
        }
        if size > self.limits.archive_bytes {
            let message = format!("`{path}` has {size} bytes; the limit is {}", self.limits.archive_bytes);
            self.findings.report_at(&M081, &location, message);
            return None;
        }
        let bytes = match self.tree.files().read(path, self.limits.archive_bytes) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                self.findings.report_at(&M071, &location, format!("`{path}` disappeared while it was read"));
                return None;
            }
            Err(error) => {
                self.findings.report_at(&M071, &location, error.to_string());
                return None;
            }
        };
        if bytes.starts_with(b"version https://git-lfs.") {
            self.findings.report_at(&M075, &location, format!("`{path}` is a pointer of Git LFS, not the package"));
        }
        self.check_sums(skill, path, &bytes);
        match (ArchiveFormat::named(path), ArchiveFormat::of(&bytes)) {
            (Some(named), Some(format)) if named != format => {
                self.findings.report_at(
                    &M080,
                    &location,
                    format!("`{path}` does not have the format that its extension states"),
                );
                return None;
            }
            _ => {}
        }
        match PackageContents::read(&bytes, self.limits) {
            Ok(contents) => Some((location, bytes, contents)),
            Err(faults) => {
                for fault in &faults {
                    self.report_fault(&location, path, fault);
                }
                None
            }
        }
    }

    fn check_sums(&mut self, skill: &LocatedNode<'_>, path: &str, bytes: &[u8]) {
        if let Some(location) = skill.get("size_bytes")
            && let Some(stated) = location.node().to_json().as_f64()
        {
            #[expect(clippy::cast_precision_loss, reason = "a package is far below 2^52 bytes")]
            let size = bytes.len() as f64;
            if (stated - size).abs() >= 1.0 {
                let message = format!("`{path}` has {} bytes, but {stated} are stated", bytes.len());
                self.findings
                    .report_at(&M072, &location, message)
                    .with_help(format!("use the package of this entry, or write {}", bytes.len()));
            }
        }
        if let Some((stated, location)) = skill.text_of("sha256") {
            let sum = Sha256Sum::of(bytes).to_string();
            // Capital letters are allowed here: rule M040 reports them.
            if !stated.eq_ignore_ascii_case(&sum) {
                let message = format!("`{path}` has the checksum {sum}");
                self.findings
                    .report_at(&M073, &location, message)
                    .with_help("publish changed content under a new version");
            }
        }
    }

    fn report_fault(&mut self, location: &LocatedNode<'_>, path: &str, fault: &ArchiveFault) {
        let rule: &'static Rule = match fault.kind {
            ArchiveFaultKind::Unreadable => &M080,
            ArchiveFaultKind::Limit => &M081,
            ArchiveFaultKind::Name => &M082,
            ArchiveFaultKind::Collision => &M083,
            ArchiveFaultKind::Kind => &M084,
            ArchiveFaultKind::Ambiguous => &M085,
            ArchiveFaultKind::AutoLoaded => &M097,
        };
        let message = match &fault.entry {
            Some(entry) => format!("`{}` in `{path}` {}", entry.escape_debug(), fault.message),
            None => format!("`{path}` {}", fault.message),
        };
        self.findings.report_at(rule, location, message);
    }

    fn check_unwanted(&mut self, location: &LocatedNode<'_>, contents: &PackageContents) {
        for (path, content) in &contents.files {
            match unwanted(path) {
                Some(UnwantedFileKind::Secret) => {
                    self.findings.report_at(
                        &M091,
                        location,
                        format!("`{path}` is in the package, and may contain a secret"),
                    );
                }
                Some(UnwantedFileKind::Junk) if self.scope.includes(&M092) => {
                    self.findings.report_at(
                        &M092,
                        location,
                        format!("`{path}` is in the package, but belongs to no skill"),
                    );
                }
                None if content.executable && self.scope.includes(&M094) => {
                    self.findings.report_at(&M094, location, format!("`{path}` in the package is executable"));
                }
                // The archive reader has refused a package with files that other programs read on their own.
                Some(UnwantedFileKind::Junk | UnwantedFileKind::AutoLoaded) | None => {}
            }
        }
    }

    /// Compares the package with the folder, file by file.
    fn compare_with_folder(
        &mut self,
        skill: &LocatedNode<'_>,
        location: &LocatedNode<'_>,
        package: (&PackageContents, &str),
        folder_files: &FolderFileSizes,
    ) {
        let Some((path, _)) = skill.text_of("path") else { return };
        let (contents, root) = package;
        let packed_file = |file: &str| contents.files.get(&format!("{root}{file}"));
        let mut differences = Vec::new();
        for (file, size) in folder_files {
            match packed_file(file) {
                None => differences.push(format!("`{file}` is not in the package")),
                Some(content) if !self.is_same_file(&format!("{path}/{file}"), *size, content) => {
                    differences.push(format!("`{file}` differs from the file in the package"));
                }
                Some(_) => {}
            }
        }
        let packed_paths =
            contents.files.keys().filter_map(|file| file.strip_prefix(root)).filter(|file| unwanted(file).is_none());
        differences.extend(
            packed_paths
                .filter(|file| !folder_files.contains_key(*file))
                .map(|file| format!("`{file}` is only in the package")),
        );
        for difference in differences.iter().take(MAX_LISTED) {
            let finding = self.findings.report_at(&M090, location, format!("{difference}; the folder is `{path}`"));
            finding.with_help("raise `metadata.version` and run `imagate skills build`");
        }
        if let Some(more) = differences.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
            self.findings.report_at(
                &M090,
                location,
                format!("{more} more files differ between the package and `{path}`"),
            );
        }
    }

    fn is_same_file(&self, path: &str, size: u64, content: &PackageFile) -> bool {
        let has_same_sum = || {
            let read = self.tree.files().read(path, self.limits.file_bytes);
            matches!(read, Ok(Some(bytes)) if Sha256Sum::of(&bytes) == content.sum)
        };
        size == content.size && has_same_sum()
    }
}
