//! The Markdown of the API documents as HTML.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Renders a text. Its headings are two levels below those of the page, and its markup is shown as text.
pub(super) fn to_html(text: &str) -> String {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).map(|event| match event {
        Event::Start(Tag::Heading { level, id, classes, attrs }) => {
            Event::Start(Tag::Heading { level: below(level), id, classes, attrs })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(below(level))),
        Event::Html(markup) | Event::InlineHtml(markup) => Event::Text(markup),
        event => event,
    });
    let mut output = String::new();
    html::push_html(&mut output, events);
    output
}

/// The level of a heading on a page that has headings of the first two levels.
const fn below(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        _ => HeadingLevel::H5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_html_without_markup_of_its_own() {
        let html = to_html("# Size\n\nA `1x1` & <b>more</b>\n\n| a | b |\n|---|---|\n| 1 | 2 |\n");
        assert!(html.contains("<h3>Size</h3>"), "{html}");
        assert!(html.contains("<code>1x1</code> &amp; &lt;b&gt;more&lt;/b&gt;"), "{html}");
        assert!(html.contains("<th>a</th>") && html.contains("<td>2</td>"), "{html}");
        assert_eq!(to_html(""), "");
    }
}
