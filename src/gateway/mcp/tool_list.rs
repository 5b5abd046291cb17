//! The tools, as agents see them: names, descriptions and arguments.
//!
//! The schemas name the fields that every image model has. Other fields of added models may be given too: the rules of
//! the API check all of them, and their refusals name the parameter.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Value, json};

pub(super) const GENERATE_IMAGE: &str = "generate_image";
pub(super) const EDIT_IMAGE: &str = "edit_image";
pub(super) const FETCH_IMAGE: &str = "fetch_image";
pub(super) const LIST_IMAGE_MODELS: &str = "list_image_models";

/// The sentences about repeated calls in the descriptions of the tools that cost money.
const REPEATS: &str = "Costs money. The answer has a small preview and a link to the full image. A call with the same arguments as an earlier one returns the image of that call and costs nothing, so repeat the call if it timed out; give another 'variation' to get another image.";

/// Returns every tool.
pub(super) fn tools() -> Vec<Tool> {
    vec![
        paid_tool(
            GENERATE_IMAGE,
            "Generate image",
            "Make images from a prompt.",
            json!({ "prompt": text("What the image shows.") }),
            &["prompt"],
        ),
        paid_tool(
            EDIT_IMAGE,
            "Edit image",
            "Change images as a prompt says, or make a new one from them.",
            json!({
                "prompt": text("What to change, or what the new image shows."),
                "images": {
                    "type": "array", "items": { "type": "string" }, "minItems": 1,
                    "description": "The images: ids of earlier images (img_…), or base64 or data URLs of small files. Paths and web addresses are not read.",
                },
                "mask": text("An image in the same forms, with the size of the first image; its transparent region is the region to change."),
            }),
            &["prompt", "images"],
        ),
        tool(
            FETCH_IMAGE,
            "Fetch image",
            "Get the preview and a new link of an earlier image, or wait for one that is being made. Costs nothing.",
            json!({ "id": text("The id of the image (img_…), as generate_image or edit_image returned it.") }),
            &["id"],
        )
        .with_annotations(ToolAnnotations::new().read_only(true).open_world(false)),
        tool(
            LIST_IMAGE_MODELS,
            "List image models",
            "List the image models with their sizes, qualities and formats. Costs nothing.",
            json!({}),
            &[],
        )
        .with_annotations(ToolAnnotations::new().read_only(true).open_world(false)),
    ]
}

/// A tool that makes images. It has the fields that are common to generations and edits.
fn paid_tool(name: &'static str, title: &str, purpose: &str, mut properties: Value, required: &[&str]) -> Tool {
    let common = [
        ("model", text("The image model; list_image_models has the names. The default is the first of them.")),
        ("size", text("Width and height, such as 1024x1024, 1536x1024 or 1024x1536, or auto (default).")),
        ("quality", text("low is cheap and fast, high is best; auto is the default.")),
        ("output_format", text("png (default), jpeg or webp.")),
        ("background", text("opaque, transparent if the model supports it, or auto.")),
        (
            "n",
            json!({ "type": "integer", "minimum": 1, "description": "The number of images, 1 by default. Each one costs money." }),
        ),
        ("variation", text("Any text. Calls that differ only in it make different images.")),
    ];
    for (field, schema) in common {
        properties[field] = schema;
    }
    let annotations = ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(true);
    tool(name, title, &format!("{purpose} {REPEATS}"), properties, required).with_annotations(annotations)
}

fn tool(name: &'static str, title: &str, description: &str, properties: Value, required: &[&str]) -> Tool {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    let schema = schema.as_object().cloned().unwrap_or_default();
    Tool::new(name, description.to_owned(), Arc::new(schema)).with_title(title)
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_argument_is_described() {
        for tool in tools() {
            let schema = Value::Object((*tool.input_schema).clone());
            for name in schema["required"].as_array().unwrap() {
                assert!(schema["properties"][name.as_str().unwrap()]["description"].is_string(), "{name}");
            }
            assert!(tool.description.is_some() && tool.title.is_some() && tool.annotations.is_some(), "{}", tool.name);
        }
    }

    #[test]
    fn the_list_of_tools_is_short() {
        // It is in the context of the agent all the time.
        assert!(serde_json::to_string(&tools()).unwrap().len() < 8000);
    }
}
