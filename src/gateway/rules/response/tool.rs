//! Checks one tool. An image tool is checked by the rules for image requests. Of every other tool, only the type is
//! checked.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::body_members::{self, BodyMember, JsonType, KnownMembers};
use super::body_reader::BodyReader;
use super::job::{BodyChange, HostedTool, ImageTool, ToolSummary};
use super::mask;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::dialects::{self, ToolChanges};
use crate::gateway::rules::{ImageModels, fields, image};
use crate::gateway::spool::SpooledBytes;
use crate::image::SizeRequest;
use crate::tables::IMAGE_TOOL_FIELDS;

const IMAGE_TOOL_TYPE: &str = "image_generation";
const MASK: &str = "input_image_mask";
/// The type and the name of an agent's own tool for images.
const IMAGE_NAMESPACE: (&str, &str) = ("namespace", "image_gen");
const NAME: &str = "name";
/// The tools of a namespace.
const LISTED: &str = "tools";
/// Types of tools that the caller runs itself: the upstream only requests their calls.
const CLIENT_TOOL_TYPES: [&str; 3] = ["function", "custom", IMAGE_NAMESPACE.0];
/// The members that are read: those that the API document lists for an image tool, and those of a namespace, by whose
/// name an agent's own tool for images is recognized.
/// The last one is only in a dialect a member of an image tool.
const MEMBERS: [&str; IMAGE_TOOL_FIELDS.len() + 3] = {
    let mut names = [NAME; IMAGE_TOOL_FIELDS.len() + 3];
    names[IMAGE_TOOL_FIELDS.len()] = LISTED;
    names[IMAGE_TOOL_FIELDS.len() + 2] = dialects::STYLE;
    let mut index = 0;
    while index < IMAGE_TOOL_FIELDS.len() {
        names[index] = IMAGE_TOOL_FIELDS[index].name;
        index += 1;
    }
    names
};

/// Returns the names of the members of a tool that are read. All others are unknown.
pub(super) fn members(changes: &ToolChanges) -> &'static [&'static str] {
    if changes.removes_style() { &MEMBERS } else { &MEMBERS[..MEMBERS.len() - 1] }
}

/// Checks the next tool, which has these members, and adds it to the summary `tools`.
pub(super) fn check_tool(
    models: &ImageModels,
    body: &SpooledBytes,
    known: &KnownMembers,
    tools: &mut ToolSummary,
    changes: &mut ToolChanges,
) -> Result<(), Error> {
    let path = &format!("tools[{}]", tools.count_tool());
    if known.span.json_type != JsonType::Object {
        return Err(fields::wrong_type(path, "an object", known.span.json_type.as_str()).into());
    }
    let name = || format!("{path}.type");
    let kind = known.get("type").ok_or_else(|| fields::missing_parameter(name()))?;
    if kind.json_type() != JsonType::Text {
        return Err(fields::wrong_type(&name(), "a string", kind.json_type().as_str()).into());
    }
    let kind = kind.parse::<String>().unwrap_or_default();
    if !CLIENT_TOOL_TYPES.contains(&kind.as_str()) {
        tools.record_hosted_tool(&name(), &kind);
    }
    if kind == IMAGE_NAMESPACE.0 {
        record_namespace_tools(path, body, known, tools)?;
    }
    if kind == IMAGE_TOOL_TYPE {
        let prefix = &format!("{path}.");
        let (tool, change) = check_image_tool(models, prefix, body, known, changes)?;
        tools.add(tool)?;
        if let Some((span, pieces)) = change {
            tools.replace(prefix, span, pieces)?;
        }
    } else if kind == IMAGE_NAMESPACE.0
        && known.get(NAME).and_then(BodyMember::parse::<String>).as_deref() == Some(IMAGE_NAMESPACE.1)
    {
        tools.record_own_image_tool();
    }
    Ok(())
}

/// Records the hosted tools that a namespace lists.
fn record_namespace_tools(
    path: &str,
    body: &SpooledBytes,
    namespace: &KnownMembers,
    tools: &mut ToolSummary,
) -> Result<(), Error> {
    let Some(listed) = namespace.get(LISTED).filter(|listed| listed.json_type() == JsonType::Array) else {
        return Ok(());
    };
    let (mut reader, _) = BodyReader::over_span(body, listed.span)?;
    let mut index = 0;
    while let Some(tool) = reader.next_value()? {
        let name = format!("{path}.tools[{index}].type");
        index += 1;
        let members = body_members::read_members(&mut reader, tool, &["type"])?;
        let Some(kind) = members.get("type").filter(|kind| kind.json_type() == JsonType::Text) else { continue };
        let kind = kind.parse::<String>().ok_or_else(|| too_long(&name))?;
        if !CLIENT_TOOL_TYPES.contains(&kind.as_str()) {
            tools.record_hosted_tool(&name, &kind);
        }
    }
    Ok(())
}

/// Types of a `tool_choice` that are not types of tools.
const CHOICE_TYPES: [&str; 1] = ["allowed_tools"];

/// Returns the hosted tools that a `tool_choice` names.
pub(super) fn hosted_tools_of_choice(choice: &Value) -> Vec<HostedTool> {
    let chosen = ("tool_choice.type".to_owned(), choice.get("type"));
    let listed = choice.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate();
    let listed = listed.map(|(index, tool)| (format!("tool_choice.tools[{index}].type"), tool.get("type")));
    let named = std::iter::once(chosen).chain(listed).filter_map(|(path, kind)| Some((path, kind?.as_str()?)));
    let hosted = named.filter(|(_, kind)| !CLIENT_TOOL_TYPES.contains(kind) && !CHOICE_TYPES.contains(kind));
    hosted.map(|(path, kind)| HostedTool { path, kind: kind.to_owned() }).collect()
}

fn check_image_tool(
    models: &ImageModels,
    prefix: &str,
    body: &SpooledBytes,
    known: &KnownMembers,
    changes: &mut ToolChanges,
) -> Result<(ImageTool, Option<BodyChange>), Error> {
    let mut options = Map::new();
    for (name, member) in known.iter().filter(|(name, _)| *name != MASK) {
        options.insert(name.to_owned(), scalar(&format!("{prefix}{name}"), member)?);
    }
    let adaptations = dialects::adapt_image_tool(changes.declared(), |id| models.find(id), &mut options);
    changes.note(prefix, &adaptations);
    let alias = image::replace_alias(models, &mut options);
    alias.iter().for_each(|alias| changes.note_alias(prefix, alias));
    let model = models.model_or_default(options.get("model").and_then(Value::as_str));
    image::remove_input_fidelity(prefix, &model, &mut options)?;
    image::check_transparency(prefix, &model, &options)?;
    if let Some(unknown) = known.first_unknown() {
        return Err(fields::unknown_parameter(format!("{prefix}{unknown}")).into());
    }
    fields::check_restricted(prefix, IMAGE_TOOL_FIELDS, |field| models.restriction(&model, field), &mut options)?;
    image::check_format_combinations(prefix, &model, &options)?;
    let text = |key: &str| options.get(key).and_then(Value::as_str);
    let number = |key: &str| options.get(key).and_then(Value::as_i64);
    known.get(MASK).map_or(Ok(()), |mask| mask::check_mask(&format!("{prefix}{MASK}"), body, mask.span))?;
    let change = match (alias, known.get("model")) {
        _ if adaptations.iter().next().is_some() => Some((known.span, write_tool(&options, body, known.get(MASK)))),
        (Some(alias), Some(member)) => Some((member.span, vec![to_piece(Value::from(alias.model).to_string())])),
        _ => None,
    };
    // The check against the table has limited all values, so the conversions cannot fail.
    let tool = ImageTool {
        path: prefix.trim_end_matches('.').to_owned(),
        model: model.id.clone(),
        size: text("size").and_then(|size| size.parse::<SizeRequest>().ok()).unwrap_or_default(),
        quality: text("quality").map(str::to_owned),
        format: text("output_format").and_then(|format| format.parse().ok()).unwrap_or_default(),
        compression: number("output_compression").and_then(|level| u8::try_from(level).ok()).unwrap_or(100),
        partial_images: number("partial_images").and_then(|partials| u32::try_from(partials).ok()).unwrap_or(0),
    };
    Ok((tool, change))
}

/// Writes a tool with these options, which have its type, and with its mask.
fn write_tool(options: &Map<String, Value>, body: &SpooledBytes, mask: Option<&BodyMember>) -> Vec<SpooledBytes> {
    let members: Vec<_> =
        options.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
    let members = members.join(",");
    match mask {
        None => vec![to_piece(format!("{{{members}}}"))],
        Some(mask) => vec![
            to_piece(format!("{{{members},\"{MASK}\":")),
            body.slice(mask.span.start, mask.span.end),
            to_piece("}".to_owned()),
        ],
    }
}

fn to_piece(text: String) -> SpooledBytes {
    Bytes::from(text).into()
}

/// Returns the value of a member. An array or object is returned empty: the caller needs only its type to refuse it,
/// because no field of an image tool except the mask may be one.
fn scalar(name: &str, member: &BodyMember) -> Result<Value, Error> {
    match member.json_type() {
        JsonType::Array => Ok(Value::Array(Vec::new())),
        JsonType::Object => Ok(Value::Object(Map::new())),
        _ => member.parse().ok_or_else(|| too_long(name).into()),
    }
}

/// Returns the rejection of a value that is longer than any valid value.
pub(super) fn too_long(name: &str) -> Rejection {
    Rejection::new(name, RejectionReason::StringAboveMax, format!("Invalid '{name}': the value is too long."))
}
