//! The log: fenced writes, events, messages and their readers.

mod chunks;
mod edits;
mod events;
mod execs;
mod feed;
mod messages;
mod record;
