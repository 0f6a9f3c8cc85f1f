//! The guidance that a repository has for agents: instruction files and skills, as they are in the files now. The texts
//! and the links are untrusted: each path is opened below the workspace or not at all.

use super::{missing, read, search};
use crate::{
    paths::{Access, Kind, Roots, WORKSPACE},
    service::Failure,
    stop::Stop,
};
use domain::limits;
use ignore::WalkBuilder;
use sandbox_wire::v1::FailureCode;
use settings::markdown;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    path::{Path, PathBuf},
};
use wire::v1;

/// Bytes of one file of instructions: some 16,000 tokens, read by the model at every step. A longer one is omitted.
/// Beyond it: `config_too_large`.
const GUIDANCE_FILE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all instructions of one call: a quarter of a usual context. Further files are omitted. Beyond it: `config_too_large`.
const GUIDANCE_BYTES_MAX: usize = 128 * 1024;
/// Files of instructions of one call. Further ones are omitted. Beyond it: `config_too_large`.
const GUIDANCE_FILES_MAX: usize = 64;
/// Omitted files that are named. The others are only counted.
const GUIDANCE_LEFT_OUT_MAX: usize = 50;
/// Bytes of one sentence about an omitted file. A longer one is cut.
const GUIDANCE_SENTENCE_BYTES_MAX: usize = 512;
/// Skills of one repository; the model reads all their descriptions at every step. Further ones are omitted.
const SKILLS_MAX: usize = 100;
/// Files and directories that are looked at in one directory of skills. Further ones are omitted.
const SKILLS_WALK_MAX: usize = 10_000;
/// Bytes at the beginning of a skill in which its front matter must end. A skill with a longer one is omitted.
const SKILL_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a skill's description. A skill with a longer one is omitted.
const SKILL_DESCRIPTION_BYTES_MAX: usize = 1_024;

/// The first of these that exists in a directory counts.
const NAMES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "CONTEXT.md"];
/// The directories of skills. Of two skills with one name, the first counts.
const SKILLS: [&str; 4] = [".opencode/skills", ".opencode/skill", ".agents/skills", ".claude/skills"];
const SKILL: &str = "SKILL.md";
/// Levels below a directory of skills. Deeper skills are not found.
const SKILL_DEPTH_MAX: usize = 8;

/// Reads the guidance. Each omitted file gets a sentence.
pub(super) fn read(
    roots: &Roots,
    request: &v1::ReadGuidanceRequest,
    stop: &Stop,
) -> Result<v1::ReadGuidanceResponse, Failure> {
    let mut reader = GuidanceReader {
        roots,
        stop,
        seen: BTreeSet::new(),
        bytes: 0,
        found: v1::ReadGuidanceResponse::default(),
    };
    for directory in levels(roots, &request.directory)? {
        reader.level(&directory);
    }
    if !request.only_levels {
        reader.named(&request.instructions);
        reader.skills();
        reader.found.missing_content = missing::sentences(roots);
    }
    reader.found.too_large.truncate(GUIDANCE_LEFT_OUT_MAX);
    let left_out = &mut reader.found.left_out;
    if left_out.len() > GUIDANCE_LEFT_OUT_MAX {
        let more = left_out.len() - GUIDANCE_LEFT_OUT_MAX;
        left_out.truncate(GUIDANCE_LEFT_OUT_MAX);
        left_out.push(format!("and {more} more"));
    }
    Ok(reader.found)
}

/// The directories from the workspace down to `directory`.
fn levels(roots: &Roots, directory: &str) -> Result<Vec<PathBuf>, Failure> {
    let found = roots.find(directory, Access::Read)?;
    let path = found
        .path()
        .map_err(|error| Failure::new(FailureCode::Internal, format!("name {directory}: {error}")))?;
    let outside = |_| {
        let text = format!("{directory} is outside the workspace; use paths below {WORKSPACE}");
        Failure::new(FailureCode::PathOutsideWorkspace, text)
    };
    let below = path.strip_prefix(WORKSPACE).map_err(outside)?;
    if found.kind() != Kind::Directory {
        return Err(Failure::new(FailureCode::FileNotFound, format!("{directory} is not a directory")));
    }
    let mut levels: Vec<PathBuf> = below.ancestors().map(Path::to_owned).collect();
    levels.reverse();
    Ok(levels)
}

struct GuidanceReader<'a> {
    roots: &'a Roots,
    stop: &'a Stop,
    /// The real paths of the files that were read: a link to one of them is not read again.
    seen: BTreeSet<PathBuf>,
    /// Of all instructions so far.
    bytes: usize,
    found: v1::ReadGuidanceResponse,
}

impl GuidanceReader<'_> {
    fn level(&mut self, directory: &Path) {
        let paths = NAMES.iter().filter_map(|name| directory.join(name).to_str().map(str::to_owned));
        for path in paths {
            if self.roots.find(&path, Access::Read).is_ok() {
                return self.instruction(&path);
            }
        }
    }

    /// Reads the files that settings name: paths and globs, relative to the workspace.
    fn named(&mut self, names: &[String]) {
        let mut globs = vec![];
        for name in names.iter().take(limits::SETTINGS_INSTRUCTIONS_MAX) {
            let below = name.strip_prefix("/workspace/").or_else(|| name.strip_prefix("./")).unwrap_or(name);
            let is_outside = below.starts_with(['/', '~']) || below.split('/').any(|part| part == "..");
            if below.contains("://") {
                self.leave_out(name, "instructions from the web are not read");
            } else if is_outside {
                self.leave_out(name, "it is outside the workspace");
            } else if below.contains(['*', '?', '[', '{']) {
                match search::relative_glob(below) {
                    Ok(glob) => globs.push(glob),
                    Err(failure) => self.leave_out(name, &failure.message),
                }
            } else {
                self.instruction(below);
            }
        }
        match search::matching(self.roots, globs, self.stop) {
            Ok((paths, is_cut)) => {
                paths.iter().for_each(|path| self.instruction(path));
                if is_cut {
                    self.leave_out("globs", "the workspace has too many files to search");
                }
            }
            Err(failure) => self.leave_out("globs", &failure.message),
        }
    }

    fn instruction(&mut self, path: &str) {
        if self.found.instructions.len() >= GUIDANCE_FILES_MAX {
            return self.leave_out_large(path, "there are too many instruction files");
        }
        match self.text(path, GUIDANCE_FILE_BYTES_MAX, Excess::Refuse) {
            Ok(None) => {}
            Ok(Some(text)) if self.bytes + text.len() > GUIDANCE_BYTES_MAX => {
                self.leave_out_large(path, "the instructions are too long together");
            }
            Ok(Some(text)) => {
                self.bytes += text.len();
                self.found.instructions.push(v1::GuidanceFile { path: path.to_owned(), text });
            }
            Err(Unread::TooLarge(why)) => self.leave_out_large(path, &why),
            Err(Unread::Refused(why)) => self.leave_out(path, &why),
        }
    }

    /// The text of a file, or `None` if it was read before.
    fn text(&mut self, path: &str, bytes_max: usize, excess: Excess) -> Result<Option<String>, Unread> {
        let message = |failure: Failure| Unread::Refused(failure.message);
        let broken = |error: std::io::Error| Unread::Refused(error.to_string());
        let found = self.roots.find(path, Access::Read).map_err(message)?;
        let real = found.path().map_err(broken)?;
        if !real.starts_with(WORKSPACE) {
            return Err(Unread::Refused("it points outside the workspace".to_owned()));
        }
        let file = found.open_file(path).map_err(message)?;
        let mut bytes = vec![];
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(broken)?;
        if bytes.len() > bytes_max {
            if excess == Excess::Refuse {
                return Err(Unread::TooLarge(format!("it is larger than {bytes_max} bytes")));
            }
            bytes.truncate(bytes_max);
        }
        let text =
            || read::decode_utf16(&bytes).unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
        Ok(self.seen.insert(real).then(text))
    }

    fn skills(&mut self) {
        let mut skills = BTreeMap::new();
        let paths: Vec<String> = SKILLS.iter().flat_map(|directory| self.skill_files(directory)).collect();
        for path in paths {
            if skills.len() >= SKILLS_MAX {
                self.leave_out(&path, "there are too many skills");
                continue;
            }
            match self.text(&path, SKILL_HEAD_BYTES_MAX, Excess::Cut) {
                Ok(None) => {}
                Ok(Some(text)) => match skill(&path, &text) {
                    Ok(skill) if skills.contains_key(&skill.name) => {
                        self.leave_out(&path, "another skill has this name");
                    }
                    Ok(skill) => drop(skills.insert(skill.name.clone(), skill)),
                    Err(why) => self.leave_out(&path, why),
                },
                Err(Unread::TooLarge(why) | Unread::Refused(why)) => self.leave_out(&path, &why),
            }
        }
        self.found.skills = skills.into_values().collect();
    }

    /// The paths of possible skills. Links are followed at the first level only, where people put them.
    fn skill_files(&mut self, directory: &str) -> Vec<String> {
        let Ok(found) = self.roots.find(directory, Access::Read) else { return vec![] };
        let Ok(start) = found.path() else { return vec![] };
        if found.kind() != Kind::Directory || !start.starts_with(WORKSPACE) {
            return vec![];
        }
        let walk = WalkBuilder::new(&start)
            .standard_filters(false)
            .follow_links(false)
            .same_file_system(true)
            .max_depth(Some(SKILL_DEPTH_MAX))
            .sort_by_file_name(std::ffi::OsStr::cmp)
            .build();
        let mut paths = vec![];
        for (count, entry) in walk.flatten().enumerate() {
            if count >= SKILLS_WALK_MAX {
                self.leave_out(directory, "it has too many files to search");
                break;
            }
            let is_link = entry.path_is_symlink() && entry.depth() == 1;
            let path = if is_link { entry.path().join(SKILL) } else { entry.path().to_owned() };
            let Some(path) = path.strip_prefix(WORKSPACE).ok().and_then(Path::to_str) else { continue };
            let is_skill = entry.file_name() == SKILL && entry.file_type().is_some_and(|kind| kind.is_file());
            if is_skill || is_link && self.roots.find(path, Access::Read).is_ok() {
                paths.push(path.to_owned());
            }
        }
        paths
    }

    /// Leaves out a file that exceeds a bound: people and the model are told.
    fn leave_out_large(&mut self, path: &str, why: &str) {
        self.leave_out(path, why);
        let path = domain::text::head(path, GUIDANCE_SENTENCE_BYTES_MAX / 2).to_owned();
        self.found.too_large.push(v1::UnreadFile { path, reason: why.to_owned(), hides_others: false });
    }

    fn leave_out(&mut self, path: &str, why: &str) {
        let path = domain::text::head(path, GUIDANCE_SENTENCE_BYTES_MAX / 2);
        let why = domain::text::head(why, GUIDANCE_SENTENCE_BYTES_MAX / 2);
        self.found.left_out.push(format!("{path}: {why}"));
    }
}

/// Why a file was not read.
enum Unread {
    TooLarge(String),
    Refused(String),
}

/// What to do with a file that is too long: refuse it, or read only its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    Refuse,
    Cut,
}

/// Reads the name and the description from the front matter of a skill.
fn skill(path: &str, text: &str) -> Result<v1::Skill, &'static str> {
    let texts = markdown::texts(text);
    let find = |key: &str| texts.iter().find(|(name, _)| name == key).map(|(_, text)| text.trim().to_owned());
    let name = find("name").filter(|name| !name.is_empty()).ok_or("its front matter has no name")?;
    let description =
        find("description").filter(|text| !text.is_empty()).ok_or("its front matter has no description")?;
    if name.len() > limits::NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err("its name is too long, or has control characters");
    }
    if description.len() > SKILL_DESCRIPTION_BYTES_MAX {
        return Err("its description is too long");
    }
    Ok(v1::Skill { name, description, path: path.to_owned() })
}
