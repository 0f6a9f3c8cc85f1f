//! Pages of the web. Nothing here bounds depth or time: the walls of the process do.

use convert_client::request::{Page, PageForm};

/// Line width of a page.
const COLUMNS: usize = 120;

/// Converts a page; `None` if it cannot be laid out.
pub(crate) fn convert(page: &Page) -> Option<String> {
    let html = page.html.as_bytes();
    match page.form {
        PageForm::Markdown => html2text::config::plain().string_from_read(html, COLUMNS).ok(),
        PageForm::Text => {
            let bare = html2text::render::TrivialDecorator::new();
            html2text::config::with_decorator(bare).string_from_read(html, COLUMNS).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const HTML: &str = "<html><head><title>x</title><script>bad()</script></head><body><h1>Top</h1>\
        <p>See <a href=\"https://a.example/\">this</a>.</p><ul><li>one<li>two</ul><pre>code  here</pre></body></html>";

    #[test]
    fn html_becomes_what_was_asked_for() {
        let page_as = |form| convert(&Page { html: HTML.to_owned(), form }).unwrap();
        let markdown = page_as(PageForm::Markdown);
        for want in ["# Top", "[this][1]", "[1]: https://a.example/", "* one", "code  here"] {
            assert!(markdown.contains(want), "{want}: {markdown}");
        }
        assert!(!markdown.contains("bad()"));
        let text = page_as(PageForm::Text);
        assert!(text.contains("Top") && text.contains("See this.") && !text.contains('#'), "{text}");
    }
}
