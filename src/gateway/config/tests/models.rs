//! Text models and image models.

use super::*;

/// Returns a model with this id and the rules of the default model.
fn with_default_rules(id: &str) -> ImageModelSpec {
    ImageModelSpec { id: id.to_owned(), name: id.to_owned(), ..ImageModelSpec::default_model() }
}

#[test]
fn an_added_model_takes_missing_rules_from_the_default_model() {
    let text = r#"
text_models = ["b", "a"]
[[models]]
id = "sketch-1"
sizes = ["auto", "1024x1024"]
qualities = ["draft", "high"]
formats = ["webp"]
backgrounds = ["transparent"]
max_images = 1
max_partial_images = 0
compression = false
[[models]]
id = "twin"
"#;
    let config = load_from(test_host(), text).unwrap();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(config.text_models, Some(words(&["b", "a"])));
    let sketch = ImageModelSpec {
        id: "sketch-1".to_owned(),
        name: "sketch-1".to_owned(),
        sizes: Some(words(&["auto", "1024x1024"])),
        qualities: words(&["draft", "high"]),
        formats: words(&["webp"]),
        backgrounds: words(&["transparent"]),
        max_images: 1,
        max_partial_images: 0,
        compression: false,
        ..ImageModelSpec::default_model()
    };
    assert_eq!(config.image_models, [sketch, with_default_rules("twin")]);
    let shown = config.to_annotated_toml();
    assert!(shown.contains("qualities = [\"draft\", \"high\"]") && shown.contains("id = \"twin\""), "{shown}");
}

#[test]
fn every_mistake_in_the_models_is_reported_at_once() {
    check(
        r#"text_models = ["a", "a", "b c"]
[[models]]
id = "gpt-image-2"
sizes = ["0x512", "auto", "auto"]
qualites = ["low"]
[[models]]
id = "a"
qualities = []
formats = ["png", "jpg"]
backgrounds = ["transparant"]
max_images = 11
[[models]]
id = "twice"
qualities = ["a b"]
max_partial_images = 4
[[models]]
id = "twice"
[[models]]
sizes = ["big"]
"#,
        &[
            "1:21: `text_models[1]` is listed twice",
            "1:26: `text_models[2]` must be the id of a model, without spaces",
            "3:6: `id` `gpt-image-2` is a built-in model, whose rules are fixed",
            "4:10: `sizes[0]` is not a possible size: Expected 'auto' or '<width>x<height>' in pixels, such as '1024x1024'.",
            "4:27: `sizes[2]` is listed twice",
            "5:1: unknown setting `qualites` in `models`; did you mean `qualities`?",
            "7:6: `id` `a` is also listed in `text_models`; a model is either an image model or a text model",
            "8:13: `qualities` must have at least one entry; leave it out to use the values of `gpt-image-2`",
            "9:19: `formats[1]` must be \"png\" or \"jpeg\" or \"webp\" or \"gif\", not \"jpg\"; did you mean `jpeg`?",
            "10:16: `backgrounds[0]` must be \"auto\" or \"opaque\" or \"transparent\", not \"transparant\"; did you mean `transparent`?",
            "11:14: `max_images` must be from 1 to 10",
            "14:14: `qualities[0]` must be a word of 1 to 32 letters, digits, `.`, `_` or `-`",
            "15:22: `max_partial_images` must be from 0 to 3",
            "17:6: `id` `twice` is already used",
            "18:1: `id` is missing in `models`",
            "19:10: `sizes[0]` is not a possible size: Expected 'auto' or '<width>x<height>' in pixels, such as '1024x1024'.",
        ],
    );
}

/// A model with everything that an added model can have.
const COMPLETE_MODEL: &str = r#"
[[models]]
id = "next-1"
formats = ["png", "gif"]
input_fidelity = ["low", "high"]
stream = false
passthrough = true
[models.size_rules]
multiple_of = 8
max_edge = 4096
[[models.fields]]
name = "complexity"
kind = "choice"
words = ["plain", "rich"]
required = true
operations = "generations"
[[models.fields]]
name = "frame_count"
kind = "integer"
min = 1
max = 8
[[models.fields]]
name = "weight"
kind = "number"
max = 1.5
[[models.fields]]
name = "note"
kind = "text"
[[models.file_parts]]
name = "markup"
[[models.file_parts]]
name = "references[]"
max_count = 4
"#;

#[test]
fn an_added_model_can_have_fields_files_and_size_rules_of_its_own() {
    let config = load_from(test_host(), COMPLETE_MODEL).unwrap();
    let model = &config.image_models[0];
    assert_eq!((model.can_stream, model.passes_unknown, model.fidelities.len()), (false, true, 2));
    assert_eq!(
        model.size_rules,
        Some(SizeRules { multiple_of: Some(8), max_edge: Some(4096), ..SizeRules::default() })
    );
    let field = |name: &str, kind: ModelFieldKind| ModelField {
        name: name.to_owned(),
        kind,
        required: false,
        operations: FieldOperations::Both,
    };
    let words = ["plain", "rich"].map(str::to_owned).to_vec();
    let complexity = ModelField {
        required: true,
        operations: FieldOperations::Generations,
        ..field("complexity", ModelFieldKind::Choice(words))
    };
    let others = [
        field("frame_count", ModelFieldKind::Integer { min: Some(1), max: Some(8) }),
        field("weight", ModelFieldKind::Number { min: None, max: Some(1.5) }),
        field("note", ModelFieldKind::Text { max_chars: 32_000 }),
    ];
    assert_eq!(model.fields, [&[complexity], &others[..]].concat());
    let part = |name: &str, max_count| FilePart { name: name.to_owned(), max_count };
    assert_eq!(model.file_parts, [part("markup", 1), part("references[]", 4)]);
    // The printed settings give the same model.
    let printed = load_from(test_host(), &config.to_annotated_toml()).unwrap();
    assert_eq!(printed.image_models, config.image_models);
}

#[test]
fn another_name_stands_for_a_model_without_rules_of_its_own() {
    let text = "[[models]]\nid = \"gpt-image-1\"\nalias_of = \"gpt-image-2\"\n[[models]]\nid = \"draft\"\nalias_of = \"sketch-1\"\n[[models]]\nid = \"sketch-1\"\n";
    let config = load_from(test_host(), text).unwrap();
    let alias =
        |alias: &str, model: &str| ModelAlias { alias: alias.to_owned(), model: model.to_owned(), groups: None };
    assert_eq!(config.model_aliases, [alias("gpt-image-1", "gpt-image-2"), alias("draft", "sketch-1")]);
    assert_eq!(config.image_models, [with_default_rules("sketch-1")]);
    let printed = load_from(test_host(), &config.to_annotated_toml()).unwrap();
    assert_eq!(printed.model_aliases, config.model_aliases);
    check(
        r#"[[models]]
id = "a"
alias_of = "b"
[[models]]
id = "b"
alias_of = "c"
max_images = 1
[[models]]
id = "gpt-image-2"
alias_of = "gpt-image-2"
"#,
        &[
            "3:12: `alias_of` `b` is not an image model",
            "6:12: `alias_of` `c` is not an image model",
            "6:12: `alias_of` cannot be combined with rules: they are those of the model",
            "9:6: `id` `gpt-image-2` is a built-in model, whose rules are fixed",
        ],
    );
}

#[test]
fn another_name_may_be_that_of_some_groups_only() {
    let text = r#"[[models]]
id = "fast"
alias_of = "gpt-image-2"
groups = ["chat", "default"]
[[models]]
id = "fast"
alias_of = "sketch-1"
groups = ["agents"]
[[models]]
id = "sketch-1"
[[groups]]
name = "chat"
[[groups]]
name = "agents"
"#;
    let config = load_from(test_host(), text).unwrap();
    let alias = |model: &str, groups: &[&str]| ModelAlias {
        alias: "fast".to_owned(),
        model: model.to_owned(),
        groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
    };
    assert_eq!(config.model_aliases, [alias("gpt-image-2", &["chat", "default"]), alias("sketch-1", &["agents"])]);
    let printed = load_from(test_host(), &config.to_annotated_toml()).unwrap();
    assert_eq!(printed.model_aliases, config.model_aliases);
    check(
        r#"[[models]]
id = "a"
alias_of = "gpt-image-2"
groups = ["chat", "cat"]
[[models]]
id = "a"
alias_of = "gpt-image-2"
groups = ["default", "chat"]
[[models]]
id = "a"
alias_of = "gpt-image-2"
[[models]]
id = "b"
alias_of = "gpt-image-2"
groups = []
[[models]]
id = "c"
groups = ["chat"]
[[groups]]
name = "chat"
"#,
        &[
            "4:19: `groups[1]` names `cat`, which is not a group; did you mean `chat`?",
            "6:6: `id` `a` is already used",
            "10:6: `id` `a` is already used",
            "15:10: `groups` must name at least one group; leave it out for all groups",
            "18:10: `groups` is only for another name of a model, with `alias_of`",
        ],
    );
}

#[test]
fn every_mistake_in_added_fields_is_reported_at_its_place() {
    check(
        r#"[[models]]
id = "next-1"
sizes = ["auto"]
[models.size_rules]
multiple = 8
[[models.fields]]
name = "quality"
kind = "choice"
[[models.fields]]
name = "a b"
kind = "integr"
[[models.fields]]
name = "seed"
kind = "integer"
min = 3
max = 1.5
words = ["a"]
[[models.fields]]
name = "seed"
kind = "boolean"
[[models.file_parts]]
name = "mask"
max_count = 17
"#,
        &[
            "4:1: `size_rules` cannot be combined with `sizes`",
            "5:1: unknown setting `multiple` in `models.size_rules`",
            "7:8: `name` `quality` is a field that the API has already",
            "8:8: `kind` `choice` needs `words`",
            "10:8: `name` must be a word of 1 to 32 letters, digits, `.`, `_` or `-`",
            "11:8: `kind` must be \"choice\" or \"integer\" or \"number\" or \"boolean\" or \"text\" or \"object\", not \"integr\"; did you mean `integer`?",
            "16:7: `max` must be a whole number",
            "16:7: `max` must be at least `min`",
            "17:9: `words` is only for the kind `choice`",
            "19:8: `name` `seed` is already used",
            "22:8: `name` `mask` is a field that the API has already",
            "23:13: `max_count` must be from 1 to 16",
        ],
    );
}

#[test]
fn text_models_in_the_wrong_table_are_reported() {
    check(
        "models = [\"gpt-5.5\"]",
        &[
            "1:11: `models[0]` is a string but must be a table with the `id` and the rules of an image model; text models belong in `text_models`",
        ],
    );
    check("text_models = \"gpt-5.5\"", &["1:15: `text_models` is a string but must be a list"]);
}
