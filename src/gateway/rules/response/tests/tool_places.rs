//! A tool has the same verdict wherever a request declares it.

use super::*;
use crate::gateway::config::{Dialect, DialectSet};

/// The number of random bodies in an ordinary run. The variable `IMAGATE_TOOL_BODIES` sets another.
const BODIES: u64 = 4_000;

/// A small generator of pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("a small number")
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A tool of any kind, often an image tool with values that are valid, changed by a dialect, or refused.
    fn tool(&mut self) -> Value {
        let kinds = ["image_generation", "image_generation", "image_generation", "web_search", "function", "x_new"];
        let mut tool = json!({"type": self.pick(&kinds)});
        let values: [(&str, &[Value]); 11] = [
            ("size", &[json!("1024x1024"), json!("3840x2160"), json!("7x7"), json!("1000x1000"), json!(5)]),
            ("quality", &[json!("low"), json!("high"), json!("hd"), json!("best"), json!(null)]),
            (
                "model",
                &[json!("gpt-image-2"), json!("gpt-image-2-2026-04-21"), json!("dall-e-3"), json!("gpt-image-9")],
            ),
            ("background", &[json!("auto"), json!("transparent"), json!({})]),
            ("output_format", &[json!("png"), json!("webp"), json!("gif"), json!(["png"])]),
            ("output_compression", &[json!(100), json!(50), json!(101)]),
            ("partial_images", &[json!(0), json!(3), json!(4)]),
            ("style", &[json!("vivid")]),
            ("name", &[json!("f"), json!("image_gen")]),
            ("n", &[json!(1)]),
            ("input_image_mask", &[json!(null), json!({}), json!({"image_url": "https://example.com/mask.png"})]),
        ];
        for (name, values) in &values {
            if self.below(5) == 0 {
                tool[name] = self.pick(values).clone();
            }
        }
        match self.below(25) {
            0 => tool["type"] = json!(5),
            1 => drop(tool.as_object_mut().expect("an object").remove("type")),
            _ => {}
        }
        tool
    }

    /// Puts a tool at a random place. Returns the body and the path of the tool.
    fn place(&mut self, tool: &Value) -> (Value, String) {
        match self.below(5) {
            0 => {
                let (tool, path) = self.wrap(tool, "tools[1]".to_owned());
                (body_with(&json!({"tools": [{"type": "function", "name": "f"}, tool]})), path)
            }
            1 | 2 => {
                let (tool, path) = self.wrap(tool, "input[1].tools[0]".to_owned());
                let kind = self.pick(&["additional_tools", "tool_search_output", "not_known_yet"]);
                let item = json!({"type": kind, "role": "developer", "tools": [tool]});
                (body_with(&json!({"input": [{"role": "user", "content": "draw"}, item]})), path)
            }
            3 => {
                let (tool, path) = self.wrap(tool, "tool_choice.tools[0]".to_owned());
                (body_with(&json!({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [tool]}})), path)
            }
            _ => {
                let (tool, path) = self.wrap(tool, "tool_choice.allowed_tools.tools[0]".to_owned());
                let choice = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool]}});
                (body_with(&json!({ "tool_choice": choice })), path)
            }
        }
    }

    /// Puts a tool into up to three namespaces.
    fn wrap(&mut self, tool: &Value, mut path: String) -> (Value, String) {
        let mut tool = tool.clone();
        for _ in 0..self.below(4) {
            tool = json!({"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}, tool]});
            path.push_str(".tools[1]");
        }
        (tool, path)
    }
}

/// Returns all that follows from a tool with this path in a body.
fn verdict(body: &Value, path: &str, dialects: DialectSet) -> Result<Value, String> {
    let mut changes = ToolChanges::new(dialects);
    let body = SpooledBytes::from(Bytes::from(body.to_string()));
    let checked = ImageModels::default().check_response(body, &HeaderMap::new(), Utc::now(), &mut changes);
    let relative = |text: &str| text.replace(path, "TOOL");
    let job = checked.map_err(|error| match error {
        Error::Invalid(rejection) => relative(&format!("{rejection:?}")),
        error => panic!("{error:?}"),
    })?;
    let sent: Value = serde_json::from_slice(&upstream_body(&job)).expect("JSON");
    let pointer = format!("/{}", path.replace('[', "/").replace(']', "").replace('.', "/"));
    Ok(json!({
        "sent": sent.pointer(&pointer).expect("the tool"),
        "images": relative(&format!("{:?}", job.image_tools())),
        "hosted": relative(&format!("{:?}", job.hosted_tools())),
        "large": job.is_large(),
        "adapted": job.adapted_text().map(|text| relative(&text)),
    }))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for in a variable")]
fn a_tool_has_the_same_verdict_at_every_place() {
    let bodies = std::env::var("IMAGATE_TOOL_BODIES").ok().and_then(|count| count.parse().ok()).unwrap_or(BODIES);
    let mut random = Random(44);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..bodies {
        let tool = random.tool();
        let dialects = if random.below(2) == 0 { DialectSet::default() } else { DialectSet::all() };
        let listed = verdict(&body_with(&json!({"tools": [tool]})), "tools[0]", dialects);
        let (body, path) = random.place(&tool);
        assert_eq!(verdict(&body, &path, dialects), listed, "{body}");
        *(if listed.is_ok() { &mut accepted } else { &mut refused }) += 1;
    }
    assert!(accepted > bodies / 5 && refused > bodies / 5, "{accepted} accepted, {refused} refused");
    assert!(DialectSet::all().contains(Dialect::Models));
}

#[test]
fn a_choice_of_a_declared_image_tool_is_no_further_tool() {
    let tool = json!({"type": "image_generation", "quality": "low", "size": "1024x1024"});
    let reference = json!({"type": "image_generation"});
    for choice in [reference.clone(), json!({"type": "allowed_tools", "mode": "auto", "tools": [reference]})] {
        let job = check_accepted(&json!({"tools": [tool], "tool_choice": choice}));
        let qualities: Vec<_> = job.image_tools().iter().map(|tool| tool.quality.as_deref()).collect();
        assert_eq!(qualities, [Some("low")], "{choice}");
        assert_eq!(check_accepted(&json!({"tool_choice": choice})).image_tools().len(), 1, "{choice}");
    }
}

#[test]
fn a_list_that_is_data_of_the_caller_declares_nothing() {
    for patch in [
        json!({"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"tools": {"type": "array"}}}}]}),
        json!({"tools": [{"type": "function", "name": "f", "parameters": {"default": {"tools": ["a", {"name": "b"}, 1]}}}]}),
        json!({"tools": [{"type": "mcp", "server_label": "s", "allowed_tools": ["a", "b"]}]}),
        json!({"input": [{"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "a", "input_schema": {}}]}]}),
        json!({"metadata": {"tools": "a, b"}}),
    ] {
        assert!(check_accepted(&patch).image_tools().is_empty(), "{patch}");
    }
}

#[test]
fn an_image_tool_is_found_in_every_list_of_tools() {
    let tool = json!({"type": "image_generation", "size": "7x7"});
    for (patch, param) in [
        (json!({"Tools": [tool]}), "Tools[0].size"),
        (json!({"extra_tools": [tool]}), "extra_tools[0].size"),
        (json!({"agent": {"settings": [{"tools": [tool]}]}}), "agent.settings[0].tools[0].size"),
        (json!({"input": [{"type": "x", "state": {"x_tools": [tool]}}]}), "input[0].state.x_tools[0].size"),
        (
            json!({"prompt": {"id": "pmpt_1", "variables": {"a": {"tools": [tool]}}}}),
            "prompt.variables.a.tools[0].size",
        ),
        (
            json!({"tools": [{"type": "function", "parameters": {"tools": [tool]}}]}),
            "tools[0].parameters.tools[0].size",
        ),
        (json!({"tool_choice": tool}), "tool_choice.size"),
    ] {
        let rejection = check_body(body_with(&patch).to_string()).expect_err("a size that is not valid");
        let found = rejection.param.as_deref();
        assert!(found == Some(param) || found == Some("Tools"), "{patch}: {found:?}");
    }
}
