//! Operations of OpenCode's newer API, below `/api`.

use super::super::{
    catalogue,
    operation::{Answer, Operation, delete, get, post},
    v2::{self, events, messages, requests, sessions},
};

/// All of them.
pub(super) fn operations() -> Vec<Operation> {
    [known(), of_sessions(), of_turns(), of_requests()].into_iter().flatten().collect()
}

/// What is known in a directory.
const LIST: &str = "{location:Location data:any[]}";

fn known() -> Vec<Operation> {
    vec![
        get("/api/health", catalogue::is_healthy, "Whether the service answers").gives("{healthy:boolean}"),
        get("/api/location", v2::location, "The project of the directory").gives("Location"),
        get("/api/agent", v2::agents, "The agents").gives(LIST),
        get("/api/command", v2::commands, "The commands").gives(LIST),
        get("/api/model", v2::models, "The models").gives(LIST),
        get("/api/provider", v2::providers, "The providers").gives(LIST),
        get("/api/integration", v2::nothing, "None: keys of providers are the operator's").gives(LIST),
        get("/api/reference", v2::nothing, "None").gives(LIST),
        get("/api/skill", v2::skills, "What the repository of the newest session teaches agents").gives(LIST),
    ]
}

fn of_sessions() -> Vec<Operation> {
    let one = "{data:NewerSession}";
    vec![
        get("/api/session", sessions::list, "Lists sessions, last changed first")
            .query("{limit?:integer order?:'desc' search? project? cursor?}")
            .gives("{data:NewerSession[] cursor:{next?}}"),
        post("/api/session", sessions::create, "Makes a session; with the id of one gives that")
            .takes("{id? agent? model?:{id providerID} location?:{directory}}")
            .gives(one),
        get("/api/session/active", sessions::active, "The sessions that are not idle")
            .gives("{data:{type:'running'}{}}"),
        get("/api/session/{id}", sessions::get, "Gives a session").gives(one),
        post("/api/session/{id}/agent", sessions::agent, "Chooses the agent of later prompts")
            .takes("{agent}")
            .answers(Answer::Nothing),
        post("/api/session/{id}/model", sessions::model, "Chooses the model of later prompts")
            .takes("{model:{id providerID}}")
            .answers(Answer::Nothing),
        post("/api/session/{id}/revert/stage", sessions::stage, "Takes files and messages back to a message")
            .takes("{messageID files?:boolean}")
            .gives("{data:{messageID partID? snapshot? diff?}}")
            .conflicts(),
        post("/api/session/{id}/revert/clear", sessions::clear, "Brings back what was taken back")
            .answers(Answer::Nothing)
            .conflicts(),
        post(
            "/api/session/{id}/revert/commit",
            sessions::commit,
            "Removes the messages that were taken back",
        )
        .answers(Answer::Nothing)
        .conflicts(),
    ]
}

fn of_turns() -> Vec<Operation> {
    vec![
        post(
            "/api/session/{id}/prompt",
            messages::admit,
            "Prompts; the same prompt again gives the same receipt",
        )
        .takes("{id? prompt:{text files?:{uri name?}[] agents?:{name}[]} delivery?:'steer' resume?:boolean}")
        .gives("{data:{admittedSeq:integer id sessionID prompt:any delivery:'steer' timeCreated:integer}}")
        .conflicts(),
        post("/api/session/{id}/interrupt", sessions::interrupt, "Stops the turn and its subtasks")
            .answers(Answer::Nothing),
        post("/api/session/{id}/wait", sessions::wait, "Answers when the session is idle")
            .answers(Answer::Nothing),
        post("/api/session/{id}/compact", sessions::compact, "Has everything so far summed up")
            .answers(Answer::Nothing)
            .conflicts(),
        get(
            "/api/session/{id}/message",
            messages::list,
            "What was said, newest first unless asked otherwise",
        )
        .query("{limit?:integer order?:'asc'|'desc' cursor?}")
        .gives("{data:NewerMessage[] cursor:{previous? next?}}"),
        get("/api/session/{id}/message/{message}", messages::get, "Gives a message")
            .gives("{data:NewerMessage}"),
        get("/api/session/{id}/history", events::history, "One page of its log after a position")
            .query("{after?:integer limit?:integer}")
            .gives("{data:NewerEvent[] hasMore:boolean}"),
        get("/api/session/{id}/event", events::follow, "Its log after a position, and what happens then")
            .query("{after?:integer}")
            .answers(Answer::Events("NewerEvent")),
    ]
}

fn of_requests() -> Vec<Operation> {
    vec![
        get("/api/permission/request", requests::permissions, "The tool calls that wait to be allowed")
            .gives(LIST),
        get("/api/permission/saved", requests::saved, "What was allowed \"always\" in whole projects")
            .gives("{data:{id projectID action resource}[]}"),
        delete("/api/permission/saved/{id}", requests::forget, "Takes such an answer back")
            .answers(Answer::Nothing),
        get("/api/session/{id}/permission", requests::permissions_of, "Those of a session")
            .gives("{data:NewerPermission[]}"),
        get("/api/session/{id}/permission/{request}", requests::permission, "One of them")
            .gives("{data:NewerPermission}"),
        post(
            "/api/session/{id}/permission/{request}/reply",
            requests::reply_permission,
            "Allows or refuses it",
        )
        .takes("{reply:'once'|'always'|'reject' message?}")
        .answers(Answer::Nothing),
        get("/api/question/request", requests::questions, "The questions that wait for an answer")
            .gives(LIST),
        get("/api/session/{id}/question", requests::questions_of, "Those of a session")
            .gives("{data:Question[]}"),
        post("/api/session/{id}/question/{request}/reply", requests::reply_question, "Answers it")
            .takes("{answers:string[][]}")
            .answers(Answer::Nothing),
        post(
            "/api/session/{id}/question/{request}/reject",
            requests::reject_question,
            "Refuses to answer it",
        )
        .answers(Answer::Nothing),
    ]
}
