//! Code examples for the clients of the API, with the address under which the browser reached the gateway: the first
//! request with a key ("Use this key"), and the request of the playground's form.

use serde_json::{Value, json};

use super::site_origin::SiteOrigin;

/// The environment variable from which an example reads the secret if the secret is not in its code.
const API_KEY_VARIABLE: &str = "IMAGATE_API_KEY";
/// The name of the file with the picture that an edit begins with.
const INPUT: &str = "input.png";
/// The name of the file with the mask.
const MASK: &str = "mask.png";
/// The end of a line of a command that continues on the next line.
const SHELL_LINE_END: &str = " \\\n  ";

/// A code example for one client.
#[derive(Debug)]
pub(super) struct CodeExample {
    pub(super) id: &'static str,
    /// The name of the client, which is the same in every language of the pages.
    pub(super) name: &'static str,
    /// The key of the translated note.
    pub(super) note: &'static str,
    pub(super) code: String,
}

/// A request for images, as code states it.
pub(super) struct ImageCall<'a> {
    /// The fields that are not images, in the order in which the code states them.
    fields: Vec<(&'static str, Value)>,
    is_edit: bool,
    has_mask: bool,
    /// The secret that the code contains; without it, the code reads the secret from the environment.
    secret: Option<&'a str>,
    /// The name of the file that the code writes, without its extension.
    file: &'static str,
}

/// Returns the examples of the first request with a key, with the secret filled in if it is given.
pub(super) fn examples(site: &SiteOrigin, secret: Option<&str>) -> Vec<CodeExample> {
    let base = format!("{}/v1", site.origin());
    let fields = [
        ("model", json!("gpt-image-2")),
        ("prompt", json!("a lighthouse on a cliff at dusk")),
        ("size", json!("1024x1024")),
    ];
    let call = ImageCall { secret, file: "lighthouse", ..ImageCall::new(fields.into(), false, false) };
    let example = |id, name, note, code| CodeExample { id, name, note, code };
    vec![
        example("curl", "curl", "use.curl", curl(&base, &call).join(SHELL_LINE_END)),
        example("python", "Python", "use.python", python(&base, &call)),
        example("node", "Node", "use.node", node(&base, &call)),
        example("rust", "Rust", "use.rust", rust(&base, &call)),
        example("codex", "Codex", "use.codex", codex(&base, secret)),
    ]
}

/// Returns a request of the playground as code for each client. The page does not know the secret of its key.
pub(super) fn call_examples(site: &SiteOrigin, call: &ImageCall<'_>) -> Vec<CodeExample> {
    let base = format!("{}/v1", site.origin());
    let example = |id, name, note, code| CodeExample { id, name, note, code };
    vec![
        example("call-curl", "curl", "playground.note_shell", curl_to_file(&base, call)),
        example("call-python", "Python", "use.python", python(&base, call)),
        example("call-node", "Node", "use.node", node(&base, call)),
        example("call-rust", "Rust", "use.rust", rust(&base, call)),
        example("call-imagate", "imagate", "playground.note_shell", command_line(&base, call)),
    ]
}

/// The lines of a command that runs unchanged if the variable is set or the secret is filled in.
fn curl(base: &str, call: &ImageCall<'_>) -> Vec<String> {
    let path = if call.is_edit { "edits" } else { "generations" };
    let key = call.key(|variable| format!("${variable}"), str::to_owned);
    let mut lines = vec![format!("curl -sS {base}/images/{path}"), format!("-H \"Authorization: Bearer {key}\"")];
    if !call.is_edit {
        lines.extend(["-H 'Content-Type: application/json'".to_owned(), format!("-d {}", quote(&call.json()))]);
        return lines;
    }
    lines.push(format!("-F image[]=@{INPUT}"));
    lines.extend(call.has_mask.then(|| format!("-F mask=@{MASK}")));
    lines.extend(call.texts().map(|(name, value)| format!("--form-string {}", quote(&format!("{name}={value}")))));
    lines
}

/// A command that writes the picture to a file.
fn curl_to_file(base: &str, call: &ImageCall<'_>) -> String {
    let mut lines = curl(base, call);
    lines.push(format!(
        "| python3 -c 'import base64,json,sys; open(\"{}\",\"wb\")\
         .write(base64.b64decode(json.load(sys.stdin)[\"data\"][0][\"b64_json\"]))'",
        call.output()
    ));
    lines.join(SHELL_LINE_END)
}

fn python(base: &str, call: &ImageCall<'_>) -> String {
    let import = call.key(|_| "import base64, os".to_owned(), |_| "import base64".to_owned());
    let key = call.key(|variable| format!("os.environ[\"{variable}\"]"), |secret| format!("\"{secret}\""));
    let mut code = format!(
        "{import}\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}\", api_key={key})\n\
         result = client.images.{}(\n",
        call.method()
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

fn node(base: &str, call: &ImageCall<'_>) -> String {
    let mut code = String::from("import { writeFile } from \"node:fs/promises\";\n");
    if call.is_edit {
        code += "import { createReadStream } from \"node:fs\";\n";
    }
    let key = call.key(|variable| format!("process.env.{variable}"), |secret| format!("\"{secret}\""));
    code += &format!(
        "import OpenAI from \"openai\";\n\n\
         const client = new OpenAI({{ baseURL: \"{base}\", apiKey: {key} }});\n\
         const result = await client.images.{}({{\n",
        call.method()
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

fn rust(base: &str, call: &ImageCall<'_>) -> String {
    let (kind, method, file) = (if call.is_edit { "EditRequest" } else { "GenerateRequest" }, call.method(), call.file);
    let key = call.key(|variable| format!("std::env::var(\"{variable}\")?"), |secret| format!("\"{secret}\""));
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
         let client = Client::builder().base_url(\"{base}\").api_key({key}).build()?;\n    \
         let request = {request};\n    \
         for image in &client.images().{method}(&request).await? {{\n        \
         println!(\"{{}}\", image.write_to(\"{file}\").await?.display());\n    }}\n    Ok(())\n}}\n"
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

fn command_line(base: &str, call: &ImageCall<'_>) -> String {
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

/// Settings of Codex. Codex reads the secret from the environment; if the secret is given, a comment before the
/// settings has the command that sets the variable.
fn codex(base: &str, secret: Option<&str>) -> String {
    let export_line = secret.map_or_else(String::new, |secret| format!("# export {API_KEY_VARIABLE}={secret}\n\n"));
    format!(
        "{export_line}model = \"gpt-5.5\"\nmodel_provider = \"imagate\"\n\n\
         [model_providers.imagate]\nname = \"imagate\"\n\
         base_url = \"{base}\"\nenv_key = \"{API_KEY_VARIABLE}\"\nwire_api = \"responses\"\n"
    )
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

impl ImageCall<'_> {
    /// The request of the playground's form.
    pub(super) const fn new(fields: Vec<(&'static str, Value)>, is_edit: bool, has_mask: bool) -> Self {
        Self { fields, is_edit, has_mask, secret: None, file: "picture" }
    }

    /// The key as an expression: of the name of the variable, or of the secret.
    fn key(&self, of_variable: impl Fn(&str) -> String, of_secret: impl Fn(&str) -> String) -> String {
        self.secret.map_or_else(|| of_variable(API_KEY_VARIABLE), of_secret)
    }

    /// The name of the method in the libraries.
    const fn method(&self) -> &'static str {
        if self.is_edit { "edit" } else { "generate" }
    }

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
        format!("{}.{}", self.file, if format.is_empty() { "png" } else { &format })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-img-abcdefghijkl-secret";

    fn code_of(fields: Vec<(&'static str, Value)>, is_edit: bool) -> Vec<CodeExample> {
        let site = SiteOrigin::from_host(Some("127.0.0.1:8080"), None).unwrap();
        call_examples(&site, &ImageCall::new(fields, is_edit, is_edit))
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

    #[test]
    fn examples_have_the_address_and_only_a_given_secret() {
        let site = SiteOrigin::from_host(Some("127.0.0.1:8080"), None).unwrap();
        for example in examples(&site, Some(SECRET)) {
            assert!(example.code.contains("http://127.0.0.1:8080/v1"), "{}", example.code);
            assert!(example.code.contains(SECRET), "{}", example.code);
        }
        for example in examples(&site, None) {
            assert!(example.code.contains(API_KEY_VARIABLE), "{}", example.code);
            assert!(!example.code.contains("sk-img-"), "{}", example.code);
        }
    }
}
