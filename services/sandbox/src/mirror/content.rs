//! What a clone reports about the objects that it has: its packs, and what its references name. The helper that reports has read foreign content,
//! so everything is checked here.

use domain::text;
use std::collections::BTreeSet;

/// What the branches and tags of a repository name; a repository with more has no mirror.
pub const MIRROR_TIPS_MAX: usize = 50_000;
/// Packs of a mirror. A clone with more joins the small ones.
pub const MIRROR_PACKS_MAX: usize = 12;
/// Bytes of the report of a clone, and of its answer. The helper is killed when it prints more.
pub const MIRROR_REPORT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The endings of the files of a pack.
const ENDINGS: [&str; 3] = ["pack", "idx", "rev"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorContent {
    /// The files of its packs, by name.
    pub(super) files: Vec<PackFile>,
    /// The full names of the objects that branches and tags name.
    tips: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackFile {
    pub(super) name: String,
    /// As `cksum` prints it.
    checksum: u32,
    pub(super) bytes: u64,
}

impl MirrorContent {
    /// Parses the lines `pack CHECKSUM BYTES NAME` and `tip OBJECT`. `None`: there is no mirror to be made of it.
    pub fn parse(report: &str) -> Option<Self> {
        let (mut files, mut tips) = (Vec::new(), BTreeSet::new());
        for line in report.lines() {
            match line.split_once(' ')? {
                ("pack", file) => files.push(PackFile::parse(file)?),
                ("tip", tip) if is_object_id(tip) => drop(tips.insert(tip.to_owned())),
                _ => return None,
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let is_unique = files.windows(2).all(|pair| pair[0].name != pair[1].name);
        let has_index = |file: &PackFile| file.stem().is_some_and(|stem| has(&files, &format!("{stem}.idx")));
        let is_whole = files.iter().filter(|file| file.name.ends_with(".pack")).all(has_index);
        let is_bounded = files.len() <= 2 * MIRROR_PACKS_MAX * ENDINGS.len() && tips.len() <= MIRROR_TIPS_MAX;
        let is_content = !files.is_empty() && !tips.is_empty() && is_unique && is_whole && is_bounded;
        is_content.then_some(Self { files, tips })
    }

    /// Reads what [`Self::sums`] and [`Self::references`] wrote. `None`: a file was changed.
    pub(super) fn read(sums: &str, references: &str) -> Option<Self> {
        let packs = sums.lines().map(|line| format!("pack {line}\n"));
        let tips = references.lines().skip(1).filter_map(|line| line.split_once(' '));
        let tips = tips.map(|(tip, _)| format!("tip {tip}\n"));
        Self::parse(&packs.chain(tips).collect::<String>())
    }

    /// What all files of packs take; bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// The files of packs with their checksums, in the order and the format of `cksum`.
    pub(super) fn sums(&self) -> String {
        let line = |PackFile { name, checksum, bytes }: &PackFile| format!("{checksum} {bytes} {name}\n");
        self.files.iter().map(line).collect()
    }

    /// The references of the mirror, as git packs them. None has a name that a server chose.
    pub(super) fn references(&self) -> String {
        let lines = self.tips.iter().map(|tip| format!("{tip} refs/tips/{tip}\n"));
        std::iter::once("# pack-refs with: sorted \n".to_owned()).chain(lines).collect()
    }
}

impl PackFile {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (checksum, bytes, name) =
            (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        let file = Self { name: name.to_owned(), checksum, bytes };
        file.stem()?;
        Some(file)
    }

    /// The name without its ending, which is one of a pack.
    fn stem(&self) -> Option<&str> {
        let (stem, ending) = self.name.split_once('.')?;
        let id = stem.strip_prefix("pack-")?;
        (is_object_id(id) && ENDINGS.contains(&ending)).then_some(stem)
    }
}

/// Whether it is the full name of an object. A repository with names of SHA-256 has no mirror.
fn is_object_id(text: &str) -> bool {
    text.len() == 40 && text::is_object_id(text)
}

fn has(files: &[PackFile], name: &str) -> bool {
    files.iter().any(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_packs_and_full_names_of_objects_are_taken() {
        let id = "a".repeat(40);
        let (pack, index) = (format!("pack 7 10 pack-{id}.pack"), format!("pack 4294967295 5 pack-{id}.idx"));
        let tip = format!("tip {}", "b".repeat(40));
        let content = MirrorContent::parse(&format!("{tip}\n{pack}\n{index}\n")).unwrap();
        assert_eq!(content.sums(), format!("4294967295 5 pack-{id}.idx\n7 10 pack-{id}.pack\n"));
        let tip_id = "b".repeat(40);
        let references = format!("# pack-refs with: sorted \n{tip_id} refs/tips/{tip_id}\n");
        assert_eq!((content.references(), content.bytes()), (references, 15));
        assert_eq!(MirrorContent::read(&content.sums(), &content.references()), Some(content));
        for wrong in [
            String::new(),
            tip.clone(),
            format!("{pack}\n{index}"),
            format!("{tip}\n{pack}"),
            format!("{tip}\n{pack}\n{index}\n{index}"),
            format!("{tip}\n{pack}\n{index}\npack 1 1 ../pack-{id}.pack"),
            format!("{tip}\n{pack}\n{index}\npack 1 1 pack-{id}.keep"),
            format!("{tip}\n{pack}\n{index}\npack 1 1 pack-{id}/x.pack"),
            format!("{tip}\n{pack}\n{index}\npack x 1 pack-{id}.rev"),
            format!("{tip} refs/heads/x\n{pack}\n{index}"),
            format!("{tip}\n{pack}\n{index}\nelse {id}"),
            format!("{tip}\n{pack}\n{index}\n\n"),
        ] {
            assert_eq!(MirrorContent::parse(&wrong), None, "{wrong}");
        }
    }
}
