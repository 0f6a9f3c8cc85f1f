//! The turn: what a loop does next. Pure: a signal goes in, actions come out. The worker performs the actions and feeds
//! back their results. Decisions are level-triggered: at each step boundary the loop reads the stored state and continues
//! from there, so a new worker decides exactly as the previous one would have.
// Continues in worker::turn, which performs the actions.

pub mod action;
mod back_off;
pub mod call;
pub mod outcome;
pub mod signal;
pub mod state;
pub mod view;
pub mod work;
