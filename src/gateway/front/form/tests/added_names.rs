//! Tests of forms with fields and files that only added models have.

use serde_json::json;

use super::multipart::{FORM, file_part, form, text_part};
use super::*;
use crate::gateway::config::{FilePart, ImageModelSpec, ModelField, ModelFieldKind};
use crate::gateway::rules::ImageModels;

/// A spool, and the names of a model with a field, a file, and all unknown fields if `is_open`.
fn fixture(is_open: bool) -> TestSpool {
    let field = ModelField {
        name: "svg".to_owned(),
        kind: ModelFieldKind::Object,
        required: false,
        operations: crate::gateway::config::FieldOperations::Both,
    };
    let model = ImageModelSpec {
        id: "next-1".to_owned(),
        fields: vec![field],
        file_parts: vec![FilePart { name: "markup".to_owned(), max_count: 1 }],
        passes_unknown: is_open,
        ..ImageModelSpec::default_model()
    };
    let added = ImageModels::new(&[model]).added_names();
    TestSpool { names: FormNames { added, ..FormNames::default() }, ..TestSpool::new() }
}

fn example(others: &[Vec<u8>]) -> Bytes {
    form(&[&[file_part("image", &png(1)), text_part("prompt", b"red")], others].concat())
}

#[tokio::test]
async fn a_form_keeps_the_texts_and_files_of_added_names() {
    let fixture = fixture(false);
    let parts = [text_part("svg", br#"{"a":1}"#), file_part("markup", b"<m/>"), file_part("markup", b"2")];
    let form = fixture.read(FORM, vec![example(&parts)]).await.unwrap();
    assert!(form.is_multipart);
    assert_eq!(form.fields.get("svg"), Some(&json!(r#"{"a":1}"#)));
    let files: Vec<_> = form.files.iter().map(|file| (file.param.as_str(), bytes(file))).collect();
    assert_eq!(files, [("markup", b"<m/>".to_vec()), ("markup", b"2".to_vec())]);
    let files = vec![file_part("markup", b"x"); 17];
    let refusal = assert_refused(fixture.read(FORM, vec![example(&files)]).await, 400, Some("markup"));
    assert!(refusal.contains("at most 16"), "{refusal}");
}

#[tokio::test]
async fn other_names_are_kept_only_if_a_model_passes_them() {
    let other = [text_part("style", b"1")];
    assert_refused(fixture(false).read(FORM, vec![example(&other)]).await, 400, Some("style"));
    assert_refused(TestSpool::new().read(FORM, vec![example(&[text_part("svg", b"1")])]).await, 400, Some("svg"));
    let form = fixture(true).read(FORM, vec![example(&other)]).await.unwrap();
    assert_eq!(form.fields.get("style"), Some(&json!("1")));
    let body = |name: &str| {
        let url = "data:image/png;base64,iVBORw0KGgo=";
        json!({"images": [{"image_url": url}], "prompt": "red", name: {"deep": [1, {"a": null}]}}).to_string()
    };
    assert_refused(fixture(false).read("application/json", vec![body("style").into()]).await, 400, Some("style"));
    for (fixture, name) in [(fixture(true), "style"), (fixture(false), "svg")] {
        let form = fixture.read("application/json", vec![body(name).into()]).await.unwrap();
        assert_eq!((form.is_multipart, form.fields.get(name)), (false, Some(&json!({"deep": [1, {"a": null}]}))));
    }
}
