//! The pages list the rules and environment variables of the code, and their links have targets.

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use imagate::manifest::rules;
use regex::Regex;

use crate::{assert_mentions, assert_no_difference, folder, root};

/// The README, and the number of lines that it must stay below.
const README: (&str, usize) = ("README.md", 200);
/// The page of the rules of manifests.
const RULES: &str = "docs/skills.md";
/// The page of the settings.
const SETTINGS: &str = "docs/configuration.md";

/// The target of a link, without its title.
static LINK: LazyLock<Regex> = LazyLock::new(|| pattern(r"\]\(([^)\s]+)\)"));
/// A setting with an environment variable, as the source declares it.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| pattern(r#""([a-z_]+)", "(IMAGATE_[A-Z_]+)""#));
/// A setting with an argument, as the source declares it.
static ARGUMENT: LazyLock<Regex> = LazyLock::new(|| pattern(r#""([a-z_]+)", "(--[a-z-]+)""#));

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn page(path: &str) -> String {
    fs::read_to_string(folder().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of the table of rules, as the code has them.
fn coded_rules() -> Vec<String> {
    let row = |rule: &rules::Rule| {
        let (level, needs, summary) = (rule.level.as_str(), rule.class.needs(), rule.summary.replace('|', "\\|"));
        format!("| `{}` | {} | {level} | {needs} | {summary} |", rule.id, rule.name)
    };
    let mut rows: Vec<String> = rules::all().map(row).collect();
    rows.sort();
    rows
}

/// One line for each row that only the page of the rules or only the code has.
fn rule_differences(page: &str) -> Vec<String> {
    let tail = page.split_once("<!-- checked:rules -->").expect("the start of the table").1;
    let table = tail.split_once("<!-- /checked -->").expect("the end of the table").0;
    let shown: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let coded = coded_rules();
    let absent = coded.iter().filter(|row| !shown.contains(&row.as_str()));
    let unknown = shown.iter().filter(|row| !coded.iter().any(|coded| coded == *row));
    let mut lines: Vec<String> = absent.map(|row| format!("{RULES} lacks: {row}")).collect();
    lines.extend(unknown.map(|row| format!("{RULES} has a row of no rule: {row}")));
    if lines.is_empty() && !shown.is_sorted() {
        lines.push(format!("{RULES}: the rules are not sorted"));
    }
    lines
}

/// One line for each variable or argument that only the page of the settings or only the code has.
fn variable_differences(page: &str) -> Vec<String> {
    let source = fs::read_to_string(root().join("src/gateway/config/resolve/written.rs")).expect("the source");
    let row = |setting: &str, variable: &str| {
        let argument = ARGUMENT.captures_iter(&source).find(|found| &found[1] == setting);
        let argument = argument.map(|found| format!("`{}` ", &found[2])).unwrap_or_default();
        format!("| `{setting}` | `{variable}` | {argument}|")
    };
    let coded: BTreeSet<String> = VARIABLE.captures_iter(&source).map(|found| row(&found[1], &found[2])).collect();
    assert!(!coded.is_empty(), "no variable is found in the source");
    let shown = page.lines().filter(|line| line.contains("| `IMAGATE_")).map(str::to_owned).collect();
    coded.symmetric_difference(&shown).map(|row| format!("{SETTINGS}: page and source differ in {row}")).collect()
}

/// One line for each link of a page to a missing file or heading.
fn dead_links(path: &str, text: &str) -> Vec<String> {
    let base = root().join(path);
    let base = base.parent().expect("a folder");
    let links = LINK.captures_iter(text).map(|found| found[1].to_owned());
    let dead = links.filter(|link| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { root().join(path) } else { base.join(file) };
        let has_heading = || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading));
        !link.contains("://") && (!target.exists() || !heading.is_empty() && !has_heading())
    });
    dead.map(|link| format!("{path}: {link} has no target")).collect()
}

/// The anchors of the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let letter = |letter: char| match letter {
        ' ' => Some('-'),
        _ => (letter.is_alphanumeric() || "-_".contains(letter)).then(|| letter.to_ascii_lowercase()),
    };
    headings.map(|heading| heading.chars().filter_map(letter).collect()).collect()
}

/// The paths of the README, of the other pages beside it, and of all pages under `docs/`.
fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).expect("the folder exists");
    let name = |entry: fs::DirEntry| format!("docs/{}", entry.file_name().to_string_lossy());
    let mut paths: Vec<String> = entries.map(|entry| name(entry.expect("the folder can be listed"))).collect();
    paths.retain(|path| path.ends_with(".md"));
    paths.extend([README.0, "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned));
    paths
}

#[test]
fn every_rule_of_manifests_is_on_its_page() {
    assert_no_difference(&rule_differences(&page(RULES)));
}

#[test]
fn every_variable_of_the_settings_is_on_its_page() {
    assert_no_difference(&variable_differences(&page(SETTINGS)));
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let dead = pages().into_iter().flat_map(|path| dead_links(&path, &page(&path)));
    assert_no_difference(&dead.collect::<Vec<_>>());
}

#[test]
fn the_readme_stays_short() {
    let (path, bound) = README;
    let lines = page(path).lines().count();
    assert!(lines < bound, "{path} has {lines} lines: move reference material to docs/");
}

#[test]
fn a_changed_level_of_a_rule_is_reported() {
    let changed = page(RULES).replacen("| encoding | error |", "| encoding | note |", 1);
    let found = rule_differences(&changed);
    assert_mentions(&found, "docs/skills.md lacks: | `M001` | encoding | error |");
    assert_mentions(&found, "has a row of no rule: | `M001` | encoding | note |");
}

#[test]
fn a_changed_variable_and_a_dead_link_are_reported() {
    let changed = page(SETTINGS).replacen("`IMAGATE_LISTEN`", "`IMAGATE_PORT`", 1);
    assert_mentions(&variable_differences(&changed), "IMAGATE_PORT");
    let found = dead_links(
        "docs/page.md",
        "[a](nowhere.md) [b](limits.md#nothing) [c](limits.md#uploads) [d](https://a.example)",
    );
    assert_eq!(found, ["docs/page.md: nowhere.md has no target", "docs/page.md: limits.md#nothing has no target"]);
}
