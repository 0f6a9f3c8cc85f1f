//! The threads that do file operations.

mod guidance;
mod missing;
mod read;
mod search;
mod write;

use super::{
    paths::Roots,
    service::{Failure, Service},
    stop::{Operations, Stop},
    thread,
};
use domain::text;
use sandbox_wire::{
    frame,
    v1::{FailureCode, Reply, Request, reply, request},
};
use std::{
    ffi::OsString,
    io,
    sync::{Arc, Mutex, PoisonError, mpsc::Receiver},
};

const FILE_THREADS: usize = 4;

#[derive(Debug)]
pub(super) struct Operation {
    /// The id of the request.
    pub(super) id: u64,
    pub(super) body: request::Body,
    /// Whether its caller has left.
    pub(super) stop: Stop,
}

pub(super) fn spawn(service: &Service, waiting: Receiver<Operation>) -> io::Result<()> {
    let (roots, waiting) = (Arc::new(Roots::open()?), Arc::new(Mutex::new(waiting)));
    for _ in 0..FILE_THREADS {
        let (service, waiting) = (service.clone(), Arc::clone(&waiting));
        let roots = Arc::clone(&roots);
        thread::spawn("files", move || {
            loop {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(Operation { id, body: operation, stop }) = next else { return };
                // The caller of an operation that was stopped before it began has left.
                if stop.is_set() {
                    continue;
                }
                match answer(&roots, operation, &stop) {
                    Ok(body) => service.send(id, body),
                    Err(failure) => service.fail(id, failure),
                }
            }
        })?;
    }
    Ok(())
}

/// Prints the guidance of the files. `instructions` names what it includes, as in a request.
///
/// # Errors
/// Those of the workspace and of the output.
pub(super) fn print_guidance(instructions: impl Iterator<Item = OsString>) -> io::Result<()> {
    let instructions = instructions.map(|name| name.to_string_lossy().into_owned()).collect();
    let request = wire::v1::ReadGuidanceRequest { instructions, ..Default::default() };
    print_answer(&Roots::open()?, 0, request::Body::ReadGuidance(request))
}

/// Prints the answers to requests for lines of files. `requests` has the frame of each as hexadecimal digits.
///
/// # Errors
/// Those of the workspace and of the output; `InvalidInput` for what is no such request.
pub(super) fn print_lines(requests: impl Iterator<Item = OsString>) -> io::Result<()> {
    let roots = Roots::open()?;
    for digits in requests {
        let frame = text::unhex(&digits.to_string_lossy()).ok_or(io::ErrorKind::InvalidInput)?;
        let Some(Request { id, body: Some(operation @ request::Body::ReadLines(_)) }) =
            frame::read(&mut frame.as_slice())?
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        print_answer(&roots, id, operation)?;
    }
    Ok(())
}

fn print_answer(roots: &Roots, id: u64, operation: request::Body) -> io::Result<()> {
    let stop = Operations::default().enter(id);
    let body = answer(roots, operation, &stop).unwrap_or_else(reply::Body::from);
    frame::write(&mut io::stdout().lock(), &Reply { id, body: Some(body) })
}

fn answer(roots: &Roots, operation: request::Body, stop: &Stop) -> Result<reply::Body, Failure> {
    match operation {
        request::Body::ReadFile(request) => read::file(roots, &request).map(reply::Body::ReadFile),
        request::Body::ReadLines(request) => read::lines(roots, &request).map(reply::Body::ReadLines),
        request::Body::WriteFile(request) => write::file(roots, &request).map(reply::Body::WriteFile),
        request::Body::RemoveFile(request) => write::remove(roots, &request).map(reply::Body::RemoveFile),
        request::Body::ListFiles(request) => search::list(roots, &request, stop).map(reply::Body::ListFiles),
        request::Body::GlobFiles(request) => search::glob(roots, &request, stop).map(reply::Body::GlobFiles),
        request::Body::GrepFiles(request) => search::grep(roots, &request, stop).map(reply::Body::GrepFiles),
        request::Body::ReadGuidance(request) => {
            guidance::read(roots, &request, stop).map(reply::Body::ReadGuidance)
        }
        request::Body::Exec(_)
        | request::Body::Kill(_)
        | request::Body::EndAll(_)
        | request::Body::Keystrokes(_)
        | request::Body::Resize(_) => Err(Failure::new(FailureCode::Internal, "not a file operation")),
    }
}
