//! Pages of lists.

use crate::errors::{error::Error, invalid::Invalid};
use domain::limits;
use store::Page;

/// The page that a client asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PageRequest {
    /// `None`: the default.
    pub(crate) limit: Option<u32>,
    /// The end of the previous page; `None`: the first page.
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List<T> {
    pub(crate) entries: Vec<T>,
    /// The start of the next page, if there may be one.
    pub(crate) next: Option<String>,
}

impl PageRequest {
    /// The first page with the maximum length.
    pub(crate) const FIRST: Self = Self { limit: Some(limits::PAGE_MAX), cursor: None };

    /// Checks the request. `is_cursor` recognizes the cursors of the list: a forged cursor must not return the first
    /// page again.
    ///
    /// # Errors
    /// `page_too_large`, `cursor_invalid`.
    pub(crate) fn check(self, is_cursor: impl FnOnce(&str) -> bool) -> Result<Page, Error> {
        let limit = self.limit.unwrap_or(limits::PAGE_DEFAULT);
        if limit > limits::PAGE_MAX {
            let message = format!("the page size is {limit}, the limit is {}", limits::PAGE_MAX);
            return Err(Invalid::PageTooLarge.because(message));
        }
        if self.cursor.as_deref().is_some_and(|cursor| !is_cursor(cursor)) {
            return Err(Invalid::Cursor.because("the cursor is not from this list"));
        }
        Ok(Page { limit, cursor: self.cursor })
    }
}

impl<T> List<T> {
    /// The page with these entries. `cursor` returns the cursor after an entry; a page that is not full is the last
    /// one.
    pub(crate) fn of(page: &Page, entries: Vec<T>, cursor: impl FnOnce(&T) -> String) -> Self {
        let next = entries.last().filter(|_| is_full(page, entries.len())).map(cursor);
        Self { entries, next }
    }
}

/// Whether a page has its maximum number of entries.
pub(crate) fn is_full(page: &Page, entries: usize) -> bool {
    entries >= usize::try_from(page.limit).unwrap_or(usize::MAX)
}

/// Whether Postgres can store and compare a text: it must not contain NUL.
pub(crate) fn is_text(text: &str) -> bool {
    !text.contains('\0')
}
