//! The memory and the time that large requests and answers may take.

mod answer_body;
pub(crate) mod bodies;
pub(crate) mod room;
pub(crate) mod taken_room;
