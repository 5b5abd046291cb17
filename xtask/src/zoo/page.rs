//! The table of `docs/clients.md`: client, feature, verdict, and what the client needs.
//!
//! The outcomes of earlier runs are kept below the target folder, so a run of one client changes only its row.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::zoo_client::{ClientOutcome, FEATURES, FeatureVerdict, Verdict, ZooClient};

/// The page with the table.
const PAGE: &str = "docs/clients.md";
const BEGIN: &str = "<!-- checked:clients -->";
const END: &str = "<!-- /checked -->";
/// The file with the outcomes of all runs.
const OUTCOMES: &str = "outcomes.json";
/// Longer texts are cut in the notes.
const MAX_NOTE_CHARS: usize = 240;

/// The outcomes by the name of the client.
pub(super) type ClientOutcomes = BTreeMap<String, ClientOutcome>;

/// A cell of the table, and a note below it.
#[derive(Debug, PartialEq, Eq)]
struct TableCell {
    word: &'static str,
    note: Option<String>,
}

pub(super) fn read_outcomes(target: &Path) -> Result<ClientOutcomes> {
    match fs::read_to_string(target.join(OUTCOMES)) {
        Ok(text) => serde_json::from_str(&text).context(OUTCOMES),
        Err(_) => Ok(ClientOutcomes::new()),
    }
}

pub(super) fn write_outcomes(target: &Path, outcomes: &ClientOutcomes) -> Result<()> {
    Ok(fs::write(target.join(OUTCOMES), serde_json::to_string_pretty(outcomes)?)?)
}

/// Writes the table into the page. Returns true if every cell is green or explained.
pub(super) fn write(root: &Path, clients: &[ZooClient], outcomes: &ClientOutcomes) -> Result<bool> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).context(PAGE)?;
    let (before, marked) = page.split_once(BEGIN).context("docs/clients.md has no marker")?;
    let (_, after) = marked.split_once(END).context("docs/clients.md has no end marker")?;
    let (table, is_green) = table(clients, outcomes);
    fs::write(&path, format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))?;
    println!("\nwrote {PAGE}");
    Ok(is_green)
}

fn table(clients: &[ZooClient], outcomes: &ClientOutcomes) -> (String, bool) {
    let mut rows = "| Client | Packages | Generation | Edit | Error | Retry | Needs |\n| --- | --- | --- | --- | --- | --- | --- |\n".to_owned();
    let mut notes = String::new();
    let mut is_green = true;
    for client in clients {
        let Some(outcome) = outcomes.get(&client.name) else { continue };
        let cells = FEATURES.map(|feature| cell(client, outcome, feature));
        is_green &= cells.iter().all(|cell| cell.word != "no");
        let words = cells.iter().map(|cell| cell.word).collect::<Vec<_>>().join(" | ");
        let packages: Vec<_> = client.packages.iter().map(|package| format!("`{package}`")).collect();
        let (title, needs) = (&client.title, client.needs.describe());
        rows.push_str(&format!("| {title} | {} | {words} | {needs} |\n", packages.join(", ")));
        notes.push_str(&notes_of(client, cells));
    }
    (format!("{rows}\nNotes:\n\n{notes}"), is_green)
}

/// One line for each text, with the features that it belongs to.
fn notes_of(client: &ZooClient, cells: [TableCell; FEATURES.len()]) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (feature, cell) in FEATURES.into_iter().zip(cells) {
        let Some(note) = cell.note else { continue };
        match lines.iter_mut().find(|(text, _)| *text == note) {
            Some((_, features)) => features.push(feature),
            None => lines.push((note, vec![feature])),
        }
    }
    let line = |(note, features): (String, Vec<&str>)| {
        format!("- {} (`{}`), {}: {note}\n", client.title, client.name, features.join(" and "))
    };
    lines.into_iter().map(line).collect()
}

fn cell(client: &ZooClient, outcome: &ClientOutcome, feature: &str) -> TableCell {
    if let Some(reason) = &outcome.not_installed {
        let note = (feature == FEATURES[0]).then(|| format!("not installed: {}", escape(reason)));
        return TableCell { word: "not installed", note };
    }
    let Some(strict) = outcome.strict.get(feature) else { return TableCell { word: "not run", note: None } };
    let declared = outcome.declared.as_ref().and_then(|verdicts| verdicts.get(feature));
    let because = |verdict: &FeatureVerdict| Some(escape(&verdict.detail));
    match (strict.verdict, declared) {
        (Verdict::Pass, Some(declared)) if declared.verdict == Verdict::Error => {
            TableCell { word: "no", note: Some(format!("fails only with its needs: {}", escape(&declared.detail))) }
        }
        (Verdict::Pass, _) => TableCell { word: "yes", note: None },
        (Verdict::Absent, _) => TableCell { word: "–", note: because(strict) },
        (Verdict::Shown, _) => TableCell { word: "shown", note: None },
        (Verdict::Error, None) if !client.needs.is_empty() => TableCell { word: "not yet", note: None },
        (Verdict::Error, Some(declared)) => match declared.verdict {
            // In the other features, the client gets the error of a generation.
            Verdict::Pass => {
                let is_first = feature == FEATURES[0] || feature == FEATURES[1];
                TableCell { word: "declared", note: is_first.then(|| refusal(client, &strict.detail)) }
            }
            Verdict::Shown => TableCell { word: "declared, shown", note: None },
            _ => TableCell { word: "no", note: because(declared) },
        },
        (Verdict::Error | Verdict::Miscounted, _) => TableCell { word: "no", note: because(strict) },
    }
}

/// The error that the client shows without its needs, and whether it says which dialect would help.
fn refusal(client: &ZooClient, detail: &str) -> String {
    let named = client.needs.dialects.iter().map(|name| format!("'{name}'")).filter(|name| detail.contains(name));
    let named: Vec<String> = named.collect();
    let advice = match (client.needs.dialects.is_empty(), named.is_empty()) {
        (true, _) => String::new(),
        (false, true) => " (it names no dialect)".to_owned(),
        (false, false) => format!(" (it names {})", named.join(" and ").replace('\'', "`")),
    };
    format!("the error without its needs{advice}: {}", escape(detail))
}

/// A text for one line of Markdown, in the form of code.
fn escape(text: &str) -> String {
    let is_longer = text.chars().count() > MAX_NOTE_CHARS;
    let kept: String = text.replace('`', "'").chars().take(MAX_NOTE_CHARS).collect();
    format!("`{}{}`", kept.trim(), if is_longer { " …" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::super::zoo_client::FeatureVerdicts;
    use super::*;

    fn client(needs: &str) -> ZooClient {
        let text = format!(
            r#"{{"name":"a","title":"A","ecosystem":"program","packages":[],"driver":"a.sh","needs":{needs}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn verdicts(verdict: Verdict) -> FeatureVerdicts {
        let found = FeatureVerdict { verdict, detail: "it is wrong".to_owned() };
        FEATURES.iter().map(|feature| ((*feature).to_owned(), found.clone())).collect()
    }

    fn outcome(strict: Verdict, declared: Option<Verdict>) -> ClientOutcome {
        ClientOutcome { not_installed: None, strict: verdicts(strict), declared: declared.map(verdicts) }
    }

    #[test]
    fn a_cell_says_what_the_client_needs() {
        let (plain, needy) = (client("{}"), client(r#"{"dialects":["sizes"]}"#));
        for (client, strict, declared, word) in [
            (&plain, Verdict::Pass, None, "yes"),
            (&plain, Verdict::Error, None, "no"),
            (&plain, Verdict::Shown, None, "shown"),
            (&plain, Verdict::Miscounted, None, "no"),
            (&needy, Verdict::Error, None, "not yet"),
            (&needy, Verdict::Error, Some(Verdict::Pass), "declared"),
            (&needy, Verdict::Error, Some(Verdict::Error), "no"),
            (&needy, Verdict::Pass, Some(Verdict::Pass), "yes"),
            (&needy, Verdict::Pass, Some(Verdict::Error), "no"),
        ] {
            assert_eq!(cell(client, &outcome(strict, declared), "edit").word, word, "{strict:?} {declared:?}");
        }
    }

    #[test]
    fn a_note_says_which_dialect_the_error_names() {
        let needy = client(r#"{"dialects":["models","sizes"]}"#);
        assert!(refusal(&needy, "The dialect 'sizes' accepts it.").contains("(it names `sizes`)"));
        assert!(refusal(&needy, "Invalid size.").contains("(it names no dialect)"));
        assert!(!refusal(&client("{}"), "Failed to fetch").contains("dialect"));
    }

    #[test]
    fn a_client_that_is_not_installed_is_a_row() {
        let missing = ClientOutcome { not_installed: Some("no network".to_owned()), ..ClientOutcome::default() };
        let (table, is_green) = table(&[client("{}")], &ClientOutcomes::from([("a".to_owned(), missing)]));
        assert!(table.contains("| A |  | not installed |") && table.contains("no network"), "{table}");
        assert!(is_green);
    }
}
