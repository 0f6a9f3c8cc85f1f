//! What only one service of a machine may have at a time: `users` are the user ids of sandboxes.

pub mod users;
