//! Commands about the program itself and the machine that it runs on.

pub(crate) mod doctor;
pub(crate) mod manual;
pub(crate) mod version;
