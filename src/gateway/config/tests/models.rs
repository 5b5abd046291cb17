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
sizes = ["512x512", "auto", "auto"]
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
            "4:10: `sizes[0]` is not a possible size: The total number of pixels must be between 655360 and 8294400.",
            "4:29: `sizes[2]` is listed twice",
            "5:1: unknown setting `qualites` in `models`; did you mean `qualities`?",
            "7:6: `id` `a` is also listed in `text_models`; a model is either an image model or a text model",
            "8:13: `qualities` must have at least one entry; leave it out to use the values of `gpt-image-2`",
            "9:19: `formats[1]` must be \"png\" or \"jpeg\" or \"webp\", not \"jpg\"; did you mean `jpeg`?",
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
