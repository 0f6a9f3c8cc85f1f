//! Applies the hunks of a patch to a file. A line matches exactly, else without trailing white space, else without surrounding
//! white space, else with plain punctuation.

use convert_client::patch::Hunk;

/// Applies the hunks and returns the file's new content.
///
/// # Errors
/// A sentence for the model with the lines that are not in the file.
pub(crate) fn apply(path: &str, content: &str, hunks: &[Hunk]) -> Result<String, String> {
    let mut lines: Vec<&str> = content.split('\n').collect();
    // A file ends with a line ending, which does not start another line.
    if lines.last() == Some(&"") {
        lines.pop();
    }
    let mut pieces = vec![];
    let mut from = 0;
    for hunk in hunks {
        for context in &hunk.after {
            let context_lines = [context.as_str()];
            let at = find(&lines, &context_lines, from, false).ok_or_else(|| {
                format!(
                    "{path} has no line {:?} where the patch looks for it.",
                    domain::text::head(context, 200)
                )
            })?;
            from = at + 1;
        }
        let (at, old, new) = place(&lines, hunk, from).ok_or_else(|| {
            let old_lines = domain::text::head(&hunk.old.join("\n"), 1_000).to_owned();
            format!("These lines of the patch are not in {path}; read the file and quote them as they are:\n{old_lines}")
        })?;
        from = at + old;
        pieces.push((at, old, new));
    }
    let mut after: Vec<&str> = vec![];
    let mut next = 0;
    for (at, old, new) in &pieces {
        after.extend(&lines[next..*at]);
        after.extend(new.iter().map(String::as_str));
        next = at + old;
    }
    after.extend(&lines[next..]);
    let mut text = after.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

/// The position of a hunk, the number of lines to replace, and the replacement.
fn place<'a>(lines: &[&str], hunk: &'a Hunk, from: usize) -> Option<(usize, usize, &'a [String])> {
    let (old, new): (Vec<&str>, &[String]) = (hunk.old.iter().map(String::as_str).collect(), &hunk.new);
    if old.is_empty() {
        // The hunk quotes no lines: insert after its context, or at the end of the file.
        let at = if hunk.after.is_empty() { lines.len() } else { from };
        return Some((at, 0, new));
    }
    if let Some(at) = find(lines, &old, from, hunk.is_at_end) {
        return Some((at, old.len(), new));
    }
    // Models often quote the end of the file as an empty line.
    let (last, shorter) = old.split_last()?;
    if !last.is_empty() || shorter.is_empty() {
        return None;
    }
    let new = new.strip_suffix(&[String::new()]).unwrap_or(new);
    find(lines, shorter, from, hunk.is_at_end).map(|at| (at, shorter.len(), new))
}

/// Finds lines at or after `from`; tries the end first if they should be there.
fn find(lines: &[&str], wanted: &[&str], from: usize, is_at_end: bool) -> Option<usize> {
    let last = lines.len().checked_sub(wanted.len())?;
    let same: [fn(&str, &str) -> bool; 4] = [
        |a, b| a == b,
        |a, b| a.trim_end() == b.trim_end(),
        |a, b| a.trim() == b.trim(),
        |a, b| plain(a.trim()) == plain(b.trim()),
    ];
    let fits = |at: usize, same: fn(&str, &str) -> bool| {
        lines[at..at + wanted.len()].iter().zip(wanted).all(|(a, b)| same(a, b))
    };
    if is_at_end
        && last >= from
        && let Some(at) = same.iter().find_map(|same| fits(last, *same).then_some(last))
    {
        return Some(at);
    }
    same.iter().find_map(|same| (from..=last).find(|at| fits(*at, *same)))
}

/// Replaces typographic punctuation by its ASCII form.
fn plain(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            '\u{2018}'..='\u{201b}' => '\'',
            '\u{201c}'..='\u{201f}' => '"',
            '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests;
