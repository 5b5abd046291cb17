//! Every missing required field is reported, and no missing optional field. The lists of fields are written
//! out here, to meet the demands 68 to 73 of docs/specification.md, and are not taken from the schema: a schema that
//! requires fewer or more fields fails these tests.

use std::collections::BTreeSet;

use imagate::manifest::{CheckOptions, Manifest, SourceFile, check};
use serde_json::Value;

use crate::corpus::{cases, documents, folder};

/// An object of a manifest and its fields.
struct ManifestPart {
    /// The name of the part in messages. The cases of the corpus are named `<name>-without-<field>`; those of the
    /// manifest itself `no-<field>`.
    name: &'static str,
    /// The JSON pointer to its schema.
    schema: &'static str,
    /// The JSON pointer to such an object in the case `good/full`.
    pointer: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const PARTS: [ManifestPart; 4] = [
    ManifestPart {
        name: "manifest",
        schema: "",
        pointer: "",
        required: &["schema_version", "generated_at", "repository", "skills", "apis"],
        optional: &[],
    },
    ManifestPart {
        name: "repository",
        schema: "/$defs/Repository",
        pointer: "/repository",
        required: &["name", "git_url", "raw_base_url", "branch"],
        optional: &[],
    },
    ManifestPart {
        name: "skill",
        schema: "/$defs/Skill",
        pointer: "/skills/0",
        required: &["name", "version", "title", "description", "path", "package", "sha256"],
        optional: &["size_bytes", "api_docs", "tags", "agents", "updated_at"],
    },
    ManifestPart {
        name: "api",
        schema: "/$defs/ApiReference",
        pointer: "/apis/0",
        required: &["id", "title", "product", "language", "path"],
        optional: &["tags", "source_urls"],
    },
];

/// The JSON pointers of the required fields that are missing in a manifest.
fn missing_fields(source: &SourceFile) -> Vec<String> {
    let report = check(source.clone(), &CheckOptions::default());
    let schema_findings = report.findings().iter().filter(|finding| finding.rule().id == "M004");
    let missing_fields: Vec<String> = schema_findings.map(|finding| finding.pointer().to_owned()).collect();
    assert_eq!(
        Manifest::read(source).is_ok(),
        missing_fields.is_empty(),
        "`check` and `Manifest::read` do not agree on {missing_fields:?}"
    );
    missing_fields
}

/// The manifest `good/full` without one field.
fn without(part: &ManifestPart, field: &str) -> SourceFile {
    let text = std::fs::read_to_string(folder().join("corpus/good/full.json")).expect("a case");
    let mut manifest: Value = serde_json::from_str(&text).expect("JSON");
    let object = manifest.pointer_mut(part.pointer).and_then(Value::as_object_mut).expect("an object");
    object.remove(field).unwrap_or_else(|| panic!("`{}` of `good/full` has no `{field}`", part.name));
    SourceFile::new("without", manifest.to_string())
}

#[test]
fn a_missing_required_field_is_reported() {
    let mut not_reported = Vec::new();
    for part in &PARTS {
        for field in part.required {
            if missing_fields(&without(part, field)) != [format!("{}/{field}", part.pointer)] {
                not_reported.push(format!("{}.{field}", part.name));
            }
        }
    }
    assert_eq!(
        not_reported,
        Vec::<String>::new(),
        "fields that the specification requires, and whose absence is not reported"
    );
}

#[test]
fn a_missing_optional_field_is_not_reported() {
    for part in &PARTS {
        for field in part.optional {
            assert_eq!(missing_fields(&without(part, field)), Vec::<String>::new(), "{}.{field}", part.name);
        }
    }
}

#[test]
fn every_required_field_has_a_case_of_the_corpus() {
    let cases: BTreeSet<String> = cases().into_iter().map(|case| case.name).collect();
    for part in &PARTS {
        for field in part.required {
            let field = field.replace('_', "-");
            let case =
                if part.pointer.is_empty() { format!("no-{field}") } else { format!("{}-without-{field}", part.name) };
            assert!(cases.contains(&format!("M004/{case}")), "{case}");
        }
    }
}

#[test]
fn the_schema_has_the_fields_of_the_specification() {
    let text = std::fs::read_to_string(documents().join("schemas/skills-registry.schema.json")).expect("the schema");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    for part in &PARTS {
        let part_schema = schema.pointer(part.schema).expect("a part of the schema");
        let required: BTreeSet<&str> =
            part_schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties: BTreeSet<&str> =
            part_schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        assert_eq!(required, part.required.iter().copied().collect(), "required of {}", part.name);
        let all = part.required.iter().chain(part.optional).copied().collect();
        assert_eq!(properties, all, "fields of {}", part.name);
    }
}
