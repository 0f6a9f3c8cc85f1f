//! What only one service of a machine may have at a time: `lock` waits for it, `users` are the user ids of sandboxes.

pub mod lock;
pub mod users;
