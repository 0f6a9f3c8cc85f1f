//! The turn: what a loop does next. Pure: a signal goes in, actions come out. The worker performs the actions and feeds
//! back what happened. Decisions are level-triggered: at each step boundary the loop reads what is stored and goes on from
//! there, so that a new worker and the previous one decide alike.
// Continues in worker::turn, which performs the actions.

pub mod action;
mod back_off;
pub mod call;
pub mod outcome;
pub mod signal;
pub mod state;
pub mod view;
