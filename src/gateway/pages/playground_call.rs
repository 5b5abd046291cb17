//! The request of the playground's form as code for five clients, with the address under which the browser reached the
//! gateway. The key is read from the environment: the page does not know its secret.

use serde_json::Value;

use super::examples::{API_KEY_VARIABLE, CodeExample};
use super::site_origin::SiteOrigin;

/// The name of the file with the picture that an edit begins with.
const INPUT: &str = "input.png";
/// The name of the file with the mask.
const MASK: &str = "mask.png";

/// A request for images.
pub(super) struct ImageCall {
    /// The fields that are not images, in the order in which the code states them.
    pub(super) fields: Vec<(&'static str, Value)>,
    pub(super) is_edit: bool,
    pub(super) has_mask: bool,
}

/// Returns the request as code for each client.
pub(super) fn examples(site: &SiteOrigin, call: &ImageCall) -> Vec<CodeExample> {
    let base = format!("{}/v1", site.origin());
    let example = |id, name, note, code| CodeExample { id, name, note, code };
    vec![
        example("call-curl", "curl", "playground.note_shell", curl(&base, call)),
        example("call-python", "Python", "use.python", python(&base, call)),
        example("call-node", "Node", "use.node", node(&base, call)),
        example("call-rust", "Rust", "use.rust", rust(&base, call)),
        example("call-imagate", "imagate", "playground.note_shell", command_line(&base, call)),
    ]
}

fn curl(base: &str, call: &ImageCall) -> String {
    let decode = format!(
        "  | python3 -c 'import base64,json,sys; open(\"{}\",\"wb\")\
         .write(base64.b64decode(json.load(sys.stdin)[\"data\"][0][\"b64_json\"]))'",
        call.output()
    );
    if !call.is_edit {
        let body = quote(&call.json());
        return format!(
            "curl -sS {base}/images/generations \\\n  -H \"Authorization: Bearer ${API_KEY_VARIABLE}\" \\\n  \
             -H 'Content-Type: application/json' \\\n  -d {body} \\\n{decode}"
        );
    }
    let mut lines =
        vec![format!("curl -sS {base}/images/edits"), format!("  -H \"Authorization: Bearer ${API_KEY_VARIABLE}\"")];
    lines.push(format!("  -F image[]=@{INPUT}"));
    if call.has_mask {
        lines.push(format!("  -F mask=@{MASK}"));
    }
    lines.extend(call.texts().map(|(name, value)| format!("  --form-string {}", quote(&format!("{name}={value}")))));
    lines.push(decode);
    lines.join(" \\\n")
}

fn python(base: &str, call: &ImageCall) -> String {
    let mut code = format!(
        "import base64, os\nfrom openai import OpenAI\n\n\
         client = OpenAI(base_url=\"{base}\", api_key=os.environ[\"{API_KEY_VARIABLE}\"])\n\
         result = client.images.{}(\n",
        if call.is_edit { "edit" } else { "generate" }
    );
    if call.is_edit {
        code += &format!("    image=open(\"{INPUT}\", \"rb\"),\n");
    }
    if call.has_mask {
        code += &format!("    mask=open(\"{MASK}\", \"rb\"),\n");
    }
    for (name, value) in &call.fields {
        // A JSON text is a Python text too.
        code += &format!("    {name}={value},\n");
    }
    code + &format!(
        ")\nwith open(\"{}\", \"wb\") as file:\n    file.write(base64.b64decode(result.data[0].b64_json))\n",
        call.output()
    )
}

fn node(base: &str, call: &ImageCall) -> String {
    let mut code = String::from("import { writeFile } from \"node:fs/promises\";\n");
    if call.is_edit {
        code += "import { createReadStream } from \"node:fs\";\n";
    }
    code += &format!(
        "import OpenAI from \"openai\";\n\n\
         const client = new OpenAI({{ baseURL: \"{base}\", apiKey: process.env.{API_KEY_VARIABLE} }});\n\
         const result = await client.images.{}({{\n",
        if call.is_edit { "edit" } else { "generate" }
    );
    if call.is_edit {
        code += &format!("  image: createReadStream(\"{INPUT}\"),\n");
    }
    if call.has_mask {
        code += &format!("  mask: createReadStream(\"{MASK}\"),\n");
    }
    for (name, value) in &call.fields {
        code += &format!("  {name}: {value},\n");
    }
    code + &format!("}});\nawait writeFile(\"{}\", Buffer.from(result.data[0].b64_json, \"base64\"));\n", call.output())
}

fn rust(base: &str, call: &ImageCall) -> String {
    let (kind, method) = if call.is_edit { ("EditRequest", "edit") } else { ("GenerateRequest", "generate") };
    let mut request = format!("{kind}::new({:?})", call.text("prompt"));
    if call.is_edit {
        request += &format!("\n        .image(Input::from_path(\"{INPUT}\"))");
    }
    if call.has_mask {
        request += &format!("\n        .mask(Input::from_path(\"{MASK}\"))");
    }
    for (name, value) in call.texts() {
        request += &rust_setter(name, &value, &call.text("output_compression"));
    }
    let input = if call.is_edit { ", Input" } else { "" };
    format!(
        "use imagate::client::{{Client, {kind}{input}}};\n\n#[tokio::main]\n\
         async fn main() -> Result<(), Box<dyn std::error::Error>> {{\n    \
         let client = Client::builder().base_url(\"{base}\").api_key(std::env::var(\"{API_KEY_VARIABLE}\")?).build()?;\n    \
         let request = {request};\n    \
         for image in &client.images().{method}(&request).await? {{\n        \
         println!(\"{{}}\", image.write_to(\"picture\").await?.display());\n    }}\n    Ok(())\n}}\n"
    )
}

/// The call of the setter for a field that is not the prompt; empty if the value is the default.
fn rust_setter(name: &str, value: &str, compression: &str) -> String {
    let setter = match name {
        "model" => format!("model({value:?})"),
        "size" if value != "auto" => format!("size(imagate::size!({value:?}))"),
        "quality" => format!("quality({value:?}.parse()?)"),
        "background" => format!("background({value:?}.parse()?)"),
        "n" => format!("count(imagate::client::ImageCount::new({value})?)"),
        "output_format" if compression.is_empty() => format!("format({value:?}.parse::<imagate::image::Format>()?)"),
        "output_format" => format!(
            "format(imagate::client::Output::{} {{ compression: imagate::client::Compression::new({compression})? }})",
            if value == "webp" { "Webp" } else { "Jpeg" }
        ),
        _ => return String::new(),
    };
    format!("\n        .{setter}")
}

fn command_line(base: &str, call: &ImageCall) -> String {
    let mut words = vec![format!("IMAGATE_BASE_URL={base} imagate")];
    words.push(if call.is_edit { format!("edit --image {INPUT}") } else { "generate".to_owned() });
    if call.has_mask {
        words.push(format!("--mask {MASK}"));
    }
    words.push(quote(&call.text("prompt")));
    let mut options = String::new();
    for (name, value) in call.texts() {
        let option = match name {
            "model" => "--model",
            "size" => "--size",
            "quality" => "--quality",
            "n" => "--count",
            "background" => "--background",
            "output_format" => "--format",
            "output_compression" => "--compression",
            _ => continue,
        };
        options += &format!(" \\\n  {option} {}", quote(&value));
    }
    format!("{}{options} \\\n  -o {}\n", words.join(" "), call.output())
}

/// The text as one word of a shell.
fn quote(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:@=".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

// === impl ImageCall ===

impl ImageCall {
    /// The fields as text.
    fn texts(&self) -> impl Iterator<Item = (&str, String)> {
        self.fields.iter().map(|(name, value)| (*name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    }

    /// The body of the request in JSON.
    fn json(&self) -> String {
        let members: Vec<_> = self.fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    }

    /// The text of a field; empty if it is absent.
    fn text(&self, name: &str) -> String {
        self.texts().find(|(field, _)| *field == name).map(|(_, value)| value).unwrap_or_default()
    }

    /// The name of the file that the code writes.
    fn output(&self) -> String {
        let format = self.text("output_format");
        format!("picture.{}", if format.is_empty() { "png" } else { &format })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code_of(fields: Vec<(&'static str, Value)>, is_edit: bool) -> Vec<CodeExample> {
        let site = SiteOrigin::from_host(Some("127.0.0.1:8080"), None).unwrap();
        examples(&site, &ImageCall { fields, is_edit, has_mask: is_edit })
    }

    #[test]
    fn each_client_gets_the_address_the_prompt_and_no_secret() {
        for is_edit in [false, true] {
            let fields = vec![("prompt", json!("a fox")), ("size", json!("1024x1024"))];
            for example in code_of(fields, is_edit) {
                let code = &example.code;
                assert!(code.contains("http://127.0.0.1:8080/v1") && code.contains("a fox"), "{code}");
                assert!(!code.contains("sk-img-") && code.contains("1024x1024"), "{code}");
                assert_eq!(code.contains(INPUT) && code.contains(MASK), is_edit, "{code}");
            }
        }
    }

    #[test]
    fn quotes_in_a_prompt_do_not_end_the_text() {
        let codes = code_of(vec![("prompt", json!("it's \"$HOME\" `id`"))], false);
        let code_for = |id: &str| &codes.iter().find(|example| example.id == id).unwrap().code;
        assert!(
            code_for("call-curl").contains(r#"'{"prompt":"it'\''s \"$HOME\" `id`"}'"#),
            "{}",
            code_for("call-curl")
        );
        assert!(code_for("call-imagate").contains(r#"'it'\''s "$HOME" `id`'"#));
        for id in ["call-python", "call-node", "call-rust"] {
            assert!(code_for(id).contains(r#""it's \"$HOME\" `id`""#), "{}", code_for(id));
        }
    }

    #[test]
    fn a_word_that_the_shell_leaves_as_it_is_has_no_quotes() {
        assert_eq!(quote("1024x1024"), "1024x1024");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("$x"), "'$x'");
    }
}
