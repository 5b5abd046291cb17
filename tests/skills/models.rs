//! The Rust types lose nothing: a manifest is written as it was read, and an edit changes nothing else.

use imagate::manifest::text::{JsonLimits, read, write};
use imagate::manifest::{Manifest, SourceFile};

use crate::mutate::{RandomNumbers, mutated, seeds};

fn manifests() -> Vec<(String, Manifest)> {
    let (seeds, mut dice) = (seeds(), RandomNumbers::new(11));
    let texts = (0..3000).filter_map(|_| String::from_utf8(mutated(&seeds, &mut dice)).ok());
    let read = |text: String| Some((text.clone(), Manifest::read(&SourceFile::new("", text)).ok()?));
    texts.filter_map(read).collect()
}

#[test]
fn every_manifest_is_written_as_it_was_read() {
    let manifests = manifests();
    assert!(manifests.len() > 500, "{}", manifests.len());
    for (text, mut manifest) in manifests {
        let before = write(&read(&text, JsonLimits::default()).expect("JSON"));
        assert_eq!(manifest.to_text(), before);
        manifest.edit(|_| {}).expect("nothing was changed");
        assert_eq!(manifest.to_text(), before);
    }
}

#[test]
fn a_change_through_the_types_changes_nothing_else() {
    for (text, mut manifest) in manifests() {
        manifest.edit(|registry| registry.generated_at = "2027-01-01T00:00:00Z".to_owned()).expect("a text");
        let mut expected = read(&text, JsonLimits::default()).expect("JSON");
        let imagate::manifest::text::JsonValue::Object(members) = &mut expected.value else { panic!("{text}") };
        let member = members.iter_mut().rev().find(|member| member.key == "generated_at").expect("a required field");
        member.node = read("\"2027-01-01T00:00:00Z\"", JsonLimits::default()).expect("JSON");
        assert_eq!(manifest.to_text(), write(&expected));
    }
}

#[test]
fn a_manifest_made_from_the_types_has_the_same_content() {
    for (_, manifest) in manifests() {
        let made = Manifest::new(manifest.registry().clone()).expect("a registry that was read");
        let reread = Manifest::read(&SourceFile::new("", made.to_text())).expect("a manifest");
        let json = |manifest: &Manifest| serde_json::to_value(manifest.registry()).expect("JSON");
        assert_eq!(json(&reread), json(&manifest));
    }
}

const SMALL: &str = r#"{"x-first": 1.50, "apis": [], "skills": [
  {"sha256": "0", "x-a": 1E2, "name": "a", "version": "1", "title": "A", "description": "", "path": "a", "package": "a.zip", "tags": []},
  {"size_bytes": 10, "name": "b", "version": "1", "title": "B", "description": "", "path": "b", "package": "b.zip", "sha256": "1"}],
  "repository": {"branch": "m", "name": "r", "git_url": "g", "raw_base_url": "u"}, "generated_at": "t", "schema_version": "1"}"#;

fn edited(change: impl FnOnce(&mut imagate::manifest::SkillsRegistry)) -> String {
    let mut manifest = Manifest::read(&SourceFile::new("small", SMALL)).expect("a manifest");
    manifest.edit(change).expect("values");
    manifest.to_text().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn removing_a_skill_keeps_the_text_of_the_others() {
    let text = edited(|registry| drop(registry.skills.remove(0)));
    assert!(text.contains(r#""skills": [ { "size_bytes": 10, "name": "b","#) && !text.contains("1E2"), "{text}");
    let text = edited(|registry| registry.skills.reverse());
    let (b, a) = (text.find("\"size_bytes\": 10,").expect("b"), text.find("\"x-a\": 1E2").expect("a"));
    assert!(b < a && text.contains("\"tags\": []"), "{text}");
}

#[test]
fn fields_are_changed_added_and_removed_in_place() {
    let text = edited(|registry| {
        registry.skills[0].tags = vec!["new".to_owned()];
        registry.skills[1].size_bytes = None;
        registry.skills[1].agents = vec!["codex".to_owned()];
    });
    assert!(text.contains(r#""package": "a.zip", "tags": [ "new" ] }"#), "{text}");
    assert!(text.contains(r#"{ "name": "b","#) && text.contains(r#""sha256": "1", "agents": [ "codex" ] }"#), "{text}");
    assert!(text.starts_with(r#"{ "x-first": 1.50,"#), "{text}");
}
