//! The batch API of Git LFS: a client names objects, and the server says for each where it is read or sent to, or why it is not.
//! <https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md>

use super::pointer::LfsPointer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What stands behind the path of a repository for a batch, and before the name of an object.
pub const LFS_OBJECTS_PATH: &str = "/info/lfs/objects/";
/// The last part of the path of a batch.
pub const LFS_BATCH: &str = "batch";
/// The type of the messages.
pub const LFS_TYPE: &str = "application/vnd.git-lfs+json";
/// Objects of a batch: as many as servers such as GitHub take. Beyond it: `git_request_refused`.
pub const LFS_BATCH_OBJECTS_MAX: usize = 100;
pub const LFS_DOWNLOAD: &str = "download";
const LFS_UPLOAD: &str = "upload";
/// The transfer that every server has: one request for each object.
const BASIC: &str = "basic";
/// The function that names objects.
const SHA256: &str = "sha256";

/// What a client asks for. Servers also know further fields, which have no meaning here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LfsBatch {
    /// [`LFS_DOWNLOAD`] or [`LFS_UPLOAD`].
    pub operation: String,
    /// The transfers that the client knows. None: [`BASIC`].
    #[serde(default)]
    transfers: Vec<String>,
    /// The function that names the objects. None: SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash_algo: Option<String>,
    objects: Vec<LfsObject>,
}

/// A name of an object, as it stands in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LfsObject {
    oid: String,
    size: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LfsBatchAnswer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transfer: Option<String>,
    #[serde(default)]
    objects: Vec<LfsObjectAnswer>,
}

/// What a server says about one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LfsObjectAnswer {
    oid: String,
    #[serde(default)]
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authenticated: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actions: Option<LfsActions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<LfsObjectError>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LfsActions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    download: Option<LfsLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upload: Option<LfsLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verify: Option<LfsLink>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LfsLink {
    href: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<BTreeMap<String, String>>,
}

/// Why a server does not give or take an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LfsObjectError {
    /// As a status of HTTP.
    pub code: u32,
    /// A sentence of the server.
    #[serde(default)]
    pub message: String,
}

/// A place that a server names for an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LfsPlace {
    pub href: String,
    /// The headers that open it, which may be credentials.
    pub headers: BTreeMap<String, String>,
    /// Whether nothing else is needed to open it.
    pub is_authenticated: bool,
}

/// Where a server takes an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LfsUpload {
    pub content: LfsPlace,
    /// The place where the client says that it has sent the content; `None`: the server does not want to know.
    pub verification: Option<LfsPlace>,
}

/// What a server says about an object that is to be read: where it is.
pub type LfsResult = Result<LfsPlace, LfsObjectError>;
/// What a server says about an object that is to be sent. `None`: the server has it.
pub type LfsUploadResult = Result<Option<LfsUpload>, LfsObjectError>;

impl LfsObjectError {
    /// Whether the server does not have the object, now and later.
    pub fn is_missing(&self) -> bool {
        matches!(self.code, 404 | 410)
    }
}

impl LfsBatch {
    /// The message that asks where objects are read.
    pub fn download<'a>(pointers: impl IntoIterator<Item = &'a LfsPointer>) -> Self {
        Self::of(LFS_DOWNLOAD, pointers)
    }

    /// The message that asks where objects are sent to.
    pub fn upload<'a>(pointers: impl IntoIterator<Item = &'a LfsPointer>) -> Self {
        Self::of(LFS_UPLOAD, pointers)
    }

    fn of<'a>(operation: &str, pointers: impl IntoIterator<Item = &'a LfsPointer>) -> Self {
        Self {
            operation: operation.to_owned(),
            transfers: vec![BASIC.to_owned()],
            hash_algo: None,
            objects: pointers.into_iter().map(LfsObject::new).collect(),
        }
    }

    /// As it is sent.
    pub fn to_text(&self) -> String {
        // Nothing in it cannot be written as JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what was sent. `None`: it is no such message.
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The objects. `None`: there are none or too many, or they have other names than pointers have.
    pub fn pointers(&self) -> Option<Vec<LfsPointer>> {
        let is_basic = self.transfers.is_empty() || self.transfers.iter().any(|name| name == BASIC);
        let is_sha256 = self.hash_algo.as_deref().is_none_or(|name| name == SHA256);
        let is_bounded = (1..=LFS_BATCH_OBJECTS_MAX).contains(&self.objects.len());
        if !is_basic || !is_sha256 || !is_bounded {
            return None;
        }
        self.objects.iter().map(|object| LfsPointer::new(&object.oid, object.size)).collect()
    }
}

impl LfsBatchAnswer {
    /// The message that says for each object where it is read.
    pub fn new<'a>(results: impl IntoIterator<Item = (&'a LfsPointer, LfsResult)>) -> Self {
        let object = |(pointer, result): (&LfsPointer, LfsResult)| {
            let (oid, size) = (pointer.oid().to_owned(), pointer.size());
            match result {
                Ok(LfsPlace { href, headers, is_authenticated }) => {
                    let header = (!headers.is_empty()).then_some(headers);
                    let download = Some(LfsLink { href, header });
                    let actions = Some(LfsActions { download, ..LfsActions::default() });
                    let authenticated = Some(is_authenticated);
                    LfsObjectAnswer { oid, size, authenticated, actions, error: None }
                }
                Err(error) => {
                    LfsObjectAnswer { oid, size, authenticated: None, actions: None, error: Some(error) }
                }
            }
        };
        let objects = results.into_iter().map(object).collect();
        Self { transfer: Some(BASIC.to_owned()), objects }
    }

    /// As it is sent.
    pub fn to_text(&self) -> String {
        // Nothing in it cannot be written as JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what was sent. `None`: it is no such message.
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// What the server says about each of these objects, in their order. `None`: the server chose another transfer than the one of this client. An object
    /// that the server does not mention is missing, and one for which it names another size is refused.
    pub fn results(self, pointers: &[LfsPointer]) -> Option<Vec<LfsResult>> {
        let objects = self.objects()?;
        Some(pointers.iter().map(|pointer| download(pointer, objects.get(pointer.oid()))).collect())
    }

    /// The same for objects that are to be sent.
    pub fn upload_results(self, pointers: &[LfsPointer]) -> Option<Vec<LfsUploadResult>> {
        let objects = self.objects()?;
        Some(pointers.iter().map(|pointer| upload(pointer, objects.get(pointer.oid()))).collect())
    }

    /// The objects by their names. `None`: the server chose another transfer.
    fn objects(self) -> Option<BTreeMap<String, LfsObjectAnswer>> {
        if self.transfer.as_deref().is_some_and(|name| name != BASIC) {
            return None;
        }
        Some(self.objects.into_iter().map(|object| (object.oid.clone(), object)).collect())
    }
}

impl LfsObject {
    fn new(pointer: &LfsPointer) -> Self {
        Self { oid: pointer.oid().to_owned(), size: pointer.size() }
    }
}

/// The message that says that a client has sent an object.
pub fn verification(pointer: &LfsPointer) -> String {
    // Nothing in it cannot be written as JSON.
    serde_json::to_string(&LfsObject::new(pointer)).unwrap_or_default()
}

fn download(pointer: &LfsPointer, object: Option<&LfsObjectAnswer>) -> LfsResult {
    let object = accepted(object)?;
    let link = object.actions.as_ref().and_then(|actions| actions.download.as_ref());
    let link = link.ok_or_else(|| refusal(404, "the server does not say where it is"))?;
    check_size(pointer, object)?;
    Ok(object.place(link))
}

fn upload(pointer: &LfsPointer, object: Option<&LfsObjectAnswer>) -> LfsUploadResult {
    let object = accepted(object)?;
    let actions = object.actions.as_ref();
    let Some(link) = actions.and_then(|actions| actions.upload.as_ref()) else { return Ok(None) };
    check_size(pointer, object)?;
    let verification = actions.and_then(|actions| actions.verify.as_ref());
    Ok(Some(LfsUpload {
        content: object.place(link),
        verification: verification.map(|link| object.place(link)),
    }))
}

/// The answer about an object, unless it is a refusal.
fn accepted(object: Option<&LfsObjectAnswer>) -> Result<&LfsObjectAnswer, LfsObjectError> {
    let object = object.ok_or_else(|| refusal(404, "the server does not mention it"))?;
    object.error.clone().map_or(Ok(object), Err)
}

fn check_size(pointer: &LfsPointer, object: &LfsObjectAnswer) -> Result<(), LfsObjectError> {
    if object.size == pointer.size() {
        return Ok(());
    }
    Err(refusal(422, "the server has it with another size"))
}

fn refusal(code: u32, message: &str) -> LfsObjectError {
    LfsObjectError { code, message: message.to_owned() }
}

impl LfsObjectAnswer {
    fn place(&self, LfsLink { href, header }: &LfsLink) -> LfsPlace {
        let headers = header.clone().unwrap_or_default();
        LfsPlace { href: href.clone(), headers, is_authenticated: self.authenticated == Some(true) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn pointer(letter: char, size: u64) -> LfsPointer {
        LfsPointer::new(&letter.to_string().repeat(64), size).unwrap()
    }

    #[test]
    fn a_batch_names_objects_and_nothing_else() {
        let batch = LfsBatch::download(&[pointer('a', 3)]);
        let oid = "a".repeat(64);
        let text = format!(
            r#"{{"operation":"download","transfers":["basic"],"objects":[{{"oid":"{oid}","size":3}}]}}"#
        );
        assert_eq!(batch.to_text(), text);
        let read = |text: &str| LfsBatch::parse(text.as_bytes()).unwrap().pointers();
        assert_eq!(read(&text), Some(vec![pointer('a', 3)]));
        let further = text.replace("\"objects\"", r#""ref":{"name":"refs/heads/main"},"objects""#);
        assert_eq!(read(&further), Some(vec![pointer('a', 3)]));
        for wrong in [
            text.replace("basic", "ssh"),
            text.replace(&oid, "../x"),
            text.replace("\"objects\"", r#""hash_algo":"sha512","objects""#),
            format!(r#"{{"operation":"download","objects":[{}]}}"#, ""),
            format!(
                r#"{{"operation":"download","objects":[{}]}}"#,
                vec![format!(r#"{{"oid":"{oid}","size":3}}"#); 101].join(",")
            ),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_answer_is_read_for_what_was_asked() {
        let oids: Vec<String> = ["a", "b", "c", "d", "e"].iter().map(|letter| letter.repeat(64)).collect();
        let text = format!(
            r#"{{"transfer":"basic","objects":[
                {{"oid":"{}","size":1,"authenticated":true,"actions":{{"download":{{"href":"https://h.org/x","header":{{"Key":"value"}},"expires_in":9}}}}}},
                {{"oid":"{}","size":9,"actions":{{"download":{{"href":"https://h.org/y"}}}}}},
                {{"oid":"{}","size":3,"error":{{"code":410,"message":"gone"}}}},
                {{"oid":"{}","size":4,"actions":{{}}}},
                {{"oid":"{}","size":6,"actions":{{"download":{{"href":"https://h.org/z"}}}}}}]}}"#,
            oids[0],
            oids[1],
            oids[2],
            oids[3],
            "f".repeat(64)
        );
        let answer = LfsBatchAnswer::parse(text.as_bytes()).unwrap();
        let asked: Vec<LfsPointer> =
            ('a'..='e').zip(1..).map(|(letter, size)| pointer(letter, size)).collect();
        let results = answer.results(&asked).unwrap();
        let headers = BTreeMap::from([("Key".to_owned(), "value".to_owned())]);
        let download = LfsPlace { href: "https://h.org/x".to_owned(), headers, is_authenticated: true };
        assert_eq!(results[0], Ok(download));
        let codes: Vec<u32> = results[1..].iter().map(|result| result.as_ref().unwrap_err().code).collect();
        assert_eq!(codes, [422, 410, 404, 404]);
        assert!(
            results[2].as_ref().unwrap_err().is_missing() && !results[1].as_ref().unwrap_err().is_missing()
        );
        let other = LfsBatchAnswer { transfer: Some("tus".to_owned()), objects: vec![] };
        assert_eq!(other.results(&asked), None);
        // What is written is read as the same.
        let written = LfsBatchAnswer::new(asked.iter().zip(results.clone()));
        let read = LfsBatchAnswer::parse(written.to_text().as_bytes()).unwrap();
        assert_eq!(read.results(&asked), Some(results));
    }

    #[test]
    fn an_answer_says_where_an_object_is_sent_to() {
        let oids: Vec<String> = ["a", "b", "c", "d"].iter().map(|letter| letter.repeat(64)).collect();
        let text = format!(
            r#"{{"objects":[
                {{"oid":"{}","size":1,"actions":{{"upload":{{"href":"https://h.org/x","header":{{"Key":"value"}}}},"verify":{{"href":"https://h.org/v"}}}}}},
                {{"oid":"{}","size":2}},
                {{"oid":"{}","size":9,"actions":{{"upload":{{"href":"https://h.org/y"}}}}}},
                {{"oid":"{}","size":4,"error":{{"code":422,"message":"too large"}}}}]}}"#,
            oids[0], oids[1], oids[2], oids[3]
        );
        let sent: Vec<LfsPointer> =
            ('a'..='e').zip(1..).map(|(letter, size)| pointer(letter, size)).collect();
        assert!(
            LfsBatch::upload(&sent).to_text().starts_with(r#"{"operation":"upload","transfers":["basic"]"#)
        );
        let results = LfsBatchAnswer::parse(text.as_bytes()).unwrap().upload_results(&sent).unwrap();
        let headers = BTreeMap::from([("Key".to_owned(), "value".to_owned())]);
        let content = LfsPlace { href: "https://h.org/x".to_owned(), headers, is_authenticated: false };
        let place = LfsPlace { href: "https://h.org/v".to_owned(), ..LfsPlace::default() };
        assert_eq!(results[0], Ok(Some(LfsUpload { content, verification: Some(place) })));
        assert_eq!(results[1], Ok(None), "the server has it");
        let codes: Vec<u32> = results[2..].iter().map(|result| result.as_ref().unwrap_err().code).collect();
        assert_eq!(codes, [422, 422, 404]);
        assert_eq!(verification(&sent[0]), format!(r#"{{"oid":"{}","size":1}}"#, oids[0]));
    }
}
