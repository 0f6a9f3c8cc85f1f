//! Layers as tools build them, and as attackers do. Each attack that aims at a file outside is also unpacked without walls, to show that it
//! would succeed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "suite/archive.rs"]
mod archive;

use archive::{Archive, sha256};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;
use unpack::{
    blob::Compression,
    bounds::Bounds,
    layer::{Layer, Summary, unpack},
    refusal::Refusal,
};

const SMALL: Bounds = Bounds { entries: 20, bytes: 1_000, depth: 4, ratio: 50 };

/// A directory to unpack into, and a file next to it that no layer may reach.
struct World {
    directory: TempDir,
}

impl World {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir(directory.path().join("layer")).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        Self { directory }
    }

    fn layer(&self) -> PathBuf {
        self.directory.path().join("layer")
    }

    fn secret(&self) -> PathBuf {
        self.directory.path().join("secret")
    }

    fn unpack(&self, archive: &Archive, bounds: Bounds) -> Result<Summary, Refusal> {
        let bytes = archive.bytes();
        let layer = Layer { digest: sha256(&bytes), diff_id: sha256(&bytes), compression: Compression::None };
        unpack(&bytes[..], &layer, &self.layer(), bounds)
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0; 8];
    rustix::fs::getxattr(path, "user.overlay.opaque", &mut value[..]).is_ok_and(|size| &value[..size] == b"y")
}

#[test]
fn a_layer_becomes_a_directory_that_every_user_may_read() {
    let world = World::new();
    let archive = Archive::default()
        .directory("./usr/", 0o700)
        .file("usr/run", 0o4711, "program")
        .file("deep/er/file", 0o600, "text")
        .link("usr/link", "run")
        .hard_link("usr/again", "usr/run")
        .device("usr/disk")
        .pipe("usr/pipe");
    let summary = world.unpack(&archive, SMALL).unwrap();
    assert_eq!(summary, Summary { entries: 7, bytes: 11, left_out: 2 });
    let layer = world.layer();
    assert_eq!(fs::read_to_string(layer.join("usr/again")).unwrap(), "program");
    let inode = |name| fs::metadata(layer.join(name)).unwrap().ino();
    assert_eq!(inode("usr/run"), inode("usr/again"));
    assert_eq!(fs::read_link(layer.join("usr/link")).unwrap(), Path::new("run"));
    assert_eq!(mode(&layer.join("usr")), 0o755);
    assert_eq!(mode(&layer.join("usr/run")), 0o755, "readable, and without its set-user-id bit");
    assert_eq!(mode(&layer.join("deep/er")), 0o755);
    assert_eq!(mode(&layer.join("deep/er/file")), 0o644);
    assert_eq!(fs::metadata(layer.join("usr/run")).unwrap().mtime(), archive::MODIFIED_S);
    assert!(!layer.join("usr/disk").exists() && !layer.join("usr/pipe").exists());
}

#[test]
fn whiteouts_hide_what_lower_layers_have() {
    let world = World::new();
    let archive = Archive::default()
        .file("etc/.wh.gone", 0o644, "")
        .file("var/.wh..wh..opq", 0o644, "")
        .file(".wh.top", 0o644, "")
        // The order of a whiteout and an entry of the same name does not matter.
        .file(".wh.first", 0o644, "")
        .directory("first", 0o755)
        .directory("second", 0o755)
        .file(".wh.second", 0o644, "")
        .file(".wh.file", 0o644, "")
        .file("file", 0o644, "new");
    world.unpack(&archive, SMALL).unwrap();
    let layer = world.layer();
    for hidden in ["etc/gone", "top"] {
        let kind = fs::symlink_metadata(layer.join(hidden)).unwrap();
        assert!(kind.file_type().is_char_device() && kind.rdev() == 0, "{hidden}");
    }
    for opaque in ["var", "first", "second"] {
        assert!(is_opaque(&layer.join(opaque)), "{opaque}");
    }
    assert_eq!(fs::read_to_string(layer.join("file")).unwrap(), "new");
    assert!(!is_opaque(&layer.join("etc")));
}

#[test]
fn the_newest_entry_of_a_name_counts() {
    let world = World::new();
    let archive = Archive::default()
        .file("a", 0o644, "old")
        .hard_link("b", "a")
        .file("a", 0o644, "new")
        .link("c", "a")
        .file("c", 0o644, "a file now")
        .hard_link("b", "b");
    world.unpack(&archive, SMALL).unwrap();
    let read = |name| fs::read_to_string(world.layer().join(name)).unwrap();
    assert_eq!((read("a"), read("b"), read("c")), ("new".into(), "old".into(), "a file now".into()));
}

#[test]
fn nothing_outside_the_directory_is_reached() {
    let secret = |world: &World| world.secret().to_str().unwrap().to_owned();
    // The path of the secret itself, so that an attack on it succeeds where no wall stands.
    type Attack = (&'static str, fn(&str) -> Archive, Option<&'static str>);
    let attacks: [Attack; 6] = [
        ("parents", |_| Archive::default().file("../secret", 0o644, "lost"), Some("layer_path_invalid")),
        (
            "parents later",
            |_| Archive::default().directory("a", 0o755).file("a/../../secret", 0o644, "lost"),
            Some("layer_path_invalid"),
        ),
        (
            "a link as parent",
            |_| Archive::default().link("a", "..").file("a/secret", 0o644, "lost"),
            Some("layer_path_invalid"),
        ),
        (
            "a link as grandparent",
            |_| Archive::default().link("a", "..").file("a/layer/../secret", 0o644, "lost"),
            Some("layer_path_invalid"),
        ),
        // Without walls the file behind the link is written.
        ("a link as file", |secret| Archive::default().link("a", secret).file("a", 0o644, "lost"), None),
        ("an absolute path", |secret| Archive::default().file(secret, 0o644, "lost"), None),
    ];
    for (name, attack, code) in attacks {
        let bounds = Bounds { depth: 64, ..SMALL };
        let world = World::new();
        let result = world.unpack(&attack(&secret(&world)), bounds);
        assert_eq!(result.as_ref().err().map(Refusal::code), code, "{name}: {result:?}");
        assert_eq!(fs::read_to_string(world.secret()).unwrap(), "secret", "{name}");
        let open = World::new();
        attack(&secret(&open)).unpack_without_walls(&open.layer());
        assert_eq!(fs::read_to_string(open.secret()).unwrap(), "lost", "the control of: {name}");
    }
}

#[test]
fn hostile_entries_are_refused_by_name() {
    let deep = "a/".repeat(5);
    let long = "x".repeat(300);
    let cases: [(&str, Archive, &str); 15] = [
        ("a hard link out", Archive::default().hard_link("a", "../secret"), "layer_path_invalid"),
        (
            "a hard link through a link",
            Archive::default().link("a", "..").hard_link("b", "a/secret"),
            "layer_entry_invalid",
        ),
        ("a hard link to nothing", Archive::default().hard_link("a", "b"), "layer_entry_invalid"),
        (
            "a hard link to a directory",
            Archive::default().directory("a", 0o755).hard_link("b", "a"),
            "layer_entry_invalid",
        ),
        (
            "a hard link to a whiteout",
            Archive::default().file(".wh.a", 0o644, "").hard_link("b", "a"),
            "layer_entry_invalid",
        ),
        (
            "a directory that becomes a file",
            Archive::default().directory("a", 0o755).file("a", 0o644, ""),
            "layer_entry_invalid",
        ),
        ("a whiteout of the parent", Archive::default().file("a/.wh...", 0o644, ""), "layer_path_invalid"),
        (
            "a whiteout of a whiteout",
            Archive::default().file(".wh..wh.plnk", 0o644, ""),
            "layer_path_invalid",
        ),
        (
            "a file as parent",
            Archive::default().file("a", 0o644, "").file("a/b", 0o644, ""),
            "layer_path_invalid",
        ),
        ("a sparse file", Archive::default().sparse("a", 500), "layer_entry_invalid"),
        (
            "a sparse file of pax",
            Archive::default().with_pax("GNU.sparse.realsize=500", "a", "1\n500\n0\n"),
            "layer_entry_invalid",
        ),
        ("a deep path", Archive::default().file(&format!("{deep}f"), 0o644, ""), "layer_too_deep"),
        ("a long name", Archive::default().long_file(&long, "x"), "layer_path_invalid"),
        (
            "many bytes",
            Archive::default().file("a", 0o644, &"x".repeat(600)).file("b", 0o644, &"x".repeat(600)),
            "layer_too_large",
        ),
        (
            "many entries",
            (0..21).fold(Archive::default(), |archive, n| archive.file(&n.to_string(), 0o644, "")),
            "layer_too_many_entries",
        ),
    ];
    for (name, archive, code) in cases {
        let world = World::new();
        let refusal = world.unpack(&archive, SMALL).unwrap_err();
        assert_eq!(refusal.code(), code, "{name}: {refusal}");
        assert_eq!(fs::read_to_string(world.secret()).unwrap(), "secret", "{name}");
    }
}

#[test]
fn both_digests_are_compared_to_the_last_byte() {
    let mut archive = Archive::default().file("a", 0o644, "text").bytes();
    // Bytes after the end of the archive belong to its digest.
    archive.extend([0; 1024]);
    for (compression, blob) in [
        (Compression::None, archive.clone()),
        (Compression::Gzip, archive::gzip(&archive)),
        (Compression::Zstd, zstd::encode_all(&archive[..], 3).unwrap()),
    ] {
        let right = Layer { digest: sha256(&blob), diff_id: sha256(&archive), compression };
        let result = |layer: &Layer, blob: &[u8]| {
            unpack(blob, layer, &World::new().layer(), SMALL).map_err(|refusal| refusal.code())
        };
        assert_eq!(result(&right, &blob).map(|summary| summary.bytes), Ok(4), "{compression:?}");
        let other_blob = Layer { digest: sha256(b"other"), ..right.clone() };
        assert_eq!(result(&other_blob, &blob), Err("layer_digest_wrong"), "{compression:?}");
        let other_archive = Layer { diff_id: sha256(b"other"), ..right.clone() };
        assert_eq!(result(&other_archive, &blob), Err("layer_digest_wrong"), "{compression:?}");
        let cut = result(&right, &blob[..blob.len() - 20]);
        assert!(matches!(cut, Err("layer_digest_wrong" | "layer_unreadable")), "{compression:?}: {cut:?}");
    }
    let layer = Layer { digest: String::new(), diff_id: String::new(), compression: Compression::Gzip };
    let foreign = unpack(&b"<html>"[..], &layer, &World::new().layer(), SMALL).unwrap_err();
    assert_eq!(foreign.code(), "layer_unreadable");
}

#[test]
fn a_bomb_is_noticed_before_it_fills_the_disk() {
    let archive = Archive::default().file("zeros", 0o644, &"\0".repeat(80 << 20)).bytes();
    let blob = archive::gzip(&archive);
    let layer = Layer { digest: sha256(&blob), diff_id: sha256(&archive), compression: Compression::Gzip };
    let world = World::new();
    let refusal = unpack(&blob[..], &layer, &world.layer(), Bounds::default()).unwrap_err();
    assert_eq!(refusal.code(), "layer_bomb");
    assert!(fs::metadata(world.layer().join("zeros")).unwrap().len() < 65 << 20);
}

/// Runs the program, and returns its output.
fn run(world: &World, blob: &[u8], diff_id: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flotilla-unpack"))
        .arg(world.layer())
        .args(["--digest", &sha256(blob), "--diff-id", diff_id, "--compression", "gzip"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(blob).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_program_works_behind_its_walls() {
    let archive = Archive::default()
        .file("a/b", 0o644, "text")
        .link("c", "a")
        .hard_link("d", "a/b")
        .file(".wh.e", 0o644, "")
        .file("a/.wh..wh..opq", 0o644, "")
        .bytes();
    let (world, blob) = (World::new(), archive::gzip(&archive));
    let line = run(&world, &blob, &sha256(&archive));
    assert_eq!(line, "{\"unpacked\":{\"entries\":5,\"bytes\":4,\"left_out\":0}}\n");
    assert_eq!(fs::read_to_string(world.layer().join("d")).unwrap(), "text");
    let line = run(&World::new(), &blob, &sha256(b"other"));
    assert!(line.starts_with("{\"refused\":{\"code\":\"layer_digest_wrong\","), "{line}");
}

#[test]
fn a_taken_over_program_reaches_nothing_else() {
    let world = World::new();
    let (layer, secret) = (world.layer(), world.secret());
    // This process has no other test, so it may do what a taken over program would.
    unpack::walls::raise(&layer, 1 << 20).unwrap();
    fs::write(layer.join("inside"), "x").unwrap();
    let reached = [
        ("a file is read", fs::read(&secret).is_ok()),
        ("a file is written", fs::write(&secret, "lost").is_ok()),
        ("the machine is read", fs::read("/etc/passwd").is_ok()),
        ("a port is opened", std::net::TcpListener::bind("127.0.0.1:0").is_ok()),
        ("a program is started", Command::new("/bin/true").status().is_ok()),
    ];
    assert_eq!(reached.map(|(_, is_reached)| is_reached), [false; 5], "{reached:?}");
}
