//! Each field that the specification requires is reported if it is missing, and no other field is. The fields are written
//! down here from the specification, and not taken from the schema: a schema that requires less, or more, fails these tests.

use std::collections::BTreeSet;

use imagate::manifest::{CheckOptions, Manifest, SourceFile, check};
use serde_json::Value;

use crate::corpus::{cases, documents, folder};

/// A part of a manifest: how cases call it, where its schema is and where one stands in `good/full`, and its fields.
struct ManifestPart {
    name: &'static str,
    schema: &'static str,
    place: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const PARTS: [ManifestPart; 4] = [
    ManifestPart {
        name: "manifest",
        schema: "",
        place: "",
        required: &["schema_version", "generated_at", "repository", "skills", "apis"],
        optional: &[],
    },
    ManifestPart {
        name: "repository",
        schema: "/$defs/Repository",
        place: "/repository",
        required: &["name", "git_url", "raw_base_url", "branch"],
        optional: &[],
    },
    ManifestPart {
        name: "skill",
        schema: "/$defs/Skill",
        place: "/skills/0",
        required: &["name", "version", "title", "description", "path", "package", "sha256"],
        optional: &["size_bytes", "api_docs", "tags", "agents", "updated_at"],
    },
    ManifestPart {
        name: "api",
        schema: "/$defs/ApiReference",
        place: "/apis/0",
        required: &["id", "title", "product", "language", "path"],
        optional: &["tags", "source_urls"],
    },
];

/// The places of the fields that a manifest lacks.
fn missed(source: &SourceFile) -> Vec<String> {
    let report = check(source.clone(), &CheckOptions::default());
    let shape = report.findings().iter().filter(|finding| finding.rule().id == "M004");
    let missed: Vec<String> = shape.map(|finding| finding.pointer().to_owned()).collect();
    assert_eq!(Manifest::read(source).is_ok(), missed.is_empty(), "the check and the types do not agree on {missed:?}");
    missed
}

/// The whole manifest without one field.
fn without(part: &ManifestPart, field: &str) -> SourceFile {
    let text = std::fs::read_to_string(folder().join("corpus/good/full.json")).expect("a case");
    let mut manifest: Value = serde_json::from_str(&text).expect("JSON");
    let object = manifest.pointer_mut(part.place).and_then(Value::as_object_mut).expect("an object");
    object.remove(field).unwrap_or_else(|| panic!("`{}` of the whole manifest has no `{field}`", part.name));
    SourceFile::new("without", manifest.to_string())
}

#[test]
fn every_required_field_of_the_specification_is_missed() {
    let mut not_missed = Vec::new();
    for part in &PARTS {
        for field in part.required {
            if missed(&without(part, field)) != [format!("{}/{field}", part.place)] {
                not_missed.push(format!("{}.{field}", part.name));
            }
        }
    }
    assert_eq!(not_missed, Vec::<String>::new(), "required by the specification, and nobody misses it");
}

#[test]
fn no_optional_field_of_the_specification_is_missed() {
    for part in &PARTS {
        for field in part.optional {
            assert_eq!(missed(&without(part, field)), Vec::<String>::new(), "{}.{field}", part.name);
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
                if part.place.is_empty() { format!("no-{field}") } else { format!("{}-without-{field}", part.name) };
            assert!(cases.contains(&format!("M004/{case}")), "{case}");
        }
    }
}

#[test]
fn the_schema_asks_for_the_fields_of_the_specification() {
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
