//! Commands about the program itself and the machine that it runs on.

pub(crate) mod doctor;
