//! The log: fenced writes, events, messages and their readers.

mod charges;
mod chunks;
mod columns;
mod compaction;
mod edits;
mod events;
mod execs;
mod feed;
mod messages;
mod record;
