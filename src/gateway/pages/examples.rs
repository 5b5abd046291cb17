//! The section "Use this key": code examples for five clients, with the address under which the browser reached the
//! gateway.

use super::site_origin::SiteOrigin;

/// The environment variable from which an example reads the secret if the secret is not in its code.
pub(super) const API_KEY_VARIABLE: &str = "IMAGATE_API_KEY";
const REQUEST_BODY: &str = r#"{"model":"gpt-image-2","prompt":"a lighthouse on a cliff at dusk","size":"1024x1024"}"#;

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

/// Returns all examples, with the secret filled in if it is given.
pub(super) fn examples(site: &SiteOrigin, secret: Option<&str>) -> Vec<CodeExample> {
    let base = format!("{}/v1", site.origin());
    let example = |id, name, note, code| CodeExample { id, name, note, code };
    vec![
        example("curl", "curl", "use.curl", curl(&base, secret)),
        example("python", "Python", "use.python", python(&base, secret)),
        example("node", "Node", "use.node", node(&base, secret)),
        example("rust", "Rust", "use.rust", rust(&base, secret)),
        example("codex", "Codex", "use.codex", codex(&base, secret)),
    ]
}

/// A command line that runs unchanged if the variable is set or the secret is filled in.
fn curl(base: &str, secret: Option<&str>) -> String {
    let key = secret.map_or_else(|| format!("${API_KEY_VARIABLE}"), str::to_owned);
    format!(
        "curl -sS {base}/images/generations \\\n  -H \"Authorization: Bearer {key}\" \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{REQUEST_BODY}'"
    )
}

fn python(base: &str, secret: Option<&str>) -> String {
    let (import, key) = match secret {
        Some(secret) => ("import base64", format!("\"{secret}\"")),
        None => ("import base64, os", format!("os.environ[\"{API_KEY_VARIABLE}\"]")),
    };
    format!(
        "{import}\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}\", api_key={key})\n\
         result = client.images.generate(\n    model=\"gpt-image-2\",\n    \
         prompt=\"a lighthouse on a cliff at dusk\",\n    size=\"1024x1024\",\n)\n\
         with open(\"lighthouse.png\", \"wb\") as file:\n    \
         file.write(base64.b64decode(result.data[0].b64_json))\n"
    )
}

fn node(base: &str, secret: Option<&str>) -> String {
    let key = secret.map_or_else(|| format!("process.env.{API_KEY_VARIABLE}"), |secret| format!("\"{secret}\""));
    format!(
        "import {{ writeFile }} from \"node:fs/promises\";\nimport OpenAI from \"openai\";\n\n\
         const client = new OpenAI({{ baseURL: \"{base}\", apiKey: {key} }});\n\
         const result = await client.images.generate({{\n  model: \"gpt-image-2\",\n  \
         prompt: \"a lighthouse on a cliff at dusk\",\n  size: \"1024x1024\",\n}});\n\
         await writeFile(\"lighthouse.png\", Buffer.from(result.data[0].b64_json, \"base64\"));\n"
    )
}

fn rust(base: &str, secret: Option<&str>) -> String {
    let key =
        secret.map_or_else(|| format!("std::env::var(\"{API_KEY_VARIABLE}\")?"), |secret| format!("\"{secret}\""));
    format!(
        "use imagate::client::{{Client, GenerateRequest}};\n\n#[tokio::main]\n\
         async fn main() -> Result<(), Box<dyn std::error::Error>> {{\n    \
         let client = Client::builder().base_url(\"{base}\").api_key({key}).build()?;\n    \
         let request = GenerateRequest::new(\"a lighthouse on a cliff at dusk\")\
         .size(imagate::size!(\"1024x1024\"));\n    \
         for image in &client.images().generate(&request).await? {{\n        \
         println!(\"{{}}\", image.write_to(\"lighthouse\").await?.display());\n    }}\n    Ok(())\n}}\n"
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-img-abcdefghijkl-secret";

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
