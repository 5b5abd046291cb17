//! Reads ARCHITECTURE.md (the layers of the modules, and the crates that only some modules may name) and the list of
//! modules in docs/modules.md.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};

use super::{ARCHITECTURE, Finding, MODULES, Source};

/// The module whose submodules count as modules of their own.
const NESTED_MODULE: &str = "gateway";
/// The files that are not modules: the roots of the library and of the program.
const CRATE_ROOTS: [&str; 2] = ["lib", "main"];

/// The head of the table of layers: name, modules from the lowest to the highest, and the layers or items that they may
/// import.
const LAYERS: &str = "| Layer | Modules | May import";
/// The head of the table of crates.
const CRATES: &str = "| Crate | Only in | Never in";

/// The modules of both documents and their limits.
#[derive(Debug)]
pub(super) struct LayerMap {
    /// The modules of the table by name.
    rows: BTreeMap<String, ModuleLimits>,
    /// The modules that have a paragraph in the list.
    described: BTreeSet<String>,
}

/// The limits of one module.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleLimits {
    /// Modules, and single items of modules.
    pub(super) may_import: BTreeSet<String>,
    /// Crates that the module must not name.
    pub(super) never_names: BTreeSet<String>,
}

/// One row of the table of layers.
struct LayerRow {
    name: String,
    modules: Vec<String>,
    /// Names of other layers.
    layers: Vec<String>,
    /// Single items of modules.
    items: Vec<String>,
}

impl LayerMap {
    /// Reads the tables of `document`, and the list of modules in `modules`.
    pub(super) fn parse(document: &str, modules: &str) -> Result<Self> {
        let layers = table(document, LAYERS).map(layer).collect::<Result<Vec<_>>>()?;
        ensure!(!layers.is_empty(), "there is no table that begins with `{LAYERS}`");
        let mut rows = BTreeMap::new();
        for layer in &layers {
            let mut importable: BTreeSet<String> = layer.items.iter().cloned().collect();
            for name in &layer.layers {
                let lower_layer = layers.iter().find(|layer| layer.name == *name);
                let lower_layer = lower_layer
                    .with_context(|| format!("`{}` may import `{name}`, which is not a layer", layer.name))?;
                importable.extend(lower_layer.modules.iter().cloned());
            }
            for module in &layer.modules {
                rows.insert(
                    module.clone(),
                    ModuleLimits { may_import: importable.clone(), never_names: BTreeSet::new() },
                );
                importable.insert(module.clone());
            }
        }
        for line in table(document, CRATES) {
            let [name, only_in, never_in] = cells(line).map(names);
            let is_closed =
                |module: &String| (!only_in.is_empty() && !only_in.contains(module)) || never_in.contains(module);
            for (_, row) in rows.iter_mut().filter(|(module, _)| is_closed(module)) {
                row.never_names.extend(name.iter().cloned());
            }
        }
        let described = modules.lines().filter_map(|line| line.strip_prefix("- **`")?.split_once("`**"));
        Ok(Self { rows, described: described.map(|(module, _)| module.to_owned()).collect() })
    }

    /// The innermost module of the table that contains a path from the root of the crate.
    pub(super) fn module(&self, path: &[&str]) -> Option<(&str, &ModuleLimits)> {
        (1..=path.len()).rev().find_map(|length| {
            let (name, row) = self.rows.get_key_value(&path[..length].join("::"))?;
            Some((name.as_str(), row))
        })
    }

    /// Compares the modules of both documents with those of the source tree.
    pub(super) fn compare(&self, sources: &[Source]) -> Vec<Finding> {
        let actual_modules: BTreeSet<String> =
            sources.iter().filter_map(|source| counted_module_of_file(&source.path)).collect();
        let table: BTreeSet<String> = self.rows.keys().cloned().collect();
        let mut findings = Vec::new();
        for (document, part, listed) in
            [(ARCHITECTURE, "table of layers", &table), (MODULES, "list of modules", &self.described)]
        {
            let missing =
                actual_modules.difference(listed).map(|module| format!("the {part} lacks the module `{module}`"));
            let extra = listed
                .difference(&actual_modules)
                .map(|module| format!("the {part} names `{module}`, which is not a module in src/"));
            findings.extend(missing.chain(extra).map(|message| Finding {
                path: document.to_owned(),
                line: 1,
                message,
            }));
        }
        let listed = |name: &String| self.module(&name.split("::").collect::<Vec<_>>()).is_some();
        for (module, row) in &self.rows {
            for name in row.may_import.iter().filter(|name| !listed(name)) {
                let message = format!("`{module}` may import `{name}`, which is not in a module");
                findings.push(Finding { path: ARCHITECTURE.to_owned(), line: 1, message });
            }
        }
        findings
    }
}

/// The module path of a source file; `None` for files that are not modules of the crate.
pub(super) fn module_of_file(path: &str) -> Option<Vec<&str>> {
    let module = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    (!CRATE_ROOTS.contains(&module)).then(|| module.split('/').collect())
}

fn counted_module_of_file(path: &str) -> Option<String> {
    let module = module_of_file(path)?;
    let depth = if module.first() == Some(&NESTED_MODULE) { 2 } else { 1 };
    Some(module[..depth.min(module.len())].join("::"))
}

/// The rows of the table that begins with `head`.
fn table<'a>(document: &'a str, head: &'a str) -> impl Iterator<Item = &'a str> {
    let rows = document.lines().skip_while(move |line| !line.starts_with(head)).skip(2);
    rows.take_while(|line| line.starts_with('|'))
}

fn cells(line: &str) -> [&str; 3] {
    let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
    [(); 3].map(|()| cells.next().unwrap_or_default())
}

fn layer(line: &str) -> Result<LayerRow> {
    let [name, modules, may_import] = cells(line);
    let modules = names(modules);
    ensure!(!name.is_empty() && !modules.is_empty(), "a row of the layers is not `name | modules | layers`: {line}");
    let layers = may_import.split(',').map(str::trim).filter(|part| !part.is_empty() && !part.contains('`'));
    let layers = layers.map(str::to_owned).collect();
    Ok(LayerRow { name: name.to_owned(), modules, layers, items: names(may_import) })
}

/// The words between backticks, in order.
fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "- **`image`** is.\n\n| Layer | Modules | May import |\n|---|---|---|\n\
        | ground | `image` `wire` | |\n| server | `gateway::keys` `gateway::flow` `gateway` | ground, `error::Code` |\n\n\
        | Crate | Only in | Never in |\n|---|---|---|\n| `sqlx` | `gateway::keys` | |\n| `tokio` `fs` | | `image` |\n";

    #[test]
    fn a_module_may_import_lower_layers_and_modules_before_it() {
        let map = LayerMap::parse(DOCUMENT, DOCUMENT).unwrap();
        let importable = |module: &str| map.rows[module].may_import.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(importable("image"), [""; 0]);
        assert_eq!(importable("wire"), ["image"]);
        assert_eq!(importable("gateway::flow"), ["error::Code", "gateway::keys", "image", "wire"]);
    }

    #[test]
    fn a_crate_is_limited_to_some_modules_or_forbidden_in_some() {
        let map = LayerMap::parse(DOCUMENT, DOCUMENT).unwrap();
        let never = |module: &str| map.rows[module].never_names.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(never("image"), ["fs", "sqlx", "tokio"]);
        assert_eq!(never("wire"), ["sqlx"]);
        assert_eq!(never("gateway::keys"), [""; 0]);
    }

    #[test]
    fn a_path_belongs_to_its_innermost_module() {
        let map = LayerMap::parse(DOCUMENT, DOCUMENT).unwrap();
        let module = |path: &[&str]| map.module(path).map(|(name, _)| name.to_owned());
        assert_eq!(module(&["gateway", "keys", "secret"]).as_deref(), Some("gateway::keys"));
        assert_eq!(module(&["gateway", "Gateway"]).as_deref(), Some("gateway"));
        assert_eq!(module(&["nowhere"]), None);
    }

    #[test]
    fn differences_between_document_and_tree_are_found() {
        let map = LayerMap::parse(DOCUMENT, DOCUMENT).unwrap();
        let file = |path: &str| Source { path: path.to_owned(), text: String::new() };
        let files =
            ["src/lib.rs", "src/image/size.rs", "src/gateway.rs", "src/gateway/relay/lexer.rs", "tests/it/main.rs"];
        let findings = map.compare(&files.map(file));
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "the table of layers lacks the module `gateway::relay`",
                "the table of layers names `gateway::flow`, which is not a module in src/",
                "the table of layers names `gateway::keys`, which is not a module in src/",
                "the table of layers names `wire`, which is not a module in src/",
                "the list of modules lacks the module `gateway`",
                "the list of modules lacks the module `gateway::relay`",
                "`gateway` may import `error::Code`, which is not in a module",
                "`gateway::flow` may import `error::Code`, which is not in a module",
                "`gateway::keys` may import `error::Code`, which is not in a module",
            ]
        );
    }

    #[test]
    fn malformed_rows_and_unknown_layers_are_errors() {
        for row in ["| a | b | |", "| | `b` | |", "| a | `b` | ground |"] {
            let document = format!("| Layer | Modules | May import |\n|---|---|---|\n{row}\n");
            assert!(LayerMap::parse(&document, "").is_err(), "{row}");
        }
    }
}
