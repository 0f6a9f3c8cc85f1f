//! The operations of OpenCode's newer API, below `/api`.

use super::operation::{Operation, ResponseShape, delete, get, post, put};
use crate::{
    http::{
        v1::{catalogue, stream::live, terminals::pty},
        v2::{events, files, location, messages, requests, sessions, terminals},
    },
    scope::Scope,
};

pub(super) fn operations() -> Vec<Operation> {
    let groups = [of_catalogue(), of_sessions(), of_turns(), of_requests(), of_files(), of_terminals()];
    groups.into_iter().flatten().collect()
}

/// A list in a directory.
const LIST: &str = "{location:Location data:any[]}";
const ENTRIES: &str = "{location:Location data:{path type:'file'|'directory'}[]}";
const TERMINAL: &str = "{location:Location data:Terminal}";

fn of_catalogue() -> Vec<Operation> {
    vec![
        get("/api/health", catalogue::is_healthy, "Whether the service is up").gives("{healthy:boolean}"),
        get("/api/location", location::get, "The project of the directory").gives("Location"),
        get("/api/agent", location::agents, "The agents").gives(LIST),
        get("/api/command", location::commands, "The commands").gives(LIST),
        get("/api/model", location::models, "The models").gives(LIST),
        get("/api/provider", location::providers, "The providers").gives(LIST),
        get("/api/provider/{id}", location::provider, "Gets a provider")
            .gives("{location:Location data:any}"),
        get(
            "/api/integration",
            location::empty_list,
            "Always empty: provider keys are managed by the operator",
        )
        .gives(LIST),
        get("/api/reference", location::empty_list, "Always empty").gives(LIST),
        get("/api/event", live::of_tenant_natively, "Events of all directories, until the client leaves")
            .answers(ResponseShape::Events("{id type data:any{} location?:{directory}}")),
        get("/api/skill", location::skills, "The skills in the repository of the newest session").gives(LIST),
    ]
}

fn of_sessions() -> Vec<Operation> {
    let one = "{data:V2Session}";
    vec![
        get("/api/session", sessions::list, "Lists sessions, last changed first")
            .query("{limit?:integer order?:'desc' search? project? cursor?}")
            .gives("{data:V2Session[] cursor:{next?}}"),
        post("/api/session", sessions::create, "Creates a session, or gets the one with this id")
            .takes("{id? agent? model?:{id providerID} location?:{directory}}")
            .gives(one)
            .conflicts(),
        get("/api/session/active", sessions::active, "The sessions that are not idle")
            .gives("{data:{type:'running'}{}}"),
        get("/api/session/{id}", sessions::get, "Gets a session").gives(one),
        post("/api/session/{id}/agent", sessions::agent, "Sets the agent of later prompts")
            .takes("{agent}")
            .answers(ResponseShape::Nothing),
        post("/api/session/{id}/model", sessions::model, "Sets the model of later prompts")
            .takes("{model:{id providerID}}")
            .answers(ResponseShape::Nothing),
        post("/api/session/{id}/revert/stage", sessions::stage, "Reverts files and messages to a message")
            .takes("{messageID files?:boolean}")
            .gives("{data:{messageID partID? snapshot? diff?}}")
            .conflicts(),
        post("/api/session/{id}/revert/clear", sessions::clear, "Undoes a revert")
            .answers(ResponseShape::Nothing)
            .conflicts(),
        post("/api/session/{id}/revert/commit", sessions::commit, "Removes the reverted messages")
            .answers(ResponseShape::Nothing)
            .conflicts(),
    ]
}

fn of_turns() -> Vec<Operation> {
    vec![
        post(
            "/api/session/{id}/prompt",
            messages::admit,
            "Sends a prompt; a repeated prompt gets the same receipt",
        )
        .takes("{id? prompt:{text files?:{uri name?}[] agents?:{name}[]} delivery?:'steer' resume?:boolean}")
        .gives("{data:{admittedSeq:integer id sessionID prompt:any delivery:'steer' timeCreated:integer}}")
        .conflicts(),
        post("/api/session/{id}/interrupt", sessions::interrupt, "Aborts the turn and its subtasks")
            .answers(ResponseShape::Nothing),
        post("/api/session/{id}/wait", sessions::wait, "Answers when the session is idle")
            .answers(ResponseShape::Nothing)
            .needs(Scope::Read),
        post("/api/session/{id}/compact", sessions::compact, "Compacts the session")
            .answers(ResponseShape::Nothing)
            .conflicts(),
        get("/api/session/{id}/message", messages::list, "Its messages, newest first by default")
            .query("{limit?:integer order?:'asc'|'desc' cursor?}")
            .gives("{data:V2Message[] cursor:{previous? next?}}"),
        get("/api/session/{id}/message/{message}", messages::get, "Gets a message").gives("{data:V2Message}"),
        get("/api/session/{id}/context", messages::context, "The last summary and the messages after it")
            .gives("{data:V2Message[]}"),
        get("/api/session/{id}/history", events::history, "One page of its log after a position")
            .query("{after?:integer limit?:integer}")
            .gives("{data:V2Event[] hasMore:boolean}"),
        get("/api/session/{id}/event", events::follow, "Its log after a position, and the events after that")
            .query("{after?:integer}")
            .answers(ResponseShape::Events("V2Event")),
    ]
}

fn of_files() -> Vec<Operation> {
    vec![
        get("/api/fs/find", files::find, "Finds files and directories by the letters of their paths")
            .query("{query type?:'file'|'directory' limit?}")
            .gives(ENTRIES),
        get("/api/fs/list", files::list, "Lists a directory in the files of the newest session")
            .query("{path?}")
            .gives(ENTRIES),
        get("/api/fs/read/{*path}", files::content, "Reads a file").answers(ResponseShape::Text(files::FILE)),
    ]
}

fn of_terminals() -> Vec<Operation> {
    vec![
        get("/api/pty", terminals::list, "Lists the terminals of the directory")
            .gives("{location:Location data:Terminal[]}"),
        post("/api/pty", terminals::create, "Starts a program at a new terminal of the newest session")
            .takes("{command? args?:string[] cwd? title? env?:string{}}")
            .gives(TERMINAL),
        get("/api/pty/{id}", terminals::get, "Gets a terminal").gives(TERMINAL).needs(Scope::Write),
        put("/api/pty/{id}", terminals::update, "Renames or resizes a terminal")
            .takes("{title? size?:{rows:integer cols:integer}}")
            .gives(TERMINAL),
        delete("/api/pty/{id}", terminals::delete, "Ends a terminal and its program")
            .answers(ResponseShape::Nothing),
        post("/api/pty/{id}/connect-token", terminals::connect_token, "Issues a ticket for one connection")
            .gives("{location:Location data:{ticket expires_in:integer}}"),
        get("/api/pty/{id}/connect", pty::connect, "Connects to a terminal")
            .query("{cursor?:integer ticket?}")
            .answers(ResponseShape::Socket)
            .without_scope(),
    ]
}

fn of_requests() -> Vec<Operation> {
    vec![
        get("/api/permission/request", requests::permissions, "The tool calls that wait for approval")
            .gives(LIST),
        get("/api/permission/saved", requests::saved, "The \"always\" answers for whole projects")
            .gives("{data:{id projectID action resource}[]}"),
        delete("/api/permission/saved/{id}", requests::forget, "Withdraws such an answer")
            .answers(ResponseShape::Nothing)
            .needs(Scope::Manage),
        get("/api/session/{id}/permission", requests::permissions_of, "The open requests of a session")
            .gives("{data:V2Permission[]}"),
        get("/api/session/{id}/permission/{request}", requests::permission, "Gets a permission request")
            .gives("{data:V2Permission}"),
        post(
            "/api/session/{id}/permission/{request}/reply",
            requests::reply_permission,
            "Allows or refuses the tool call",
        )
        .takes("{reply:'once'|'always'|'reject' message?}")
        .answers(ResponseShape::Nothing),
        get("/api/question/request", requests::questions, "The questions that wait for an answer")
            .gives(LIST),
        get("/api/session/{id}/question", requests::questions_of, "The open requests of a session")
            .gives("{data:Question[]}"),
        post("/api/session/{id}/question/{request}/reply", requests::reply_question, "Answers the question")
            .takes("{answers:string[][]}")
            .answers(ResponseShape::Nothing),
        post(
            "/api/session/{id}/question/{request}/reject",
            requests::reject_question,
            "Rejects the question",
        )
        .answers(ResponseShape::Nothing),
    ]
}
