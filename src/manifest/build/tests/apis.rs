//! Tests of API references: they come from their documents, and skills may name only existing ones.

use serde_json::{Value as Json, json};

use super::*;

const DOCUMENT: &str = "---\n\
    # The fields of an API reference.\n\
    title: Images over HTTP\n\
    product: images\n\
    language: http\n\
    tags: images, gpt-image-2\n\
    source_urls:\n  - https://example.com/docs/images\n  - https://example.com/docs/errors\n\
    ---\n\n# Another title\n";

/// A tree with API references; one is in a subfolder, and has only the required fields.
fn tree_with_apis() -> MemoryFiles {
    let mut files = tree();
    files.insert("apis/images-http.md", DOCUMENT);
    files.insert("apis/images/python.md", "---\nproduct: images\nlanguage: python\n---\n# Images in Python\n");
    files.insert("apis/README.md", "About this folder.\n");
    files.insert("apis/picture.png", "no document");
    files.insert("apis/.DS_Store", "x");
    files
}

fn build_as_json(files: &MemoryFiles, previous: Option<&SourceFile>) -> (BuildOutput, Json) {
    let output = build(&build_input(files, previous)).expect("it builds");
    let json = serde_json::from_str(&output.manifest).expect("JSON");
    (output, json)
}

#[test]
fn an_api_reference_takes_its_fields_from_its_document() {
    let mut files = tree_with_apis();
    let (output, json) = build_as_json(&files, None);
    let expected = json!([
        { "id": "images-http", "title": "Images over HTTP", "product": "images", "language": "http",
          "path": "apis/images-http.md", "tags": ["images", "gpt-image-2"],
          "source_urls": ["https://example.com/docs/images", "https://example.com/docs/errors"] },
        { "id": "images/python", "title": "Images in Python", "product": "images", "language": "python",
          "path": "apis/images/python.md" },
    ]);
    assert_eq!(json["apis"], expected);
    let source = store_output(&mut files, &output);
    assert_eq!(findings(&source, &files), Vec::<String>::new());
    let mut later = build_input(&files, Some(&source));
    later.now = at("2027-01-01T00:00:00Z");
    assert_eq!(build(&later).expect("it builds again").manifest, output.manifest);
}

#[test]
fn a_list_may_be_written_as_list_or_as_one_text() {
    let mut files = tree();
    let document = "---\ntitle: a\nproduct: b\nlanguage: http\ntags:\n  - 2024\n  - new\nsource_urls: >-\n  https://a.example.com/x,y\n  https://b.example.com\n---\n";
    files.insert("apis/a.md", document);
    let (_, json) = build_as_json(&files, None);
    assert_eq!(json["apis"][0]["tags"], json!(["2024", "new"]));
    assert_eq!(json["apis"][0]["source_urls"], json!(["https://a.example.com/x,y", "https://b.example.com"]));
}

#[test]
fn the_document_replaces_known_fields_and_unknown_fields_stay() {
    let mut files = tree_with_apis();
    let (output, _) = build_as_json(&files, None);
    let text = store_output(&mut files, &output)
        .text()
        .expect("text")
        .replace("Images in Python\"", "Typed\", \"x-owner\": 1.50");
    let source = SourceFile::new("skills.json", text);
    files.insert("apis/images-http.md", "---\ntitle: Less\nproduct: images\nlanguage: http\n---\n");
    let (again, json) = build_as_json(&files, Some(&source));
    assert_eq!(json["apis"][0]["title"], "Less");
    assert!(json["apis"][0].get("tags").is_none() && json["apis"][0].get("source_urls").is_none(), "{json}");
    assert_eq!(json["apis"][1]["title"], "Images in Python");
    assert!(again.manifest.contains("\"x-owner\": 1.50"), "{}", again.manifest);
}

/// The build removes and updates the entries whose documents are in the folder `apis`. Entries for documents elsewhere
/// stay, until a document with their id appears in that folder.
#[test]
fn an_api_reference_is_removed_with_its_document() {
    let mut files = tree_with_apis();
    let (output, _) = build_as_json(&files, None);
    let source = store_output(&mut files, &output);
    let text = source.text().expect("text").replace(
        "\"apis\": [",
        "\"apis\": [{\"id\": \"typed\", \"title\": \"T\", \"product\": \"p\", \"language\": \"en\", \"path\": \"docs/typed.html\"},\
         {\"id\": \"moved\", \"title\": \"T\", \"product\": \"p\", \"language\": \"en\", \"path\": \"docs/moved.md\"},",
    );
    let mut fewer = tree();
    fewer.insert("apis/images-http.md", DOCUMENT);
    fewer.insert("apis/moved.md", DOCUMENT);
    let (again, json) = build_as_json(&fewer, Some(&SourceFile::new("skills.json", text)));
    assert_eq!(again.removed_apis, ["images/python"]);
    let paths: Vec<&str> =
        json["apis"].as_array().expect("a list").iter().filter_map(|api| api["path"].as_str()).collect();
    assert_eq!(paths, ["apis/images-http.md", "apis/moved.md", "docs/typed.html"]);
}

#[test]
fn a_skill_names_its_api_references() {
    let mut files = tree_with_apis();
    let skill_with_api_docs =
        |word: &str| skill("demo", "1.0.0", "").replace("  version", &format!("  api_docs: {word}\n  version"));
    files.insert("docs/more.md", "More.\n");
    files.insert(
        "skills/demo/SKILL.md",
        skill_with_api_docs("images-http, images/python https://example.com/docs docs/more.md"),
    );
    let (output, json) = build_as_json(&files, None);
    let expected = ["images-http", "images/python", "https://example.com/docs", "docs/more.md"];
    assert_eq!(json["skills"][0]["api_docs"], json!(expected));
    let source = store_output(&mut files, &output);
    assert_eq!(findings(&source, &files), Vec::<String>::new());
    files.insert("skills/demo/SKILL.md", skill_with_api_docs("image-http, docs/none.md"));
    let messages = problems(&files, None);
    let expected = [
        "skills/demo/SKILL.md:5:13: `api_docs` names `image-http`, and there is no such API reference; did you mean `images-http`?",
        "skills/demo/SKILL.md:5:13: `api_docs` names `docs/none.md`, and there is no such API reference",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn every_broken_front_matter_is_reported_with_its_line() {
    let required = "product: p\nlanguage: http\n";
    let cases = [
        ("# No front matter\n".to_owned(), ":1:1: does not begin with front matter"),
        (format!("---\ntitle: a\n{required}"), ":1:1: has front matter without an end"),
        (format!("---\ntitle: a\n{required}title: b\n---\n"), ":5:1: has front matter that cannot be read"),
        (format!("---\ntitle: [\n{required}---\n"), "has front matter that cannot be read"),
        (format!("---\ntitle: {{a: b}}\n{required}---\n"), ":2:8: has front matter that cannot be read"),
        (
            format!("---\n{required}tags: 7\n---\n# T\n"),
            ":4:1: has front matter that cannot be read: invalid type: integer `7`, expected a text or a list of texts",
        ),
        (format!("---\n{required}tags:\n---\n# T\n"), ":4:"),
        (format!("---\n{required}tags:\n  - [a]\n---\n# T\n"), ":5:5: has front matter that cannot be read"),
        (format!("---\n{required}tags:\n  - a\n  - ''\n---\n# T\n"), ":6:5: an element of `tags` is empty"),
        (
            format!("---\n{required}---\nNo heading.\n"),
            ":2:1: has no `title`; write `title:`, followed by the name of the document",
        ),
        ("---\ntitle: a\nlanguage: http\n---\n".to_owned(), ":2:1: has no `product`"),
        ("---\ntitle: a\nproduct: p\n---\n".to_owned(), ":2:1: has no `language`"),
        (format!("---\ntitle: ' '\n{required}---\n"), ":2:8: `title` is empty"),
        (format!("---\n{required}title: |\n  a\n  b\n---\n"), ":5:3: `title` has more than one line"),
        (format!("---\nid: other\ntitle: a\n{required}---\n"), ":2:5: `id` is `other`, but the path gives `broken`"),
        (
            format!("---\ntitle: a\n{required}langauge: en\n---\n"),
            ":5:1: `langauge` is not a field of an API reference; did you mean `language`?",
        ),
        (
            format!("---\ntitle: a\n{required}sidebar: 3\n---\n"),
            ":5:1: `sidebar` is not a field of an API reference; begin names",
        ),
    ];
    for (text, expected) in cases {
        let mut files = tree();
        files.insert("apis/broken.md", text.clone());
        let messages = problems(&files, None);
        assert!(!messages.concat().contains(" at line "), "the line is stated twice: {messages:?}");
        assert!(messages.len() == 1 && messages[0].starts_with("apis/broken.md:"), "{text}: {messages:?}");
        assert!(messages[0].contains(expected), "{text}: {messages:?} does not say {expected}");
    }
    let mut files = tree();
    files.insert("apis/broken.md", b"---\ntitle: \xff\n---\n".as_slice());
    assert_eq!(problems(&files, None), ["apis/broken.md:2:8: is not UTF-8"]);
    files.insert("apis/broken.md", format!("---\nid: broken\ntitle: a\n{required}x-sidebar: [3]\n---\n"));
    assert!(build(&build_input(&files, None)).is_ok());
}

#[test]
fn all_problems_of_api_references_are_reported_at_once() {
    let mut files = tree_with_apis();
    files.insert("apis/Big Name.md", DOCUMENT);
    files.insert("apis/bare.md", "---\n---\n");
    files.insert_other(
        "apis/link.md",
        FileMetadata { kind: FileKind::Link("../x".to_owned()), size: 0, is_executable: false },
    );
    files.insert("skills/demo/SKILL.md", "---\nname: other\ndescription: d\n---\n");
    let messages = problems(&files, None);
    for word in [
        "apis/Big Name.md: gives the id `Big Name`; ids consist of lower-case letters",
        "apis/bare.md:2:1: has no `title`",
        "apis/bare.md:2:1: has no `product`",
        "apis/bare.md:2:1: has no `language`",
        "apis/link.md: is a symbolic link",
        "skills/demo/SKILL.md:2:7: `name` is `other`",
    ] {
        assert!(messages.iter().any(|problem| problem.contains(word)), "{word}\n{messages:#?}");
    }
}
