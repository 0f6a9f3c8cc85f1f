//! The boot of the machine. The entry of an exec does not wait for the disk: it outlives the service, but perhaps not a crash of the machine.

use std::{fs, io};

/// Where Linux says which boot this is. In a container it is that of the host, whose memory holds the files that are not on the disk yet.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of this boot.
pub fn id() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID)?.trim().to_owned())
}
